#!/usr/bin/env python3
"""Puts Lockstep beside torch DDP (broadcast_buffers=True) and fairscale's ShardedDataParallel.

(a) The same BatchNorm model, initial values and data give the same running
    statistics and weights after 10 steps, on each of 2 and of 3 ranks.
(b) A table of what each of the three does with buffers, as measured.

Every rank is a process of its own on loopback: Lockstep's with a real coordinator,
the peers' over Gloo. Exit codes: 0 all as expected; 1 (a) or Lockstep's column
is not, or a failure; 2 usage. What the peers do is shown and not judged.
"""
import argparse
import json
import sys
import tempfile
from pathlib import Path

import parity
import table
from behaviours import BEHAVIOURS
from environment import peers_python
from worlds import DEADLINE_S, OPERATION_TIMEOUT_S, World

ROOT = Path(__file__).resolve().parents[3]
SYSTEMS = {"lockstep": "Lockstep", "ddp": "torch DDP", "fairscale": "fairscale ShardedDDP"}
NOTE = (
    f"Where a system may hang, every wait of its own was limited to {OPERATION_TIMEOUT_S} s (the "
    f"peers' default is 30 minutes), and what made no progress for {DEADLINE_S} s counts as hanging."
)


def parse_flags():
    parser = argparse.ArgumentParser(
        prog="./lockstep test --peers", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the tables there too")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write all results there too")
    parser.add_argument("--transport", choices=["gloo", "shm"], default="gloo",
                        help="of Lockstep; default: gloo, as the peers")
    parser.add_argument("--only", metavar="ID", action="append", default=[],
                        help="only this row of (b), by its id in behaviours.py, or 'parity': (a) "
                             "(repeatable)")
    parser.add_argument("--programs", metavar="DIR", type=Path, default=ROOT / "bazel-bin",
                        help="where the build put Lockstep's programs; default: %(default)s")
    flags = parser.parse_args()
    unknown = set(flags.only) - {"parity"} - {behaviour.id for behaviour in BEHAVIOURS}
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    return flags


def measure_parity(world):
    """Question (a)."""
    results = []
    for ranks in (2, 3):
        trained = {}
        for system in SYSTEMS:
            print(f"(a) {SYSTEMS[system]}, {ranks} ranks", file=sys.stderr)
            trained[system] = world.run(system, [parity.SCRIPT], ranks)["parity"]
        for system, reference in (("lockstep", "ddp"), ("fairscale", "ddp")):
            results.append(
                parity.compare(system, trained[system], reference, trained[reference]))
    return results


def measure_behaviours(world, behaviours):
    """Question (b): {behaviour's id: {system: answer}}."""
    answers = {behaviour.id: {} for behaviour in behaviours}
    for system in SYSTEMS:
        asked = [behaviour for behaviour in behaviours if system not in behaviour.not_for]
        together = [b for b in asked if not b.may_hang]
        groups = [[b for b in together if b.world == world_size] for world_size in (1, 2)]
        groups += [[behaviour] for behaviour in asked if behaviour.may_hang]
        for group in filter(None, groups):
            print(f"(b) {SYSTEMS[system]}: {', '.join(b.id for b in group)}", file=sys.stderr)
            notes = world.run(system, [b.script for b in group], group[0].world, group[0].may_hang)
            for behaviour in group:
                answers[behaviour.id][system] = behaviour.read(notes[behaviour.id])
    return answers


def parity_row(result):
    return [
        f"{SYSTEMS[result.system]} and {SYSTEMS[result.reference]}",
        str(result.ranks),
        "bit-equal" if result.equal_bits else f"{result.largest:.2g} ({result.where})",
        result.tolerance,
        "yes" if result.within else "NO",
    ]


def main():
    flags = parse_flags()
    behaviours = [b for b in BEHAVIOURS if not flags.only or b.id in flags.only]
    python = peers_python()
    with tempfile.TemporaryDirectory(prefix="lockstep-peers-") as folder:
        with World(folder, flags.programs.resolve(), python, flags.transport) as world:
            asks_parity = not flags.only or "parity" in flags.only
            parities = measure_parity(world) if asks_parity else []
            answers = measure_behaviours(world, behaviours)
            versions = world.versions

    wrong = []
    if len({version.split("+")[0] for version in versions.values()}) > 1:
        wrong.append(f"the versions of torch differ: {versions}")
    for result in parities:
        if result.system == "lockstep" and not result.within:
            wrong.append(f"(a) {result.ranks} ranks: {result.where} is {result.largest:g} from "
                         f"{SYSTEMS[result.reference]}'s; allowed is {result.tolerance}")
    for behaviour in behaviours:
        answer = answers[behaviour.id]["lockstep"]
        if answer != behaviour.expected:
            wrong.append(f"(b) {behaviour.id}: Lockstep's answer is '{answer}', "
                         f"expected was '{behaviour.expected}'")

    parity_table = (["after 10 steps", "ranks", "largest difference", "asked for", "met"],
                    [parity_row(result) for result in parities])
    behaviour_table = (
        ["what happens at", *SYSTEMS.values()],
        [[b.question, *(answers[b.id].get(system, "n/a") for system in SYSTEMS)] for b in behaviours])
    tables = [each for each in (parity_table, behaviour_table) if each[1]]
    print("\n".join(table.as_text(*each) for each in tables))
    print(NOTE)
    if flags.markdown:
        text = "\n".join(table.as_markdown(*each) for each in tables)
        flags.markdown.write_text(f"{text}\n{NOTE}\n")
    if flags.json:
        report = {
            "versions": versions,
            "parity": [{**vars(result), "tolerance": result.tolerance} for result in parities],
            "behaviours": [{"id": b.id, "question": b.question, "expected": b.expected,
                            "answers": answers[b.id]} for b in behaviours],
            "wrong": wrong,
        }
        flags.json.write_text(json.dumps(report, indent=2) + "\n")
    for line in wrong:
        print(f"compare: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as e:
        print(f"compare: {e}", file=sys.stderr)
        sys.exit(1)
