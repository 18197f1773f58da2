"""One rank of the bench, by a peer over Gloo: torch DDP, ZeroRedundancyOptimizer, fairscale.

usage: peer_rank.py CONFIG

CONFIG is JSON; what is said over the inherited socket is in ../rank_main.cc. The shapes
are those of ../rank_bench.cc. Runs in the peers' environment.
"""
import datetime
import json
import os
import socket
import sys
import time
import traceback

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from peer_train import Train, read_digits

# As DDP's first and further buckets.
FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20
# Before a sync that finds its caches hot, as of ../rank_bench.cc.
WARMING_SYNCS = 5
TIMEOUT = datetime.timedelta(seconds=60)


class Matrices(torch.nn.Module):
    def __init__(self, sizes):
        super().__init__()
        side = sizes["side"]
        self.weights = torch.nn.ParameterList(
            torch.nn.Parameter(torch.full((side, side), 0.01)) for _ in range(sizes["matrices"]))


def nothing():
    pass


def fill_gradients(module, rank):
    for parameter in module.parameters():
        if parameter.grad is None:
            parameter.grad = torch.empty_like(parameter)
        parameter.grad.fill_(1e-3 * (rank + 1))


def bucket_gradients(parameters):
    """Flat buckets that the gradients are views of: DDP with gradient_as_bucket_view."""
    buckets = []
    group, limit = [], FIRST_BUCKET_BYTES
    for parameter in reversed(parameters):
        group.append(parameter)
        if sum(4 * p.numel() for p in group) >= limit or parameter is parameters[0]:
            bucket = torch.zeros(sum(p.numel() for p in group))
            offset = 0
            for p in group:
                p.grad = bucket[offset:offset + p.numel()].view_as(p)
                offset += p.numel()
            buckets.append(bucket)
            group, limit = [], BUCKET_BYTES
    return buckets


class Zero:
    """All-reduce of the gradients in buckets, then a sharded AdamW."""

    def __init__(self, config, **adamw):
        self.rank, self.ranks = config["rank"], config["ranks"]
        self.module = Matrices(config["sizes"])
        parameters = list(self.module.parameters())
        self.buckets = bucket_gradients(parameters)
        self.optimizer = ZeroRedundancyOptimizer(
            parameters, optimizer_class=torch.optim.AdamW, lr=1e-3, **adamw)

    def prepare(self):
        fill_gradients(self.module, self.rank)

    def run(self):
        start = time.perf_counter_ns()
        works = []
        for bucket in self.buckets:
            bucket.div_(self.ranks)
            works.append(dist.all_reduce(bucket, async_op=True))
        for work in works:
            work.wait()
        reduced = time.perf_counter_ns()
        self.optimizer.step()
        end = time.perf_counter_ns()
        return end - start, {"1 all-reduce": reduced - start, "2 optimizer": end - reduced}


class Fairscale:
    """ShardedDataParallel's reduction to owners, then OSS's step."""

    def __init__(self, config):
        from fairscale.nn.data_parallel import ShardedDataParallel
        from fairscale.optim.oss import OSS

        self.rank = config["rank"]
        self.module = Matrices(config["sizes"])
        fill_gradients(self.module, self.rank)
        self.optimizer = OSS(self.module.parameters(), optim=torch.optim.AdamW, lr=1e-3)
        self.model = ShardedDataParallel(self.module, self.optimizer)
        self.model.refresh_trainable()

    def prepare(self):
        fill_gradients(self.module, self.rank)
        self.model._clear_counters()  # as its forward does

    def run(self):
        start = time.perf_counter_ns()
        self.model.reduce()
        reduced = time.perf_counter_ns()
        self.optimizer.step()
        end = time.perf_counter_ns()
        return end - start, {"1 reduce": reduced - start, "2 optimizer": end - reduced}


class DdpBuffers:
    """DDP's sync of a ResNet-50's BatchNorm buffers."""

    def __init__(self, config):
        widths = [64]
        for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
            for block in range(blocks):
                widths += [width, width, 4 * width] + [4 * width] * (block == 0)
        module = torch.nn.ModuleList(torch.nn.BatchNorm2d(width) for width in widths)
        buffers = list(module.buffers())
        assert (len(buffers), sum(b.nbytes for b in buffers)) == (159, 212904)
        self.model = DistributedDataParallel(module)
        self.cold = torch.empty(config["sizes"]["cold_bytes"], dtype=torch.uint8)
        self.touched = 0

    def warm(self):
        for _ in range(WARMING_SYNCS):
            self.model._sync_buffers()

    def touch(self):
        self.touched = (self.touched + 1) % 256
        self.cold.fill_(self.touched)

    def run(self):
        start = time.perf_counter_ns()
        self.model._sync_buffers()
        return time.perf_counter_ns() - start, {}


class Broadcast:
    def __init__(self, config):
        self.values = torch.full((config["sizes"]["broadcast_elements"],), float(config["rank"]))

    def run(self):
        start = time.perf_counter_ns()
        dist.broadcast(self.values, src=0)
        return time.perf_counter_ns() - start, {}


def no_account():
    return None


def make_cases(config):
    """{name: (prepare, run)}, and what gives the rank's account at its end."""
    if config["bench"] == "step":
        zero, fused, fairscale = Zero(config), Zero(config, fused=True), Fairscale(config)
        return {"zero": (zero.prepare, zero.run), "zero_fused": (fused.prepare, fused.run),
                "fairscale": (fairscale.prepare, fairscale.run)}, no_account
    if config["bench"] == "buffers":
        ddp = DdpBuffers(config)
        return ({"ddp_buffers_hot": (ddp.warm, ddp.run), "ddp_buffers_cold": (ddp.touch, ddp.run)},
                no_account)
    if config["bench"] == "train":
        digits = read_digits(config["data"])
        ddp, tuned = Train(config, digits, tuned=False), Train(config, digits, tuned=True)
        return ({"train_ddp": (nothing, ddp.run), "train_ddp_tuned": (nothing, tuned.run)},
                lambda: [ddp.account(), tuned.account()])
    return {"gloo_broadcast": (nothing, Broadcast(config).run)}, no_account


def serve(config, send, lines):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{config['rendezvous']}",
                            rank=config["rank"], world_size=config["ranks"], timeout=TIMEOUT)
    cases, account = make_cases(config)
    send({"ready": True})
    for line in lines:
        message = json.loads(line)
        if "stop" in message:
            send({"account": account()})
            return
        prepare, run = cases[message["run"]]
        prepare()
        dist.barrier()
        total, parts = run()
        send({"ns": total, "parts": parts})


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    config = json.loads(sys.argv[1])
    channel = socket.socket(fileno=config["channel"])

    def send(message):
        channel.sendall((json.dumps(message) + "\n").encode())

    try:
        serve(config, send, channel.makefile())
    except Exception as e:  # of any kind: the bench shows it
        traceback.print_exc()
        send({"error": f"{type(e).__name__}: {e}"})
        sys.stderr.flush()
        os._exit(1)
    # An interpreter that ends in order would wait for its peers.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
