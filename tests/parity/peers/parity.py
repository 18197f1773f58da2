"""Question (a): do equal steps give equal running statistics and weights?"""
from dataclasses import dataclass

STEPS = 10
# Two ranks halve, which is exact: every rounding is the same. With three, DDP and
# fairscale divide each gradient before the sum and Lockstep divides the sum.
EXACT_RANKS = 2
RELATIVE = 1e-5
ABSOLUTE = 1e-6

SCRIPT = {
    "name": "parity",
    "model": "batchnorm",
    "probe": "bn.running_mean",
    "ops": [{"do": "train_step"}] * STEPS,
}


@dataclass
class Parity:
    """How far apart two systems' tensors are at the end, over all ranks."""

    system: str
    reference: str
    ranks: int
    largest: float  # difference
    where: str
    equal_bits: bool
    within: bool  # what is asked for

    @property
    def tolerance(self):
        if self.ranks == EXACT_RANKS:
            return "bit-equal"
        return f"{ABSOLUTE:g} + {RELATIVE:g} * |value|, num_batches_tracked exact"


def compare(system, ranks, reference, reference_ranks):
    """Compares what two systems made of SCRIPT, rank by rank."""
    parity = Parity(system, reference, len(ranks), 0.0, "", True, True)
    for number, (mine, theirs) in enumerate(zip(ranks, reference_ranks)):
        for rank in (mine, theirs):
            if len(rank.of("train_step")) != STEPS or rank.error:
                raise RuntimeError(f"rank {number} did not train to the end: {rank.error}\n{rank.log}")
        for kind in ("buffers", "weights"):
            a, b = mine.notes[-1][kind], theirs.notes[-1][kind]
            if a.keys() != b.keys():
                raise RuntimeError(f"{kind} are named {sorted(a)} and {sorted(b)}")
            for name in a:
                _compare_tensor(parity, f"rank {number}, {name}", a[name], b[name])
    return parity


def _compare_tensor(parity, where, mine, theirs):
    exact = len(mine) == 1 and where.endswith("num_batches_tracked")
    for a, b in zip(mine, theirs, strict=True):
        if a == b:
            continue
        parity.equal_bits = False
        difference = abs(a - b)
        if not difference <= parity.largest:  # NaN is the largest
            parity.largest, parity.where = difference, where
        close = difference <= ABSOLUTE + RELATIVE * abs(b)
        if exact or parity.ranks == EXACT_RANKS or not close:
            parity.within = False
