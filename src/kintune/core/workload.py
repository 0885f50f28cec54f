"""One distinct subgraph of a network, and the description of it that family algorithms get."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kintune.core.candidate import FULL_PRECISION
from kintune.core.device import Peak
from kintune.core.kernel_call import readable

__all__ = ["Subgraph", "Subject", "by_combination"]


_WEIGHTS_LEFT = {"bf16": 0.5}
"""The share of weights in fp32 that is left where a program keeps them in a narrower precision."""


class Subgraph(msgspec.Struct, frozen=True):
    """One distinct subgraph of a network.

    `workload` is the digest of its program, `weight` how often it occurs, `flops` per run, `least_flops` those
    of the program with the least arithmetic (0: as many), `operator` its core operator (conv2d, depthwise, dense ...),
    `signature` the sequence of its operators; `tunable` is False for trivial ones, which take a rule's program and no
    budget.  `sketches` lists the digests of its sketches, `weight_bytes` is the size of its weights, `bytes` that of
    all its arguments.  `nodes` are the user's nodes that it may compute, as messages name them.  Where the model has
    several combinations of shapes, `each` says how often it occurs in the network of each of them; their sum is
    `weight`.  Two subgraphs with the same text `weights`, which is empty where there is one combination, read the same
    weights.
    `titles` has the places where it occurs, in the user's words ("layer3/conv2 + BN + Relu"), without what the names of
    all nodes begin with; it is empty where they are not known.  `narrowest` is the narrowest precision in which a
    program of it may multiply.
    """

    name: str
    workload: str
    weight: int
    flops: float
    operator: str
    signature: str
    tunable: bool
    sketches: tuple[str, ...] = ()
    weight_bytes: float = 0.0
    bytes: float = 0.0
    nodes: tuple[str, ...] = ()
    each: tuple[int, ...] = ()
    weights: str = ""
    least_flops: float = 0.0
    titles: tuple[str, ...] = ()
    narrowest: str = FULL_PRECISION

    @property
    def bound_flops(self) -> float:
        """FLOPs that every program of it computes at least."""
        return self.least_flops or self.flops

    def bound_us(self, peak: Peak) -> float:
        """Microseconds that every program of it takes at least on a device with this peak: the roofline."""
        nbytes = self.weight_bytes * _WEIGHTS_LEFT.get(self.narrowest, 1.0)
        return peak.least_us(self.bound_flops, nbytes, self.narrowest)

    @property
    def own_name(self) -> str:
        """Its name without the combination of shapes that it was met in, which may follow after "@"."""
        return self.name.partition("@")[0]

    @property
    def place(self) -> str:
        """The first place where it occurs, in the user's words; its operators where no place is known."""
        return self.titles[0] if self.titles else readable(self.name)

    @property
    def title(self) -> str:
        """The first place with the number of others; where none is known, its name and nodes that it may compute."""
        if self.titles:
            others = len(self.titles) - 1
            return f"{self.place} and {others} like it" if others else self.place
        if not self.nodes:
            return self.name
        more = f" and {len(self.nodes) - 3} more" if len(self.nodes) > 3 else ""
        return f"{self.name} ({', '.join(self.nodes[:3])}{more})"


class Subject(msgspec.Struct, frozen=True):
    """One distinct subgraph of a network, as the search and the family algorithms know it.

    `workload` is its digest, `weight` how often it occurs, `flops` what one run computes, `operator` its core operator,
    `signature` its operators in order.
    """

    workload: str
    weight: int
    flops: float
    operator: str
    signature: str


def by_combination(subgraphs: Sequence[Subgraph]) -> list[list[Subgraph]]:
    """The subgraphs of the network of each combination of shapes, at least one, with how often they occur in it."""
    count = max((len(subgraph.each) for subgraph in subgraphs), default=0)
    if count < 2:
        return [list(subgraphs)]
    return [
        [msgspec.structs.replace(subgraph, weight=subgraph.each[at]) for subgraph in subgraphs if subgraph.each[at]]
        for at in range(count)
    ]
