"""A profile as one HTML page without scripts or outside files: the whole network, and a table of its calls."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from kintune.core.profile import (
    IN_ONNXRUNTIME,
    Limit,
    NodeProfile,
    Profile,
    ProfiledCall,
    RegionProfile,
    narrow_precision,
    reached,
)
from kintune.profiling.page_style import html_document

__all__ = ["html_page", "profile_section"]

_COLOURS = {
    Limit.ARITHMETIC: "#2f6fb3",
    Limit.MEMORY: "#c77700",
    Limit.COPIES: "#9a3f8f",
    Limit.LAUNCH: "#777777",
    Limit.UNKNOWN: "#aaaaaa",
}
_LEFT = "#3f8f6b"  # nodes in onnxruntime
_GAP = "#9a9a9a66"

_STYLE = "th:first-child, td:first-child { min-width: 400px; }\n"


def html_page(profile: Profile) -> bytes:
    """The page, in UTF-8."""
    parts = [*_head(profile), *_bar(profile), *_calls(profile), *_regions(profile), *_others(profile)]
    return html_document(f"{profile.model}: profile", parts, _STYLE)


def profile_section(profile: Profile) -> Iterator[str]:
    """The profile as a part of another page, with the picture and the table."""
    yield "<h2>Where the time goes, inside the network</h2>"
    yield from _network(profile)
    yield from _bar(profile)
    yield from _calls(profile)
    yield from _regions(profile)


def _head(profile: Profile) -> Iterator[str]:
    yield f"<h1>{escape(profile.model)}: {_ms(profile.run_ms)} a run</h1>"
    shapes = ", ".join(f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in profile.shapes.items())
    yield f'<p class="facts">{escape(profile.cpu)}, {profile.threads} threads; {escape(shapes)}</p>'
    yield f'<p class="facts">{escape(profile.executable)}</p>'
    yield from _network(profile)


def _network(profile: Profile) -> Iterator[str]:
    if profile.peak is not None:
        yield f'<p class="facts">Measured peak: {profile.peak_text}</p>'
    yield (
        f"<p>{profile.summed} {'takes' if len(profile.calls) == 1 else 'take'} "
        f"{_ms(profile.kernels_ms)} together; a run takes "
        f"{_ms(abs(profile.gap_ms))} {'more' if profile.gap_ms >= 0 else 'less'}. Median of {profile.runs} runs, "
        f"8 of 10 from {_ms(profile.p10_ms)} to {_ms(profile.p90_ms)}.</p>"
    )
    if profile.onnxruntime is not None:
        onnx = profile.onnxruntime
        yield (
            f"<p>onnxruntime {escape(onnx.version)}, in turns with it: {_ms(onnx.run_ms)} a run "
            f"(Kintune takes {profile.run_ms / onnx.run_ms:.2f} of that).</p>"
        )
    for note in profile.notes:
        yield f'<p class="note">{escape(note)}</p>'


def _bar(profile: Profile) -> Iterator[str]:
    """The run as one bar, a part for each call in their order, and one for the gap."""
    whole = max(profile.run_ms, profile.kernels_ms) * 1e3
    if not whole:
        return
    yield '<div class="bar" role="img" aria-label="the calls of a run in their order">'
    for call in profile.calls:
        label = escape(f"{call.title}: {_us(call.us)}", quote=True)
        style = f"width:{100 * call.us / whole:.3f}%;background:{_colour(call)}"
        yield f'<span title="{label}" style="{style}"></span>'
    if profile.gap_ms > 0:
        yield f'<span title="between the kernels: {_ms(profile.gap_ms)}" style="flex:1;background:{_GAP}"></span>'
    yield '</div><p class="key">'
    kernels = [call for call in profile.calls if call.where != IN_ONNXRUNTIME]
    totals = {limit: sum(call.us for call in kernels if call.limit is limit) for limit in Limit}
    for limit, us in totals.items():
        if us:
            yield f'<span><i style="background:{_COLOURS[limit]}"></i>{limit.value} {_us(us)}</span>'
    if profile.left:
        left = _us(sum(call.us for call in profile.left))
        yield f'<span><i style="background:{_LEFT}"></i>in {IN_ONNXRUNTIME} {left}</span>'
    if profile.gap_ms > 0:
        yield f'<span><i style="background:{_GAP}"></i>between the kernels {_ms(profile.gap_ms)}</span>'
    yield "</p>"


def _calls(profile: Profile) -> Iterator[str]:
    beside = profile.onnxruntime is not None
    columns = [
        "operators, slowest first",
        "time",
        "share",
        "GFLOP/s",
        "GB/s",
        "threads",
        *(["precision"] if profile.precisions else []),
        "runs in",
        "limit",
        "of it",
    ]
    yield "<h2>Kernel calls</h2>"
    if profile.prefix:
        yield f'<p class="facts">Names without <code>{escape(profile.prefix)}</code></p>'
    yield "<div class=wide tabindex=0><table><thead><tr>" + "".join(
        f"<th>{name}</th>" for name in columns + ["onnxruntime"] * beside
    )
    yield "</tr></thead><tbody>"
    for call in profile.slowest:
        yield _row(call, profile)
    yield "</tbody></table></div>"


def _row(call: ProfiledCall, profile: Profile) -> str:
    nodes = "".join(f"<div>{escape(node.op)} {escape(node.name)}</div>" for node in call.nodes)
    compiled = call.operators and call.where != IN_ONNXRUNTIME
    operators = f"<div>compiled as {escape(' + '.join(call.operators))}</div>" if compiled else ""
    details = (
        f"<details><summary>{escape(call.title)}</summary>{nodes}{operators}<div>{escape(call.kernel)}</div></details>"
    )
    share = f'{call.share:.1%}<i class="share" style="width:{60 * call.share:.1f}px;background:{_colour(call)}"></i>'
    known = call.limit is not Limit.UNKNOWN
    cells = [
        details,
        _us(call.us),
        share,
        f"{call.gflops:.1f}" if call.gflops else "",
        f"{call.gbytes_per_s:.1f}" if call.gbytes_per_s else "",
        str(call.threads),
        *([narrow_precision(call)] if profile.precisions else []),
        call.where if call.region < 0 else f"{call.where}, region {call.region}",
    ]
    row = "".join(f"<td>{cell}</td>" for cell in cells)
    row += f'<td class="limit">{call.limit.value if known else ""}</td><td>{reached(call) if known else ""}</td>'
    if profile.onnxruntime is not None:
        row += _beside(call, profile)
    return f"<tr>{row}</tr>"


def _colour(call: ProfiledCall) -> str:
    return _LEFT if call.where == IN_ONNXRUNTIME else _COLOURS[call.limit]


def _regions(profile: Profile) -> Iterator[str]:
    """The regions, their times in the network against the sums of their kernels."""
    if not profile.regions:
        return
    yield "<h2>Regions, as nodes of onnxruntime</h2><div class=wide tabindex=0><table><thead><tr>"
    columns = ("region", "time in the network", "share of all nodes", "runs", "kernel calls", "kernels", "boundary")
    yield "".join(f"<th>{name}</th>" for name in columns) + "</tr></thead><tbody>"
    for region in sorted(profile.regions, key=lambda region: -region.us):
        cells = [escape(region.title), *_region_cells(region)]
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    yield "</tbody></table></div>"


def _region_cells(region: RegionProfile) -> list[str]:
    if not region.times:
        return ["not run", "", "", "", "", ""]
    cells = [_us(region.us), f"{region.share:.1%}", str(region.times)]
    if not region.calls:
        return [*cells, "", "", ""]
    return [*cells, str(region.calls), _us(region.kernels_us), _us(region.boundary_us)]


def _beside(call: ProfiledCall, profile: Profile) -> str:
    if profile.onnxruntime is None or call.group < 0:
        return "<td></td>"
    group = profile.onnxruntime.groups[call.group]
    kind = "faster" if group.us <= group.onnxruntime_us else "slower"
    if call.onnxruntime_us is not None:
        return f'<td class="{kind}">{_us(call.onnxruntime_us)}</td>'
    return f'<td class="{kind}">{_us(group.onnxruntime_us)} for {len(group.calls)} calls, {_us(group.us)}</td>'


def _others(profile: Profile) -> Iterator[str]:
    """Nodes of onnxruntime that are none of the network's."""
    if profile.onnxruntime is None:
        return
    alone = [node for node in profile.onnxruntime.nodes if node.group < 0]
    if not alone:
        return
    yield "<h2>Nodes of onnxruntime that no call was matched with</h2><div class=wide tabindex=0><table><thead><tr>"
    yield "<th>node</th><th>operator</th><th>time</th></tr></thead><tbody>"
    slowest: list[NodeProfile] = sorted(alone, key=lambda node: -node.us)
    for node in slowest:
        yield f"<tr><td>{escape(node.name)}</td><td>{escape(node.op)}</td><td>{_us(node.us)}</td></tr>"
    yield "</tbody></table></div>"


def _ms(value: float) -> str:
    return _us(value * 1e3)


def _us(value: float) -> str:
    """A time with three digits and its unit."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} s"
    if value >= 1e3:
        return f"{value / 1e3:.3g} ms"
    return f"{value:.3g} us"
