"""Question (b): what does each system do? Scripts, and how answers are read off.

Buffers are marked with other values on each rank beforehand: a forward that works
with rank 0's value on every rank came behind a sync.
"""
import re
from collections.abc import Callable
from dataclasses import dataclass

import inputs

RANKS = 2
SOON_S = 5


@dataclass
class Behaviour:
    """One row of the table."""

    id: str
    question: str
    expected: str  # of Lockstep
    ops: list
    read: Callable  # [Rank] -> the answer
    buffers: str = "marker"
    probe: str = "marker"
    model: str = "probe"
    world: int = RANKS
    may_hang: bool = False  # some system may: a run of its own, under short limits
    uneven: bool = False
    not_for: tuple = ()  # systems that have nothing of the kind

    @property
    def script(self):
        return {
            "name": self.id,
            "model": self.model,
            "buffers": self.buffers,
            "probe": self.probe,
            "uneven": self.uneven,
            "ops": self.ops,
        }


def op(what, **further):
    return {"do": what, **further}


def _failures(ranks):
    """What went wrong, by rank; empty: nothing did."""
    parts = []
    for number, rank in enumerate(ranks):
        if rank.outcome == "error":
            parts.append(f"rank {number}: error in {rank.notes[-1]['do']}")
        elif rank.outcome != "ok":
            parts.append(f"rank {number}: {rank.outcome}")
    return "; ".join(parts)


def _sync_of(ranks, index):
    """Whether the index-th forward came behind a sync, by its values and by counting."""
    notes = [rank.of("forward", "evaluate", "accumulate")[index] for rank in ranks]
    moved = all(note["seen"] == notes[0]["seen"] for note in notes)
    counted = [note["syncs"] for note in notes]
    if moved != all(counted):
        return f"unclear: values {'equal' if moved else 'differ'}, collectives {counted}"
    return f"sync ({counted[0]} broadcast{'s' * (counted[0] > 1)})" if moved else "no sync"


def sync_at(index):
    """Reads the index-th forward."""
    return lambda ranks: _failures(ranks) or _sync_of(ranks, index)


def sync_at_each(ranks):
    """Reads the first two forwards."""
    if failures := _failures(ranks):
        return failures
    return f"1st: {_sync_of(ranks, 0)}, 2nd: {_sync_of(ranks, 1)}"


def buffers_at_end(ranks):
    if failures := _failures(ranks):
        return failures
    last = [rank.notes[-1]["buffers"] for rank in ranks]
    differing = [name for name in last[0] if any(buffers[name] != last[0][name] for buffers in last)]
    return f"differ ({', '.join(differing)})" if differing else "equal"


def _mean_rows(rank, batch):
    """The mean over the rows of a rank's batch: the gradient per unit of the marker."""
    _, values = _INPUTS[f"probe/rank{rank}/x"]
    first = batch * inputs.ROWS * 3
    rows = [values[first + 3 * row : first + 3 * row + 3] for row in range(inputs.ROWS)]
    return [sum(row[i] for row in rows) / inputs.ROWS for i in range(3)]


_INPUTS = inputs.make_inputs(seed=1)


def _weights_after(gradients):
    return [
        weight - inputs.LR * sum(gradient[i] for gradient in gradients)
        for i, weight in enumerate(inputs.PROBE_WEIGHT)
    ]


def _scaled(vector, factor):
    return [value * factor for value in vector]


def _has_weights(ranks, expected):
    return all(
        abs(a - b) <= 1e-6
        for rank in ranks
        for a, b in zip(rank.notes[-1]["weights"]["weight"], expected, strict=True)
    )


def uneven_update(ranks):
    """Rank 1 has no data in the second step: whose average is taken?"""
    if failures := _failures(ranks):
        return failures
    first = [_scaled(_mean_rows(rank, 0), 0.5) for rank in range(RANKS)]
    alone = _mean_rows(0, 1)
    if _has_weights(ranks, _weights_after([*first, alone])):
        return "goes on; gradient averaged over samples"
    if _has_weights(ranks, _weights_after([*first, _scaled(alone, 1 / RANKS)])):
        return "goes on; gradient divided by all ranks"
    return "goes on; the update is neither average"


def two_forwards(ranks):
    """Is the gradient that of the values that the forwards worked with?"""
    if failures := _failures(ranks):
        return failures
    gradients = []
    for number, rank in enumerate(ranks):
        for batch, note in enumerate(rank.of("forward")):
            marker = sum(note["seen"]) / len(note["seen"])
            gradients.append(_scaled(_mean_rows(number, batch), marker / RANKS))
    right = _has_weights(ranks, _weights_after(gradients))
    return f"no error; gradient {'right' if right else 'WRONG'}"


def called_alone(caller):
    """The end of the one rank that called."""
    missing = 1 - caller

    def read(ranks):
        rank = ranks[caller]
        if rank.outcome == "hang":
            return "hang"
        if rank.outcome != "error":
            return f"no error ({rank.outcome})"
        error = rank.error
        if rank.notes[-1]["seconds"] > SOON_S:
            return "error, late"
        named = re.search(rf"\bw{missing}\b|\brank:?\s*{missing}\b", error) is not None
        return f"error, {'names' if named else 'does not name'} the missing rank"

    return read


