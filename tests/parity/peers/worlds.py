"""Runs scripts on the ranks of a system, each rank a process on loopback."""
import contextlib
import itertools
import json
import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import inputs

HERE = Path(__file__).resolve().parent
POLL_S = 0.02
START_S = 180  # for processes to start and load their libraries
PATIENCE_S = 120  # for scripts that no system hangs in
# In scripts in which a system may hang: each wait's own limit, and how long all
# ranks may go on without progress.
OPERATION_TIMEOUT_S = 3
JOIN_TIMEOUT_S = 4
DEADLINE_S = 10


@dataclass
class Rank:
    """What came of one rank: its notes by operation, and how its process ended."""

    notes: list = field(default_factory=list)
    exit_code: int | None = None  # None: it was still running at the deadline
    log: str = ""

    def of(self, *operations):
        return [note for note in self.notes if note["do"] in operations]

    @property
    def error(self):
        return self.notes[-1]["error"] if self.notes else ""

    @property
    def outcome(self):
        """"ok", "error", "hang" or "crash"."""
        if self.error:
            return "error"
        if self.exit_code is None:
            return "hang"
        return "ok" if self.exit_code == 0 else "crash"


class World:
    """Starts ranks of "lockstep", "ddp" or "fairscale" and collects their notes."""

    def __init__(self, folder, programs, python, transport):
        self._folder = Path(folder)
        self._programs = Path(programs)
        self._python = python
        self._transport = transport
        self._runs = itertools.count()
        self._coordinator = None
        self._address = ""
        self._inputs = self._folder / "inputs"
        inputs.write_inputs(self._inputs, inputs.make_inputs(seed=1))
        self.versions = {}  # of torch, by system

    def __enter__(self):
        port_file = self._folder / "coordinator.address"
        with open(self._folder / "coordinator.log", "w") as log:
            self._coordinator = subprocess.Popen(
                [self._programs / "coordinator/server/coordinator", "--listen", "127.0.0.1:0",
                 "--store", ":memory:", "--port-file", port_file], stdout=log, stderr=log)
        end = time.monotonic() + START_S
        while not port_file.exists():
            if self._coordinator.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise RuntimeError("the coordinator did not start: "
                                   + (self._folder / "coordinator.log").read_text())
            time.sleep(POLL_S)
        self._address = port_file.read_text().strip()
        return self

    def __exit__(self, *_):
        self._coordinator.terminate()
        try:
            self._coordinator.wait(10)
        except subprocess.TimeoutExpired:
            self._coordinator.kill()
            self._coordinator.wait()

    def run(self, system, scripts, world, may_hang=False):
        """{script's name: [Rank]} of scripts that play one behind the other."""
        folder = self._folder / f"run-{next(self._runs)}"
        folder.mkdir()
        plans = [self._plan(system, scripts, world, rank, folder, may_hang) for rank in range(world)]
        if system == "lockstep" and world > 1:
            for script in plans[0]["scripts"]:
                self._create_job(script["job"], world)
        with contextlib.ExitStack() as stack:
            ranks = [self._start(system, plan, folder, stack) for plan in plans]
            outputs = [plan["output"] for plan in plans]
            idle = {rank for script in scripts for op in script["ops"] if op["do"] == "idle"
                    for rank in op["ranks"]}
            active = [process for rank, process in enumerate(ranks) if rank not in idle]
            self._await(active, outputs, DEADLINE_S if may_hang else PATIENCE_S)
            exits = [rank.poll() for rank in ranks]
        return self._collect(system, scripts, plans, exits, folder)

    def _plan(self, system, scripts, world, rank, folder, may_hang):
        return {
            "system": system,
            "rank": rank,
            "world": world,
            "scripts": [{**script, "job": f"{folder.name}-{number}"}
                        for number, script in enumerate(scripts)],
            "inputs": str(self._inputs),
            "output": str(folder / f"rank{rank}.jsonl"),
            "lr": inputs.LR,
            "rows": inputs.ROWS,
            "operation_timeout_s": OPERATION_TIMEOUT_S if may_hang else 60,
            "join_timeout_s": JOIN_TIMEOUT_S if may_hang else 60,
            "rendezvous": str(folder / "rendezvous"),
            "coordinator": self._address if world > 1 else "",
            "transport": self._transport,
        }

    def _create_job(self, job, world):
        workers = [word for rank in range(world) for word in ("--worker", f"w{rank}")]
        subprocess.run(
            [self._programs / "client/ctl/lockstepctl", "--coordinator", self._address, "job",
             "create", job, "--min-workers", str(world), *workers],
            check=True, stdout=subprocess.DEVNULL, timeout=START_S)

    def _start(self, system, plan, folder, stack):
        path = folder / f"rank{plan['rank']}.plan.json"
        path.write_text(json.dumps(plan))
        if system == "lockstep":
            command = [self._programs / "tests/parity/peers/lockstep_rank", path]
        else:
            command = [self._python, HERE / "peer_rank.py", path]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
                       "GLOO_SOCKET_IFNAME": "lo", "PYTHONDONTWRITEBYTECODE": "1"}
        log = stack.enter_context(open(folder / f"rank{plan['rank']}.log", "w"))
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        stack.callback(self._end, process)
        return process

    @staticmethod
    def _end(process):
        if process.poll() is None:
            process.kill()
        process.wait()

    @staticmethod
    def _await(ranks, outputs, patience_s):
        """Until all have ended, or none has written anything for `patience_s`."""
        end = time.monotonic() + START_S
        written = [0] * len(outputs)
        while any(rank.poll() is None for rank in ranks) and time.monotonic() < end:
            now = [os.path.getsize(path) if os.path.exists(path) else 0 for path in outputs]
            if now != written and all(now):
                end = time.monotonic() + patience_s
            written = now
            time.sleep(POLL_S)

    def _collect(self, system, scripts, plans, exits, folder):
        results = {script["name"]: [Rank() for _ in plans] for script in scripts}
        for number, plan in enumerate(plans):
            log = (folder / f"rank{number}.log").read_text(errors="replace")
            lines = []
            with contextlib.suppress(FileNotFoundError):
                for line in Path(plan["output"]).read_text().splitlines():
                    with contextlib.suppress(json.JSONDecodeError):  # killed while it wrote
                        lines.append(json.loads(line))
            if not lines:
                raise RuntimeError(f"rank {number} of {system} did not start:\n{log[-2000:]}")
            self.versions[system] = lines[0]["version"]
            for ranks in results.values():
                ranks[number].exit_code = exits[number]
                ranks[number].log = log
            for note in lines[1:]:
                results[note["script"]][number].notes.append(note)
        return results
