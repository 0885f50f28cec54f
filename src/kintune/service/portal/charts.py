"""What charts show, as options of ECharts; pure, so that it can be tested without a browser."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kintune.core.report import SubgraphReport
from kintune.service.web.live_state import LiveStage

__all__ = ["curve_options", "family_options", "gantt_options"]
_GREY = "#888888"
_FEW = 20  # points, of which each is shown
_WIDE = 20.0  # largest over smallest, from which on a logarithmic axis tells more
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#8c6bb1", "#b8860b", "#c2578c", "#2c9fc9", "#7a5230")
_KINDS = (
    "prepare", "draft", "check", "baseline", "peak", "select", "build", "profile", "update", "confirm",
    "precision", "error", "package", "prove",
)  # fmt: skip


def _axis(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "nameLocation": "middle", "nameGap": 30, "axisLabel": {"color": _GREY}, **more}


def curve_options(curves: Mapping[str, Sequence[tuple[float, float]]], lines: Mapping[str, float]) -> dict[str, Any]:
    """Estimated latency in ms over seconds, a curve a job; `lines` are latencies to compare with, by name.

    The axis begins at 0, so that heights can be compared, unless the latencies are too far apart to be told apart so.
    """
    latencies = [latency for curve in curves.values() for _, latency in curve] + list(lines.values())
    is_wide = bool(latencies) and max(latencies) > _WIDE * min(latencies)
    series: list[dict[str, Any]] = [
        {
            "name": name,
            "type": "line",
            "step": "end",
            "showSymbol": len(curve) < _FEW,
            "color": _COLORS[number % len(_COLORS)],
            "data": [list(point) for point in curve],
        }
        for number, (name, curve) in enumerate(curves.items())
    ]
    marks = [{"yAxis": value, "name": name, "label": {"formatter": name}} for name, value in lines.items()]
    if series and marks:
        series[0]["markLine"] = {"symbol": "none", "lineStyle": {"color": _GREY, "type": "dashed"}, "data": marks}
    return {
        "animation": False,
        "grid": {"left": 70, "right": 90, "top": 30, "bottom": 50},
        "tooltip": {"trigger": "axis"},
        "legend": {"show": len(series) > 1, "textStyle": {"color": _GREY}},
        "xAxis": _axis("seconds", type="value"),
        "yAxis": _axis("ms", type="log" if is_wide else "value", nameGap=50, **_extent(curves, lines, is_wide=is_wide)),
        "series": series,
    }


def _extent(
    curves: Mapping[str, Sequence[tuple[float, float]]], lines: Mapping[str, float], *, is_wide: bool
) -> dict[str, float]:
    """The ends of an axis of latencies where a line lies beyond the curves, since the chart looks at curves alone."""
    latencies = [latency for curve in curves.values() for _, latency in curve]
    if not latencies or not lines:
        return {}
    found = {}
    if max(lines.values()) > max(latencies):
        found["max"] = _rounded(1.1 * max(lines.values()), up=True)
    if is_wide and min(lines.values()) < min(latencies):
        found["min"] = _rounded(0.9 * min(lines.values()), up=False)
    return found


def _rounded(value: float, *, up: bool) -> float:
    """A value with two significant digits, no less (or no more) than this one."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{(math.ceil if up else math.floor)(value / step) * step:.2g}")


def family_options(subgraphs: Sequence[SubgraphReport]) -> dict[str, Any]:
    """A map of the network: a box a family, in it a box a subgraph, as large as the time that it takes."""
    families: dict[str, list[dict[str, Any]]] = {}
    for subgraph in subgraphs:
        if subgraph.best_us is not None:
            box = {"name": subgraph.name, "value": round(subgraph.weight * subgraph.best_us, 1)}
            families.setdefault(subgraph.family or "not searched", []).append(box)
    data = [
        {"name": family, "children": boxes, "itemStyle": {"color": _COLORS[number % len(_COLORS)]}}
        for number, (family, boxes) in enumerate(sorted(families.items()))
    ]
    tree = {
        "type": "treemap",
        "data": data,
        "roam": False,
        "nodeClick": False,
        "breadcrumb": {"show": False},
        "upperLabel": {"show": True, "height": 20, "color": "#ffffff"},
        "levels": [{"upperLabel": {"show": False}}, {"itemStyle": {"gapWidth": 2}}, {"itemStyle": {"gapWidth": 1}}],
    }
    return {"animation": False, "tooltip": {"formatter": "{b}: {c} us"}, "series": [tree]}


def gantt_options(stages: Sequence[LiveStage], now: float, seconds: float) -> dict[str, Any]:
    """Who ran where in the last so many seconds: a row a resource, a colour a kind of stage."""
    rows: list[str] = []
    data: dict[str, list[dict[str, Any]]] = {}
    for stage in stages:
        where = stage.placement.device or stage.placement.host or ""
        if where not in rows:
            rows.append(where)
        begin = max(stage.begin, now - seconds) - now
        end = min(stage.end or now, now) - now
        if end > begin:
            said = f"{stage.kind} of {stage.job or 'another job'}"
            data.setdefault(stage.kind, []).append({"name": said, "value": [where, begin, end]})
    kinds = sorted(data, key=lambda kind: _KINDS.index(kind) if kind in _KINDS else len(_KINDS))
    series = []
    for number, kind in enumerate(kinds):
        color = _COLORS[number % len(_COLORS)]
        for bar in data[kind]:
            where, begin, end = bar["value"]
            series.append(
                {
                    "name": kind,
                    "type": "line",
                    "color": color,
                    "symbol": "none",
                    "lineStyle": {"width": 14, "cap": "butt"},
                    "data": [
                        {"value": [begin, where], "name": bar["name"]},
                        {"value": [end, where], "name": bar["name"]},
                    ],
                }
            )
    return {
        "animation": False,
        "grid": {"left": 90, "right": 20, "top": 40, "bottom": 40},
        "tooltip": {"trigger": "item", "formatter": "{b}"},
        "legend": {"data": kinds, "type": "scroll", "top": 0, "textStyle": {"color": _GREY}},
        "xAxis": _axis("seconds", type="value", min=-seconds, max=0),
        "yAxis": {"type": "category", "data": rows, "axisLabel": {"color": _GREY}},
        "series": series,
    }