def collectives_alone(ranks):
    """In a world of one. Lockstep's are counted by syncs, and by sockets to anyone."""
    if failures := _failures(ranks):
        return failures
    notes = ranks[0].of("forward", "backward", "step")
    counted = sum(note.get("collectives", note["syncs"]) for note in notes)
    sockets = max(note.get("sockets", 0) for note in notes)
    if counted == 0 and sockets > 0:
        return f"none counted, but {sockets} sockets are open"
    return f"{counted} collectives in a step" if counted else "none"


def followed(ranks):
    """Do all ranks work with rank 0's value?"""
    if failures := _failures(ranks):
        return failures
    return "followed" if _sync_of(ranks, -1).startswith("sync") else "not followed"


def _marker_of(rank):
    return "[" + ", ".join(f"{value:g}" for value in rank.notes[-1]["buffers"]["marker"]) + "]"


def differing_shapes(ranks):
    """On which ranks is it an error, and does that name the buffer?"""
    if all(rank.outcome == "ok" for rank in ranks):
        return f"silent: rank 0 holds {_marker_of(ranks[0])}, rank 1 {_marker_of(ranks[1])}"
    parts = []
    for number, rank in enumerate(ranks):
        named = ", names it" if rank.outcome == "error" and "marker" in rank.error else ""
        outcome = "no error" if rank.outcome == "ok" else rank.outcome
        parts.append(f"rank {number}: {outcome}{named}")
    return "; ".join(parts)


# Scripts whose broadcasts are counted start with two: in its second one DDP sends
# the order of its gradient buckets.
STEP = op("train_step")
FORWARD = op("forward")
MARK = op("mark")

BEHAVIOURS = [
    Behaviour(
        "first_forward", "first training forward", "sync (1 broadcast)",
        [MARK, FORWARD], sync_at(0)),
    Behaviour(
        "second_forward", "second forward in the same step", "no sync",
        [MARK, FORWARD, MARK, FORWARD], sync_at(1)),
    Behaviour(
        "no_sync", "forwards inside no_sync", "1st: no sync, 2nd: no sync",
        [MARK, op("accumulate"), MARK, op("accumulate")], sync_at_each),
    Behaviour(
        "after_no_sync", "first synced forward after no_sync", "sync (1 broadcast)",
        [STEP, STEP, op("accumulate"), MARK, FORWARD], sync_at(1)),
    Behaviour(
        "evaluation", "evaluation forward (eval + no_grad)", "no sync",
        [STEP, STEP, MARK, op("evaluate")], sync_at(0)),
    Behaviour(
        "after_evaluation", "first training forward after evaluation", "sync (1 broadcast)",
        [STEP, STEP, op("evaluate"), MARK, FORWARD], sync_at(1)),
    Behaviour(
        "after_last_forward", "BatchNorm buffers after the last step, across ranks",
        "differ (bn.running_mean, bn.running_var)",
        [STEP, STEP], buffers_at_end, model="batchnorm"),
    Behaviour(
        "uneven", "rank 1 has no data in the last step (DDP: join)",
        "goes on; gradient averaged over samples",
        [STEP, op("train_step", data_on=[0])], uneven_update, may_hang=True, uneven=True,
        not_for=("fairscale",)),
    Behaviour(
        "alone_root", "rank 0 takes a step alone, rank 1 is silent",
        "error, names the missing rank",
        [STEP, op("train_step", ranks=[0]), op("idle", ranks=[1], seconds=60)],
        called_alone(0), may_hang=True),
    Behaviour(
        "alone_other", "rank 1 takes a step alone, rank 0 is silent",
        "error, names the missing rank",
        [STEP, op("train_step", ranks=[1]), op("idle", ranks=[0], seconds=60)],
        called_alone(1), may_hang=True),
    Behaviour(
        "world_of_one", "collectives at world size 1", "none",
        [FORWARD, op("backward"), op("step")], collectives_alone, world=1),
    Behaviour(
        "reassigned", "buffer reassigned on rank 0 (buf = buf + 1)", "followed",
        [STEP, STEP, op("reassign", ranks=[0]), FORWARD], followed),
    Behaviour(
        "two_forwards", "two forwards, rank 0 reassigns between, one backward",
        "no error; gradient right",
        [FORWARD, op("reassign", ranks=[0]), FORWARD, op("backward"), op("step")],
        two_forwards, may_hang=True),
    Behaviour(
        "registered_later", "buffer registered after construction", "followed",
        [STEP, STEP, op("register"), FORWARD], followed, probe="late"),
    Behaviour(
        "registered_first", "the same, in a model that had no buffer", "followed",
        [STEP, STEP, op("register"), FORWARD], followed, buffers="none", probe="late"),
    Behaviour(
        "shape_at_construction", "buffer's shape differs among ranks at construction",
        "rank 0: error, names it; rank 1: error, names it",
        [FORWARD], differing_shapes, buffers="differing", may_hang=True),
    Behaviour(
        "shape_later", "buffer's shape differs among ranks later",
        "rank 0: error, names it; rank 1: error, names it",
        [STEP, op("reshape"), FORWARD, op("backward"), op("step")], differing_shapes,
        may_hang=True),
]
