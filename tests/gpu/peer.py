"""What gpu_step measures, by torch.distributed over NCCL: one process per GPU, the same tensors.

usage: peer.py

Prints one line of JSON for each measurement. Results are checked before they are timed.
"""
import json
import os
import socket
import statistics
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.optim import ZeroRedundancyOptimizer

# As in gpu_step.cc.
WARM_UPS = 5
REPETITIONS = 30
MOVED_BYTES = (64 << 20, 256 << 20)
MATRICES, SIDE = 5, 2048
ADAMW = {"lr": 0.1, "weight_decay": 0.01, "fused": True}


def measure(name, size, run):
    """Times `run` on all ranks; the slowest counts."""
    times = []
    for i in range(-WARM_UPS, REPETITIONS):
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        if i >= 0:
            times.append(1e3 * (time.perf_counter() - start))
    slowest = torch.tensor(times, dtype=torch.float64, device="cuda")
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        median = statistics.median(slowest.tolist())
        print(json.dumps({"name": name, "ranks": dist.get_world_size(), "bytes": size,
                          "median_ms": median, "best_ms": slowest.min().item(),
                          "gb_per_s": size / median / 1e6}), flush=True)


def expect(is_right, what):
    if not is_right:
        raise RuntimeError(f"the results of {what} are wrong")


def pattern(elements):
    return torch.arange(elements, device="cuda").remainder(97).float()


def expect_step(parameters, before, gradients, what, tolerance):
    """As gpu_step.cc expects it of the first step."""
    expected = before.float() * (1 - ADAMW["lr"] * ADAMW["weight_decay"])
    expected -= gradients.sign() * ADAMW["lr"]
    expect((parameters.float() - expected).abs().max().item() <= tolerance, what)


def broadcast(rank, size):
    expected = pattern(size // 4)
    tensor = expected.clone() if rank == 0 else torch.full_like(expected, -1)
    dist.broadcast(tensor, src=0)
    expect(torch.equal(tensor, expected), "broadcast")
    measure("torch.broadcast", size, lambda: dist.broadcast(tensor, src=0))


def reduce_scatter(rank, ranks, size):
    elements = size // 4 // ranks * ranks
    values = pattern(elements)
    gradients = values * (rank + 1)
    mine = torch.empty(elements // ranks, device="cuda")
    dist.reduce_scatter_tensor(mine, gradients)
    expect(torch.equal(mine, values.chunk(ranks)[rank] * (ranks * (ranks + 1) // 2)),
           "reduce_scatter")
    measure("torch.reduce_scatter", size, lambda: dist.reduce_scatter_tensor(mine, gradients))


def all_gather(rank, ranks, size):
    elements = size // 4 // ranks * ranks
    values = pattern(elements)
    mine = values.chunk(ranks)[rank].clone()
    parameters = torch.empty(elements, device="cuda")
    dist.all_gather_into_tensor(parameters, mine)
    expect(torch.equal(parameters, values), "all_gather")
    measure("torch.all_gather", size, lambda: dist.all_gather_into_tensor(parameters, mine))


class Step:
    """Five matrices in one flat tensor, as Lockstep keeps them, with gradients beside them."""

    def __init__(self, dtype, rank):
        elements = MATRICES * SIDE * SIDE
        elements = elements // dist.get_world_size() * dist.get_world_size()
        values = pattern(elements)
        self.before = (values / 97 + 0.5).to(dtype)
        self.mean_sign = values - 48
        self.parameters = self.before.clone()
        self.gradients = ((values - 48) * (rank + 1)).to(dtype)
        self.bytes = self.parameters.nbytes
        self.text = str(dtype).removeprefix("torch.")
        self.tolerance = 1e-5 if dtype == torch.float32 else 1 / 64

    def check_and_measure(self, name, run):
        run()
        expect_step(self.parameters, self.before, self.mean_sign, name, self.tolerance)
        measure(f"torch.{name}.{self.text}", self.bytes, run)


def sharded_step(dtype, rank, ranks):
    """ZeRO-1 by hand, with what moves in Lockstep's: reduce-scatter, fused step, all-gather."""
    step = Step(dtype, rank)
    mine = torch.nn.Parameter(step.parameters.chunk(ranks)[rank].clone())
    mine.grad = torch.empty_like(mine)
    optimizer = torch.optim.AdamW([mine], **ADAMW)

    def run():
        if ranks == 1:
            mine.grad.copy_(step.gradients)
        else:
            dist.reduce_scatter_tensor(mine.grad, step.gradients, op=dist.ReduceOp.AVG)
        optimizer.step()
        if ranks == 1:
            step.parameters.copy_(mine.detach())
        else:
            dist.all_gather_into_tensor(step.parameters, mine.detach())

    step.check_and_measure("sharded_adamw", run)


def matrices_of(step):
    """The flat tensor as parameters with gradients that are views of it."""
    parameters = []
    for values, gradients in zip(step.parameters.chunk(MATRICES), step.gradients.chunk(MATRICES)):
        parameters.append(torch.nn.Parameter(values))
        parameters[-1].grad = gradients
    return parameters


def zero_step(dtype, rank):
    """As DDP with ZeroRedundancyOptimizer: all-reduce, sharded step, broadcasts."""
    step = Step(dtype, rank)
    optimizer = ZeroRedundancyOptimizer(matrices_of(step), optimizer_class=torch.optim.AdamW,
                                        **ADAMW)

    def run():
        dist.all_reduce(step.gradients, op=dist.ReduceOp.AVG)
        optimizer.step()

    step.check_and_measure("zero", run)


def plain_step(dtype):
    step = Step(dtype, 0)
    optimizer = torch.optim.AdamW(matrices_of(step), **ADAMW)
    step.check_and_measure("adamw", optimizer.step)


def run_rank(rank, ranks, port):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=ranks, device_id=torch.device("cuda", rank))
    for size in MOVED_BYTES if ranks > 1 else ():
        broadcast(rank, size)
        reduce_scatter(rank, ranks, size)
        all_gather(rank, ranks, size)
    for dtype in (torch.float32, torch.bfloat16):
        sharded_step(dtype, rank, ranks)
        if ranks > 1:
            zero_step(dtype, rank)
        else:
            plain_step(dtype)
    dist.destroy_process_group()


def main():
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = torch.cuda.device_count()
    mp.spawn(run_rank, args=(ranks, port), nprocs=ranks)


if __name__ == "__main__":
    main()
