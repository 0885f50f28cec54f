"""A Gantt chart of running stages: a row for each host and device, a colour for each kind of stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kintune.service.portal.markup import tag, text
from kintune.service.portal.style import STAGES
from kintune.service.web.live_state import LiveStage
from kintune.terminal.formatting import duration

__all__ = ["DESCRIBED", "Bar", "bars_of", "gantt"]

DESCRIBED = {
    "prepare": "read and lower the model",
    "draft": "compile the network to check it",
    "check": "compare the outputs with a reference",
    "baseline": "time other runtimes",
    "peak": "measure the machine's peak",
    "select": "choose programs",
    "build": "compile the programs",
    "profile": "time the programs",
    "update": "train the cost models",
    "confirm": "time the best programs again",
    "precision": "choose narrower parts",
    "error": "measure the error",
    "package": "link the result",
    "prove": "compare the result",
    "explain": "find the failing node",
    "other": "work of the service",
}
"""What each kind of stage does."""

_LANE = 18  # pixels
_MOST_LANES = 8
_FINEST = 0.002  # of the width, below which bars of one kind that follow one another become one
_TICKS = 6


class Bar(NamedTuple):
    """A stage, or several of one kind that follow one another; `begin` and `end` are shares of the width (0 to 1)."""

    kind: str
    job: str
    begin: float
    end: float
    stages: int = 1


def bars_of(stages: Sequence[LiveStage], now: float, seconds: float) -> dict[str, list[list[Bar]]]:
    """The bars of the last so many seconds, by host or device in lanes, so that none covers another.

    What began earlier is cut off; what runs ends now.
    """
    lanes: dict[str, list[list[Bar]]] = {}
    for stage in sorted(stages, key=lambda stage: stage.begin):
        begin = (max(stage.begin, now - seconds) - now) / seconds + 1.0
        end = (min(stage.end or now, now) - now) / seconds + 1.0
        if end <= begin:
            continue
        own = lanes.setdefault(stage.placement.device or stage.placement.host or "", [])
        bar = Bar(stage.kind if stage.kind in STAGES else "other", stage.job, begin, end)
        free = [lane for lane in own if lane[-1].end <= begin + 1e-9]
        if free:
            _append(max(free, key=lambda lane: lane[-1].end), bar)
        elif len(own) < _MOST_LANES:
            own.append([bar])
    return dict(sorted(lanes.items()))


def _append(lane: list[Bar], bar: Bar) -> None:
    last = lane[-1]
    if (last.kind, last.job) == (bar.kind, bar.job) and bar.begin - last.end < _FINEST:
        lane[-1] = last._replace(end=bar.end, stages=last.stages + bar.stages)
    else:
        lane.append(bar)


def gantt(stages: Sequence[LiveStage], now: float, seconds: float, named: Callable[[str], str]) -> str:
    """The chart with its legend; `named` says what a job is called. Empty where nothing ran."""
    lanes = bars_of(stages, now, seconds)
    if not lanes:
        return ""
    parts = []
    for resource, own in lanes.items():
        inside = (_bar(bar, number, seconds, named) for number, lane in enumerate(own) for bar in lane)
        chart = tag(
            "div", inside, class_="lane", style=f"height:{_LANE * len(own) + 4}px", role="img",
            aria_label=f"Stages on {resource} in the last {duration(seconds)}",
        )  # fmt: skip
        parts.append(tag("div", text(resource), class_="lane-name") + chart)
    ticks = [f"{duration(seconds * (_TICKS - 1 - tick) / (_TICKS - 1))} ago" for tick in range(_TICKS - 1)] + ["now"]
    axis = tag("div", (tag("span", words) for words in ticks), class_="ticks")
    chart = tag("div", [*parts, tag("div"), axis], class_="lanes")
    kinds = {bar.kind for own in lanes.values() for lane in own for bar in lane}
    return chart + _legend([kind for kind in STAGES if kind in kinds])


def _bar(bar: Bar, lane: int, seconds: float, named: Callable[[str], str]) -> str:
    took = duration((bar.end - bar.begin) * seconds)
    many = f", {bar.stages} stages" if bar.stages > 1 else ""
    return tag(
        "i",
        style=f"left:{100 * bar.begin:.2f}%;width:{100 * (bar.end - bar.begin):.2f}%;top:{_LANE * lane + 4}px;"
        f"background:var(--stage-{bar.kind})",
        title=f"{bar.kind} of {named(bar.job)}, {took}{many}",
    )


def _legend(kinds: Sequence[str]) -> str:
    items = (
        tag(
            "li",
            tag("i", style=f"background:var(--stage-{kind})")
            + tag("span", f"{kind} {tag('span', text(f'({DESCRIBED[kind]})'), class_='faint')}"),
        )
        for kind in kinds
    )
    return tag("ul", items, class_="legend", aria_label="Kinds of stages")
