"""One rank of the comparison, through a peer: torch DDP or fairscale.

usage: peer_rank.py PLAN

PLAN is a JSON file by worlds.py. What is written is what lockstep_rank.cc writes:
a line of JSON for each operation of a script. Runs in the peers' environment.
"""
import datetime
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from fairscale.nn.data_parallel import ShardedDataParallel
from fairscale.optim.oss import OSS
from torch.nn.parallel import DistributedDataParallel

from peer_models import Task


class Ddp:
    """torch's DistributedDataParallel with a replicated SGD."""

    def __init__(self, module, lr):
        self.model = DistributedDataParallel(module, broadcast_buffers=True)
        self.optimizer = torch.optim.SGD(module.parameters(), lr=lr)

    def joined(self):
        """Around the steps of ranks with uneven data."""
        return self.model.join()


class Fairscale:
    """fairscale's ShardedDataParallel with its sharded SGD."""

    def __init__(self, module, lr):
        self.optimizer = OSS(module.parameters(), optim=torch.optim.SGD, lr=lr)
        self.model = ShardedDataParallel(module, self.optimizer, broadcast_buffers=True)

    def joined(self):
        """It has nothing for uneven data; scripts do not ask it to."""
        raise NotImplementedError


SYSTEMS = {"ddp": Ddp, "fairscale": Fairscale}


def profiled():
    """Records what this thread and autograd's do."""
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])


def count_collectives(profile):
    """Collectives among the operations that a profiler saw, also those of C++."""
    names = [event.name for event in profile.events() if event.name.startswith("c10d::")]
    return {
        "syncs": sum("broadcast" in name for name in names),
        "collectives": len(names),
    }


def values_of(tensor):
    return [float(value) for value in tensor.detach().double().flatten().tolist()]


class Player:
    """Plays one script as one rank."""

    def __init__(self, plan, script, out):
        self.plan, self.script, self.out = plan, script, out
        self.rank = plan["rank"]
        self.task = Task(script, plan["inputs"], self.rank)
        self.peer = None
        self.batch = 0
        self.pending = None  # the loss of the forwards since the last backward

    def play(self):
        if not self.note("construct", self.construct):
            return
        ops = [op for op in self.script["ops"] if self.rank in op.get("ranks", [self.rank])]
        if not self.script.get("uneven"):
            for op in ops:
                if not self.note(op["do"], lambda op=op: getattr(self, op["do"])(op)):
                    return
            return
        self.note("joined", lambda: self.play_joined(ops))

    def play_joined(self, ops):
        """A rank whose data has ended goes to the end of the context at once."""
        with self.peer.joined():
            for op in ops:
                if self.rank in op.get("data_on", [self.rank]):
                    getattr(self, op["do"])(op)

    def construct(self):
        self.peer = SYSTEMS[self.plan["system"]](self.task.module, self.plan["lr"])

    def forward(self, op):
        loss = self.task.loss(self.peer.model, self.batch)
        self.batch += 1
        self.pending = loss if self.pending is None else self.pending + loss

    def backward(self, op):
        loss, self.pending = self.pending, None
        loss.backward()

    def step(self, op):
        self.peer.optimizer.step()
        self.peer.model.zero_grad()

    def train_step(self, op):
        self.forward(op)
        self.backward(op)
        self.step(op)

    def accumulate(self, op):
        with self.peer.model.no_sync():
            self.forward(op)
            self.backward(op)

    def evaluate(self, op):
        with torch.no_grad():
            self.peer.model.eval()
            self.task.loss(self.peer.model, self.batch)
            self.batch += 1
            self.peer.model.train()

    def marks(self, elements):
        return torch.full((elements,), 10.0 * (self.rank + 1))

    def mark(self, op):
        getattr(self.task.module, self.script["probe"]).copy_(self.marks(2))

    def reassign(self, op):
        name = self.script["probe"]
        setattr(self.task.module, name, getattr(self.task.module, name) + 1)

    def reshape(self, op):
        setattr(self.task.module, self.script["probe"], self.marks(2 + self.rank))

    def register(self, op):
        self.task.module.register_buffer(self.script["probe"], self.marks(2))

    def idle(self, op):
        time.sleep(op["seconds"])

    def look(self, op):
        pass

    def note(self, what, operation):
        """Does one operation and writes down what came of it; whether it went well."""
        error = ""
        start = time.monotonic()
        with profiled() as profile:
            try:
                operation()
            except Exception as e:  # of any kind: it is what is measured
                error = f"{type(e).__name__}: {e}"
            seconds = time.monotonic() - start
        module = self.task.module
        seen = getattr(module, "seen", None)
        line = {
            "script": self.script["name"],
            "do": what,
            "error": error,
            "seconds": seconds,
            "buffers": {name: values_of(buffer) for name, buffer in module.named_buffers()},
            "weights": {name: values_of(weight) for name, weight in module.named_parameters()},
            "seen": None if seen is None else values_of(seen),
            **count_collectives(profile),
        }
        print(json.dumps(line), file=self.out, flush=True)
        return not error


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) == 2 else 2
    with open(sys.argv[1]) as file:
        plan = json.load(file)
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{plan['rendezvous']}",
        rank=plan["rank"],
        world_size=plan["world"],
        timeout=datetime.timedelta(seconds=plan["operation_timeout_s"]),
    )
    with profiled():  # the first takes seconds
        pass
    with open(plan["output"], "w") as out:
        print(json.dumps({"ready": True, "version": torch.__version__}), file=out, flush=True)
        for script in plan["scripts"]:
            Player(plan, script, out).play()
    # An interpreter that ends in order would wait for peers that will not come.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
