"""Gantt charts of stages and of jobs: a row for each host and device, a colour for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kintune.service.portal.markup import tag, text
from kintune.service.web.live_state import LiveStage
from kintune.terminal.formatting import duration

__all__ = ["JOBS", "STAGE_KINDS", "StageBar", "StageKind", "bars_of", "gantt"]


class StageKind(NamedTuple):
    """A kind of bars: what it means, and its colour in CSS."""

    words: str
    colour: str


_WORDS = {
    "prepare": "reading the model",
    "draft": "compiling the network",
    "check": "comparing outputs",
    "baseline": "timing other runtimes",
    "peak": "measuring the peak of the device",
    "select": "choosing programs",
    "build": "compiling programs",
    "profile": "timing programs",
    "update": "training cost models",
    "confirm": "timing the best programs again",
    "precision": "choosing precisions",
    "error": "measuring errors",
    "package": "linking the result",
    "prove": "checking the result",
    "explain": "finding the failing node",
    "other": "work of the service",
}

STAGE_KINDS = {kind: StageKind(words, f"var(--stage-{kind})") for kind, words in _WORDS.items()}
"""The kinds of stages."""

JOBS = {
    "under way": StageKind("under way", "var(--accent)"),
    "done": StageKind("done", "var(--good)"),
    "failed": StageKind("failed", "var(--bad)"),
    "cancelled": StageKind("cancelled", "var(--faint)"),
}
"""Jobs, by how they ended."""

_OTHER = "other"
_LANE = 22  # pixels
_MOST_LANES = 8
_STEPS_S = (15.0, 60.0, 900.0, 5400.0, 6 * 3600.0)  # between the marks of time
_FINEST = 0.002  # of the width, below which bars of one kind that follow one another become one


class StageBar(NamedTuple):
    """A stage, or several of one kind that follow one another; `begin` and `end` are shares of the width (0 to 1)."""

    kind: str
    job: str
    begin: float
    end: float
    stages: int = 1


def bars_of(stages: Sequence[LiveStage], now: float, seconds: float) -> dict[str, list[list[StageBar]]]:
    """The bars of the last so many seconds, by host or device in lanes, so that none covers another.

    What began earlier is cut off; what runs ends now.
    """
    lanes: dict[str, list[list[StageBar]]] = {}
    for stage in sorted(stages, key=lambda stage: stage.begin):
        begin = (max(stage.begin, now - seconds) - now) / seconds + 1.0
        end = (min(stage.end or now, now) - now) / seconds + 1.0
        if end <= begin:
            continue
        own = lanes.setdefault(stage.placement.device or stage.placement.host or "", [])
        bar = StageBar(stage.kind, stage.job, begin, end)
        free = [lane for lane in own if lane[-1].end <= begin + 1e-9]
        if free:
            _append(max(free, key=lambda lane: lane[-1].end), bar)
        elif len(own) < _MOST_LANES:
            own.append([bar])
    return dict(sorted(lanes.items()))


def _append(lane: list[StageBar], bar: StageBar) -> None:
    last = lane[-1]
    if (last.kind, last.job) == (bar.kind, bar.job) and bar.begin - last.end < _FINEST:
        lane[-1] = last._replace(end=bar.end, stages=last.stages + bar.stages)
    else:
        lane.append(bar)


def gantt(
    stages: Sequence[LiveStage],
    now: float,
    seconds: float,
    named: Callable[[str], str],
    kinds: Mapping[str, StageKind] = STAGE_KINDS,
) -> str:
    """The chart with its legend; `named` says what a job is called. Empty where nothing ran."""
    lanes = bars_of([each if each.kind in kinds else each._replace(kind=_OTHER) for each in stages], now, seconds)
    if not lanes:
        return ""
    parts = []
    for resource, own in lanes.items():
        inside = (_bar(bar, number, seconds, named, kinds) for number, lane in enumerate(own) for bar in lane)
        chart = tag(
            "div", inside, class_="lane", style=f"height:{_LANE * len(own) + 4}px", role="img",
            aria_label=f"What ran on {resource} in the last {duration(seconds)}",
        )  # fmt: skip
        parts.append(tag("div", text(resource), class_="lane-name") + chart)
    step = next(step for step in _STEPS_S if seconds <= 5 * step)
    ticks = [duration(step * left) for left in range(round(seconds / step), 0, -1)] + ["now"]
    axis = tag("div", (tag("span", words) for words in ticks), class_="ticks")
    seen = {bar.kind for own in lanes.values() for lane in own for bar in lane}
    legend = (
        tag("li", tag("i", style=f"background:{kind.colour}") + text(kind.words))
        for name, kind in kinds.items()
        if name in seen
    )
    chart = tag("div", [*parts, tag("div"), axis], class_="lanes")
    return chart + tag("ul", legend, class_="legend", aria_label="Legend")


def _bar(bar: StageBar, lane: int, seconds: float, named: Callable[[str], str], kinds: Mapping[str, StageKind]) -> str:
    took = duration((bar.end - bar.begin) * seconds)
    many = f", {bar.stages} stages" if bar.stages > 1 else ""
    return tag(
        "i",
        style=f"left:min({100 * bar.begin:.2f}%,100% - 4px);width:{100 * (bar.end - bar.begin):.2f}%;"
        f"top:{_LANE * lane + 4}px;background:{kinds[bar.kind].colour}",
        title=f"{named(bar.job)}: {kinds[bar.kind].words}, {took}{many}",
    )
