"""Which runtime is faster, by file and in all: ratios of latencies, their geometric mean and the worst."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from enum import Enum

import msgspec

__all__ = [
    "BEST",
    "Against",
    "ComparisonSummary",
    "ComparisonVerdict",
    "FileResult",
    "against",
    "compare_times",
    "summarise",
]

BEST = "the fastest other"
"""Instead of a runtime: of each file the fastest of those that ran."""

_NEAR = 0.02  # of the other's latency ...
_NEAR_MS = 5e-3  # ... or so much is no difference


class ComparisonVerdict(str, Enum):
    """How Kintune's result stands to another runtime.

    LEVEL is within 2 % of its latency, and a loss of up to 5 us; a gain of more than 2 % counts, however short.
    """

    WON = "won"
    LEVEL = "level"
    LOST = "lost"


class FileResult(msgspec.Struct, frozen=True):
    """One file: medians in milliseconds by runtime, whether it compiled whole, and how it failed if it did.

    `kintune_ms` is None where Kintune has no result.  `ratios` has Kintune's latency over that of a runtime, by its
    name, taken round by round (`paired_ratio`); where it has none, the ratio is that of the medians.
    """

    name: str
    kintune_ms: float | None
    others_ms: dict[str, float]
    whole: bool = False
    failure: str = ""
    ratios: dict[str, float] = {}

    def ratio(self, other: str) -> float | None:
        """The latency of Kintune over that of `other`, which may be `BEST`; None where one is missing."""
        if other == BEST:
            other = min(self.others_ms, key=self.others_ms.__getitem__, default="")
        time = self.others_ms.get(other)
        if self.kintune_ms is None or time is None:
            return None
        return self.ratios.get(other, self.kintune_ms / time)

    def other_ms(self, other: str) -> float | None:
        """The latency of `other`, which may be `BEST`."""
        return min(self.others_ms.values(), default=None) if other == BEST else self.others_ms.get(other)

    def verdict(self, other: str) -> ComparisonVerdict | None:
        """How it stands to `other`, which may be `BEST`; None where a latency is missing."""
        time, ratio = self.other_ms(other), self.ratio(other)
        return None if ratio is None or time is None else compare_times(ratio * time, time)


class Against(msgspec.Struct, frozen=True):
    """All files that both Kintune and `other` ran.

    `mean` is the geometric mean of the ratios, `mean_whole` that of the `whole` files that compiled whole; `worst` is
    the largest ratio and `worst_file` whose it is.  `won`, `level` and `lost` are names of files, those of `lost` with
    the largest ratio first.
    """

    other: str
    files: int
    mean: float
    whole: int
    mean_whole: float | None
    worst: float
    worst_file: str
    won: tuple[str, ...]
    level: tuple[str, ...]
    lost: tuple[str, ...]


class ComparisonSummary(msgspec.Struct, frozen=True):
    """A comparison: how many files there are, how many have a result, how many compiled whole, and which failed.

    `failed` has the reason by file, in their order.
    """

    files: int
    results: int
    whole: int
    failed: dict[str, str]
    against: tuple[Against, ...]


def compare_times(ours_ms: float, other_ms: float) -> ComparisonVerdict:
    """How a latency stands to another one, both in milliseconds."""
    if ours_ms < (1 - _NEAR) * other_ms:
        return ComparisonVerdict.WON
    return ComparisonVerdict.LOST if ours_ms - other_ms > max(_NEAR * other_ms, _NEAR_MS) else ComparisonVerdict.LEVEL


def against(results: Sequence[FileResult], other: str) -> Against | None:
    """The files that both ran; None if there are none."""
    ratios = {result.name: ratio for result in results if (ratio := result.ratio(other)) is not None}
    if not ratios:
        return None
    whole = [ratios[result.name] for result in results if result.name in ratios and result.whole]
    worst = max(ratios, key=ratios.__getitem__)
    named: Mapping[ComparisonVerdict, list[str]] = {verdict: [] for verdict in ComparisonVerdict}
    for result in sorted(results, key=lambda result: -ratios.get(result.name, 0.0)):
        if (verdict := result.verdict(other)) is not None:
            named[verdict].append(result.name)
    return Against(
        other,
        len(ratios),
        _geometric_mean(list(ratios.values())),
        len(whole),
        _geometric_mean(whole) if whole else None,
        ratios[worst],
        worst,
        tuple(reversed(named[ComparisonVerdict.WON])),
        tuple(named[ComparisonVerdict.LEVEL]),
        tuple(named[ComparisonVerdict.LOST]),
    )


def summarise(results: Sequence[FileResult]) -> ComparisonSummary:
    """All files together, beside each runtime that ran one, and beside the fastest where there are several."""
    others = list(dict.fromkeys(other for result in results for other in result.others_ms))
    found = [against(results, other) for other in (*others, *([BEST] if len(others) > 1 else []))]
    return ComparisonSummary(
        files=len(results),
        results=sum(result.kintune_ms is not None for result in results),
        whole=sum(result.whole for result in results),
        failed={result.name: result.failure for result in results if result.failure},
        against=tuple(each for each in found if each is not None),
    )


def _geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))
