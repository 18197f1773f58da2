"""What all sides start from: initial weights and data, in one file.

The file is one line of JSON, {name: {"shape": [...], "offset": bytes}}, and behind
it the tensors as raw little-endian float32. Nothing here needs torch.
"""
import array
import json
import math
import random
import sys

ROWS = 8  # per rank and batch: a power of two, so that averages by it are exact
BATCHES = 12
MAX_RANKS = 3
LR = 0.125  # a power of two: its products are exact, fused or not
PROBE_WEIGHT = [0.5, -0.25, 1.0]


def _random(generator, *shape):
    count = math.prod(shape)
    return list(shape), array.array("f", (generator.uniform(-1, 1) for _ in range(count)))


def make_inputs(seed):
    """The tensors by name, each (shape, values)."""
    generator = random.Random(seed)
    tensors = {
        "batchnorm/fc1.weight": _random(generator, 8, 6),
        "batchnorm/fc1.bias": _random(generator, 8),
        "batchnorm/bn.weight": _random(generator, 8),
        "batchnorm/bn.bias": _random(generator, 8),
        "batchnorm/fc2.weight": _random(generator, 3, 8),
        "batchnorm/fc2.bias": _random(generator, 3),
        "probe/weight": ([3], array.array("f", PROBE_WEIGHT)),
    }
    for rank in range(MAX_RANKS):
        tensors[f"batchnorm/rank{rank}/x"] = _random(generator, BATCHES, ROWS, 6)
        tensors[f"batchnorm/rank{rank}/y"] = _random(generator, BATCHES, ROWS, 3)
        # Small multiples of 1/64: sums and products of them are exact.
        shape, values = _random(generator, BATCHES, ROWS, 3)
        exact = array.array("f", (round(value * 64) / 64 for value in values))
        tensors[f"probe/rank{rank}/x"] = (shape, exact)
    return tensors


def write_inputs(path, tensors):
    """Writes the file; read_inputs() and inputs.cc read it."""
    header, body = {}, b""
    for name, (shape, values) in tensors.items():
        header[name] = {"shape": shape, "offset": len(body)}
        little = array.array("f", values)
        if sys.byteorder == "big":
            little.byteswap()
        body += little.tobytes()
    with open(path, "wb") as file:
        file.write(json.dumps(header).encode() + b"\n" + body)


def read_inputs(path):
    """The tensors by name, each (shape, values)."""
    with open(path, "rb") as file:
        header = json.loads(file.readline())
        body = file.read()
    tensors = {}
    for name, place in header.items():
        count = math.prod(place["shape"])
        values = array.array("f", body[place["offset"] : place["offset"] + 4 * count])
        if sys.byteorder == "big":
            values.byteswap()
        tensors[name] = (place["shape"], values)
    return tensors
