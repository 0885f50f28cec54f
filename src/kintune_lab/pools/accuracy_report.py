"""The report on model accuracy: curves over samples, and paired differences from one model for all."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from kintune_lab.experiment.section import Grid, LineChart, ReportSection, Series
from kintune_lab.experiment.tables import Row, Tables, by, slug, varying, words

__all__ = ["PairedInterval", "accuracy_sections", "bootstrap", "paired_differences"]


_MONOLITHIC = "none"
_MEASURES = {
    "pair_accuracy": "pairs ranked right, %",
    "recall_1": "fastest ranked first, %",
    "recall_8": "of the fastest 8 in the first 8, %",
    "best_of_8": "speed of the best of the first 8, %",
}

_MODELS = "models"  # the column that says which models a row is of, for people


def accuracy_sections(tables: Tables) -> list[ReportSection]:
    """One section for each network and way of splitting, and for each size of its pool where there are several."""
    rows = _named(tables.get("accuracy", ()))
    told = ("model", "split", *varying(rows, ("samples", "threads")))
    return [_section(words(told, key), part) for key, part in by(rows, *told).items()]


def paired_differences(rows: Sequence[Row], measure: str) -> dict[tuple[str, int], PairedInterval]:
    """By `models` and number of samples: how much higher `measure` is than the plain monolithic model's of that size.

    Compared split by split and subgraph by subgraph, so that what makes one of them hard to rank drops out.
    """
    base = {_place(row): _number(row, measure) for row in rows if _is_plain(row)}
    found: dict[tuple[str, int], PairedInterval] = {}
    for (models, samples), part in by(rows, _MODELS, "train_samples").items():
        if _is_plain(part[0]):
            continue
        gaps: dict[str, list[float]] = {}
        for row in part:
            gap = _number(row, measure) - base.get(_place(row), math.nan)
            gaps.setdefault(f"{row['cell']} {row['workload']}", []).append(gap)
        interval = bootstrap(gaps)
        if interval is not None and isinstance(samples, int):
            found[str(models), samples] = interval
    return found


def _named(rows: Sequence[Row]) -> list[Row]:
    """Rows that say of which models they are: the grouping, whether rooted, and the size where that varies."""
    sizes = bool(varying(rows, ("rounds", "depth")))

    def name(row: Row) -> str:
        rooted = ", rooted" if row.get("rooted") else ""
        return f"{row['families']} {row['rounds']} x {row['depth']}{rooted}" if sizes else f"{row['families']}{rooted}"

    return [{**row, _MODELS: name(row)} for row in rows]


def _section(title: str, rows: Sequence[Row]) -> ReportSection:
    most = max(int(_number(row, "train_samples")) for row in rows)
    differences = {measure: paired_differences(rows, measure) for measure in _MEASURES}
    tried = max(int(_number(row, "test_samples")) for row in rows)
    subgraphs, splits = len(by(rows, "workload")), len(by(rows, "cell", "split_number"))
    text = (
        f"{subgraphs} subgraphs, {splits} splits; models learn from up to {most} samples of each subgraph and rank "
        f"{tried} others. A pair counts when its times differ by more than 2 %; a failed candidate is slower than all "
        "that ran.",
        "Figures are means over subgraphs, medians over splits with the smallest and the largest. Differences are "
        "paired by split and subgraph; their 95 % intervals come from redrawing subgraphs and splits.",
    )
    stem = slug(title)
    return ReportSection(
        title=f"Model accuracy: {title}",
        text=text,
        grids=(_summary(rows, most), _gaps(differences), _by_subgraph(rows, most)),
        charts=(
            _curve(rows, "pair_accuracy", f"accuracy-pairs-{stem}", f"Pairs ranked right, {title}"),
            _curve(rows, "recall_8", f"accuracy-recall-{stem}", f"The fastest 8 found, {title}"),
            _gap_chart(differences["pair_accuracy"], f"accuracy-gain-{stem}", f"Gain over one model for all, {title}"),
        ),
    )


def _curve(rows: Sequence[Row], measure: str, name: str, title: str) -> LineChart:
    series = []
    for (models,), part in by(rows, _MODELS).items():
        found = {
            int(_number(at[0], "train_samples")): _over_splits(at, measure) for at in by(part, "train_samples").values()
        }
        points = [(size, values) for size, values in sorted(found.items()) if values]
        if points:
            series.append(
                Series(
                    label=str(models),
                    x=tuple(float(size) for size, _ in points),
                    y=tuple(statistics.median(values) for _, values in points),
                    low=tuple(min(values) for _, values in points),
                    high=tuple(max(values) for _, values in points),
                    role="reference" if _is_plain(part[0]) else "",
                )
            )
    return _over_samples(name, title, _MEASURES[measure], series)


def _gap_chart(differences: Mapping[tuple[str, int], PairedInterval], name: str, title: str) -> LineChart:
    by_models: dict[str, list[tuple[int, PairedInterval]]] = {}
    for (models, size), gap in differences.items():
        by_models.setdefault(models, []).append((size, gap))
    series = [
        Series(
            label=models,
            x=tuple(float(size) for size, _ in sorted(gaps)),
            y=tuple(100 * gap.mean for _, gap in sorted(gaps)),
            low=tuple(100 * gap.low for _, gap in sorted(gaps)),
            high=tuple(100 * gap.high for _, gap in sorted(gaps)),
        )
        for models, gaps in by_models.items()
    ]
    label = "pairs ranked right, points more"
    return msgspec.structs.replace(_over_samples(name, title, label, series), levels={"one model for all": 0.0})


def _over_samples(name: str, title: str, label: str, series: Sequence[Series]) -> LineChart:
    x_label = "samples of each subgraph learnt from"
    return LineChart(name, title, x_label, label, tuple(series), log_x=True, stepped=False)


def _summary(rows: Sequence[Row], most: int) -> Grid:
    at_most = [row for row in rows if row["train_samples"] == most]
    lines = [
        (str(models), str(_models_of(part)), *(_spread(_over_splits(part, measure)) for measure in _MEASURES))
        for (models,), part in by(at_most, _MODELS).items()
    ]
    return Grid((f"families, {most} samples", "models", *_MEASURES.values()), tuple(lines))


def _models_of(rows: Sequence[Row]) -> int:
    """How many models there are, at most, in one split."""
    return max(len(by(part, "family")) for part in by(rows, "cell", "split_number").values())


def _gaps(differences: Mapping[str, Mapping[tuple[str, int], PairedInterval]]) -> Grid:
    shown = {measure: title for measure, title in _MEASURES.items() if measure != "recall_1"}
    lines = []
    for models, size in differences["pair_accuracy"]:
        gaps = [differences[measure].get((models, size)) for measure in shown]
        lines.append((models, str(size), *("" if gap is None else _signed(gap) for gap in gaps)))
    header = ("against one model for all", "samples", *(title.replace("%", "points", 1) for title in shown.values()))
    return Grid(header, tuple(lines))


def _by_subgraph(rows: Sequence[Row], most: int) -> Grid:
    at_most = [row for row in rows if row["train_samples"] == most]
    names = [str(models) for (models,) in by(at_most, _MODELS)]
    lines = []
    for (workload, operator), part in by(at_most, "workload", "operator").items():
        found = by(part, _MODELS)
        figures = [_median(_numbers(found.get((name,), ()), "pair_accuracy")) for name in names]
        lines.append((f"{operator} {str(workload)[:6]}", *figures))
    return Grid(("pairs ranked right, %", *names), tuple(lines))


def _over_splits(rows: Sequence[Row], measure: str) -> list[float]:
    """The mean over subgraphs in per cent, one entry a split; splits without any are left out."""
    parts = [_numbers(part, measure) for part in by(rows, "cell", "split_number").values()]
    return [statistics.fmean(values) for values in parts if values]


def _numbers(rows: Sequence[Row], measure: str) -> list[float]:
    """Returns the values of a column in per cent, without those that are missing."""
    return [100 * value for row in rows if not math.isnan(value := _number(row, measure))]


def _number(row: Row, column: str) -> float:
    value = row.get(column)
    return float(value) if isinstance(value, (int, float)) else math.nan


def _is_plain(row: Row) -> bool:
    """Whether it is of one model for all, grown from nothing: what the others are compared with."""
    return row["families"] == _MONOLITHIC and not row.get("rooted")


def _place(row: Row) -> tuple[object, ...]:
    return tuple(row[column] for column in ("cell", "split_number", "train_samples", "workload", "rounds", "depth"))


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f}" if values else ""


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})" if values else ""


def _signed(gap: PairedInterval) -> str:
    return f"{100 * gap.mean:+.1f} ({100 * gap.low:+.1f} to {100 * gap.high:+.1f})"


_DRAWS = 2000


class PairedInterval(msgspec.Struct, frozen=True):
    """A mean, and the 95 % interval around it."""

    mean: float
    low: float
    high: float


def bootstrap(groups: Mapping[str, Sequence[float]], *, seed: int = 0) -> PairedInterval | None:
    """The mean over groups of each group's mean, with the interval that redrawing groups and their values gives.

    Values of one group are not independent of each other, so whole groups are redrawn first, then values within them;
    with few groups the interval is wide, as it should be.  NaN counts as missing; None when nothing is left.
    """
    arrays = [np.array([v for v in values if not math.isnan(v)]) for values in groups.values()]
    arrays = [array for array in arrays if array.size]
    if not arrays:
        return None
    rng = np.random.default_rng(seed)
    drawn = np.empty((_DRAWS, len(arrays)))
    for slot in range(len(arrays)):
        chosen = rng.integers(len(arrays), size=_DRAWS)
        for index, array in enumerate(arrays):
            draws = np.flatnonzero(chosen == index)
            drawn[draws, slot] = array[rng.integers(array.size, size=(draws.size, array.size))].mean(axis=1)
    means = drawn.mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return PairedInterval(float(np.mean([array.mean() for array in arrays])), float(low), float(high))
