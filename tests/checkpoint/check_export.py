"""Checks exported checkpoints against the checkpoints' own files, with Python's torch.

usage: check_export.py FOLDER EXPORT [FOLDER EXPORT ...]

Reads the shards in FOLDER as worker/checkpoint/README.md describes them, loads EXPORT with
weights_only=True, and compares; then torch's optimizer takes the state and makes a step. Exits 1 at
the first difference.
"""
import json
import re
import struct
import sys
from pathlib import Path

import torch

TYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.float8_e8m0fnu, "I16": torch.int16,
    "U16": torch.uint16, "F16": torch.float16, "BF16": torch.bfloat16, "I32": torch.int32,
    "U32": torch.uint32, "F32": torch.float32, "C64": torch.complex64, "F64": torch.float64,
    "I64": torch.int64, "U64": torch.uint64,
}


def read_safetensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        dtype = TYPES[entry["dtype"]]
        flat = (torch.frombuffer(bytearray(data[begin:end]), dtype=dtype) if end > begin
                else torch.empty(0, dtype=dtype))
        tensors[name] = flat.reshape(entry["shape"])
    return tensors


def same(found, expected, what):
    """Equal types, shapes and bits."""
    ok = found.dtype == expected.dtype and found.shape == expected.shape
    if ok and found.numel() > 0:
        ok = torch.equal(found.contiguous().reshape(-1).view(torch.uint8),
                         expected.contiguous().reshape(-1).view(torch.uint8))
    if not ok:
        sys.exit(f"{what} is {found}; expected {expected}")


def group_of(name, groups):
    """0, or 1 + the first group whose pattern matches; stars only."""
    for i, group in enumerate(groups):
        pattern = re.escape(group["pattern"])
        pattern = pattern.replace(r"\*\*\.", r"(.*\.)?").replace(r"\*", r"[^.]*")
        if re.fullmatch(pattern, name):
            return i + 1
    return 0


def make_optimizer(settings, parameters):
    own = settings["groups"]
    groups = [{"params": []} for _ in range(1 + len(own))]
    for name, parameter in parameters.items():
        groups[group_of(name, own)]["params"].append(parameter)
    arguments = {key: value for key, value in settings.items()
                 if key not in ("name", "groups", "beta1", "beta2")}
    if "beta1" in settings:
        arguments["betas"] = (settings["beta1"], settings["beta2"])
    return getattr(torch.optim, settings["name"])(groups, **arguments), groups


def check(folder, path):
    manifest = json.loads((folder / "manifest.json").read_text())
    plan, model = manifest["plan"], manifest["model"]
    shards = [read_safetensors(folder / file["name"]) for file in manifest["files"][:-1]]
    replicated = read_safetensors(folder / manifest["files"][-1]["name"])

    def flat(name):
        return torch.cat([shard[name] for shard in shards])

    def of_slot(slot, placement, shape):
        begin = placement["offset"] - slot["begin"]
        return flat(f"state.{slot['name']}")[begin:begin + placement["elements"]].reshape(shape)

    loaded = torch.load(path, weights_only=True)
    mapped = torch.load(path, weights_only=True, mmap=True)
    placements = {placement["name"]: placement for placement in plan["placements"]}
    blocks = {block["dtype"]: block for block in plan["blocks"]}
    expected = {buffer["name"]: replicated[buffer["name"]] for buffer in model["buffers"]
                if buffer["dtype"] != "unspecified"}
    for spec in model["parameters"]:
        name = spec["name"]
        if not spec["trainable"]:
            expected[name] = replicated[name]
            continue
        placement = placements[name]
        if placement["elements"] == 0:
            expected[name] = torch.empty(spec["shape"], dtype=getattr(torch, spec["dtype"]))
            continue
        begin = placement["offset"] - blocks[spec["dtype"]]["begin"]
        flat_block = flat(f"parameters.{spec['dtype']}")
        expected[name] = flat_block[begin:begin + placement["elements"]].reshape(spec["shape"])
    if set(loaded["model"]) != set(expected):
        sys.exit(f"the model has {sorted(loaded['model'])}; expected {sorted(expected)}")
    for name, tensor in expected.items():
        same(loaded["model"][name], tensor, name)
        same(mapped["model"][name], tensor, f"{name}, mapped")

    parameters = {spec["name"]: torch.nn.Parameter(loaded["model"][spec["name"]].clone(),
                                                   requires_grad=spec["trainable"])
                  for spec in model["parameters"]}
    names = {id(parameter): name for name, parameter in parameters.items()}
    optimizer, groups = make_optimizer(manifest["optimizer"], parameters)
    theirs = optimizer.state_dict()
    ours = loaded["optimizer"]
    for their_group, our_group in zip(theirs["param_groups"], ours["param_groups"], strict=True):
        if set(their_group) != set(our_group):
            sys.exit(f"a group has {sorted(our_group)}; torch's has {sorted(their_group)}")
        if their_group["params"] != our_group["params"]:
            sys.exit(f"a group has {our_group['params']}; torch's has {their_group['params']}")
    optimizer.load_state_dict(ours)
    for number, (group, built) in enumerate(zip(optimizer.param_groups, groups)):
        own = manifest["optimizer"]["groups"][number - 1] if number else {}
        lr = manifest["learning_rate"] * own.get("lr_scale", 1)
        decay = own.get("weight_decay", manifest["optimizer"]["weight_decay"])
        if group["lr"] != lr or group["weight_decay"] != decay:
            sys.exit(f"group {number} has lr {group['lr']} and weight decay "
                     f"{group['weight_decay']}; expected {lr} and {decay}")
    slots = [slot for slot in manifest["slots"] if slot["name"] != "master"]
    for parameter in (p for group in optimizer.param_groups for p in group["params"]):
        name = names[id(parameter)]
        state = optimizer.state[parameter] if parameter in optimizer.state else {}
        wanted = {slot["name"] for slot in slots} if parameter.requires_grad else set()
        if parameter.requires_grad and manifest["optimizer"]["name"] != "SGD":
            same(state["step"], torch.tensor(float(manifest["optimizer_steps"])), f"step of {name}")
            wanted.add("step")
        if manifest["optimizer"]["name"] == "Adagrad" and not parameter.requires_grad:
            continue  # torch makes its state at once
        if set(state) != wanted:
            sys.exit(f"{name} has state {sorted(state)}; expected {sorted(wanted)}")
        for slot in slots if parameter.requires_grad else []:
            # Torch keeps it in the parameter's type.
            same(state[slot["name"]],
                 of_slot(slot, placements[name], parameter.shape).to(parameter.dtype),
                 f"{slot['name']} of {name}")
    for slot in manifest["slots"]:
        if slot["name"] != "master":
            continue
        short = {name for name, placement in placements.items()
                 if placement["offset"] >= slot["begin"]}
        if set(loaded["masters"]) != short:
            sys.exit(f"masters are {sorted(loaded['masters'])}; expected {sorted(short)}")
        for name in short:
            same(loaded["masters"][name],
                 of_slot(slot, placements[name], loaded["model"][name].shape), f"master of {name}")
    for parameter in parameters.values():
        if parameter.requires_grad:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def main():
    paths = sys.argv[1:]
    for folder, path in zip(paths[::2], paths[1::2], strict=True):
        check(Path(folder), path)
    print(f"{len(paths) // 2} exports are right")


if __name__ == "__main__":
    main()
