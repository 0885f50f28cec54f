"""The result of validations with several combinations of shapes together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kintune.core.model import spell_shapes
from kintune.core.stage_results import ValidationResult
from kintune.core.verdict import Verdict

__all__ = ["combined"]


def combined(shapes: Sequence[Mapping[str, Sequence[int]]], results: Sequence[ValidationResult]) -> ValidationResult:
    """The result of all combinations of shapes together; see `ValidationResult`."""
    each_ms, rounds_ms = [result.latency_ms for result in results], [result.rounds_ms for result in results]
    skipped: dict[str, str] = {}
    for each, result in zip(shapes, results, strict=True):
        for name, why in result.skipped.items():
            everywhere = all(other.skipped.get(name) == why for other in results)
            skipped.setdefault(name, why if everywhere else f"{why} (with {spell_shapes(each)})")
    absolute = [result.max_abs_error for result in results if result.max_abs_error is not None]
    relative = [result.max_rel_error for result in results if result.max_rel_error is not None]
    noise = [result.noise for result in results if result.noise is not None]
    norms = [result.norm_error for result in results if result.norm_error is not None]
    lost_ms = [result.lost_ms for result in results]
    kept = tuple(number for number, result in enumerate(results) if result.regions is None)
    return ValidationResult(
        latency_ms=_of_one_run_each(each_ms),
        rounds_ms=_of_one_run_each(rounds_ms),
        max_abs_error=max(absolute, default=None),
        max_rel_error=max(relative, default=None),
        verdict=Verdict.of_all(result.verdict for result in results),
        compared_with=tuple(dict.fromkeys(name for result in results for name in result.compared_with)),
        skipped=skipped,
        disagreement=next((result.disagreement for result in results if result.disagreement), ""),
        noise=max(noise, default=None),
        basis=next((result.basis for result in results if result.basis), ""),
        alone=tuple(dict.fromkeys(name for result in results for name in result.alone)),
        not_alone={name: why for result in results for name, why in result.not_alone.items()},
        wrong_alone={name: why for result in results for name, why in result.wrong_alone.items()},
        thread_counts=_thread_counts([result.thread_counts for result in results]),
        each=tuple(results),
        regions=None if kept else (),
        lost_ms=() if kept else tuple(map(sum, zip(*lost_ms, strict=False))),
        plans=None if len(kept) == len(results) else kept,
        norm_error=max(norms, default=None),
        score=min((result.score for result in results if result.score is not None), default=None),
        beside_ms=_sums([result.beside_ms for result in results]),
        calls=results[0].calls,
        notes=tuple(dict.fromkeys(note for result in results for note in result.notes)),
        not_compared=tuple(
            f"{line} (with {spell_shapes(of)})"
            for of, result in zip(shapes, results, strict=True)
            for line in result.not_compared
        ),
        bound=next((result.bound for result in results if result.bound), ""),
        doubtful=next((result.doubtful for result in results if result.doubtful), ""),
        once_ms=results[0].once_ms,
        wrong_on=next((result.wrong_on for result in results if result.wrong_on), ""),
        extremes=tuple(name for name in results[0].extremes if all(name in result.extremes for result in results)),
    )


def _of_one_run_each(each_ms: Sequence[Mapping[str, tuple[float, ...]]]) -> dict[str, tuple[float, ...]]:
    """Times of one run with each combination of shapes, by name, of those that ran with all."""
    ran = [name for name in each_ms[0] if all(name in times_ms for times_ms in each_ms)]
    return {name: tuple(map(sum, zip(*(times_ms[name] for times_ms in each_ms), strict=False))) for name in ran}


def _sums(each: Sequence[tuple[tuple[float, ...], ...]]) -> tuple[tuple[float, ...], ...]:
    """Times of one run with each combination of shapes; none where one of them was not timed."""
    if not all(each):
        return ()
    return tuple(tuple(map(sum, zip(*times, strict=False))) for times in zip(*each, strict=True))


def _thread_counts(each: Sequence[tuple[dict[int, int], ...]]) -> tuple[dict[int, int], ...]:
    """The thread counts of all plans; those of a combination of shapes are of its own plan alone."""
    if not any(each):
        return ()
    return tuple(counts[0] if counts else {} for counts in each)
