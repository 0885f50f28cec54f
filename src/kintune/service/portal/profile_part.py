"""Where the time of a result goes, as markup: a picture of a run, and the table that `kintune profile` prints."""

from __future__ import annotations

from kintune.core.profile import IN_ONNXRUNTIME, Limit, Profile, ProfiledCall, RegionProfile, narrow_precision, reached
from kintune.service.portal.job_words import left_out
from kintune.service.portal.markup import MarkupColumn, link, table, tag, text
from kintune.terminal.formatting import milliseconds
from kintune.terminal.profile_table import network_lines

__all__ = ["profile_part"]

_MOST_ROWS = 200
_LEFT = "onnxruntime"
_GAP = "gap"
_COLUMNS = (
    MarkupColumn("operators, slowest first", "name", label=""),
    *(MarkupColumn(name, "num") for name in ("time", "share", "GFLOP/s", "GB/s", "threads")),
    MarkupColumn("precision"),
    MarkupColumn("limit"),
)
_REGION_COLUMNS = (
    MarkupColumn("regions, as nodes of onnxruntime", "name", label=""),
    *(MarkupColumn(name, "num") for name in ("time", "share", "kernel calls", "kernels", "boundary")),
)


def profile_part(profile: Profile, job: str) -> str:
    """The picture, the table, and what can be downloaded of it."""
    first, *facts = network_lines(profile)
    said = [tag("p", text(first)), *(tag("p", text(line), class_="faint small") for line in facts)]
    said += [tag("p", text(f"Note: {note}"), class_="faint small") for note in profile.notes]
    rows = (_row(call, profile) for call in profile.slowest[:_MOST_ROWS])
    shown = table("Where the time goes", _COLUMNS, rows)
    rest = len(profile.calls) - _MOST_ROWS
    under = []
    if rest > 0:
        under.append(tag("p", left_out(rest), class_="faint small"))
    if profile.peak is None:
        unknown = "What bounds each is not known: the peak of the device was not measured in a search as short as this."
        under.append(tag("p", unknown, class_="faint small"))
    if profile.prefix:
        under.append(tag("p", text(f"All names begin with {profile.prefix}, which is left out"), class_="faint small"))
    base = f"/api/v1/jobs/{job}/profile"
    links = [
        link("Profile (HTML)", f"{base}/page", class_="button", download=""),
        link("Trace for Perfetto", f"{base}/trace", class_="button", download=""),
    ]
    parts = [
        tag("h2", "Where the time goes"), tag("div", said), _picture(profile), shown, *under,
        _regions(profile),
        tag("div", links, class_="line"),
    ]  # fmt: skip
    return tag("section", parts, class_="card stack", id="profile")


def _picture(profile: Profile) -> str:
    """One run as a bar, a part for each call in their order, and one for the gap."""
    whole = max(profile.run_ms, profile.kernels_ms) * 1e3
    if not whole:
        return ""
    parts = [
        tag("i", title=f"{call.title}: {_us(call.us)}", style=_style(call.us / whole, _kind(call)))
        for call in profile.calls
    ]
    totals: dict[str, float] = {}
    for call in profile.calls:
        totals[_kind(call)] = totals.get(_kind(call), 0.0) + call.us
    if profile.gap_ms > 0:
        totals[_GAP] = profile.gap_ms * 1e3
        said = f"between the kernels: {milliseconds(profile.gap_ms)}"
        parts.append(tag("i", title=said, style=_style(totals[_GAP] / whole, _GAP)))
    legend = (
        tag("li", [tag("i", style=f"background:var(--limit-{kind})"), text(f"{_WORDS[kind]} {_us(us)}")])
        for kind, us in sorted(totals.items(), key=lambda item: -item[1])
    )
    bar = tag("div", parts, class_="track run", role="img", aria_label="The kernel calls of a run, in their order")
    return tag("div", bar + tag("ul", legend, class_="legend"))


_WORDS = {
    Limit.ARITHMETIC.value: "arithmetic",
    Limit.MEMORY.value: "memory",
    Limit.COPIES.value: "copies",
    Limit.LAUNCH.value: "launch",
    Limit.UNKNOWN.value: "kernels, limit not known",
    _LEFT: "in onnxruntime",
    _GAP: "between the kernels",
}


def _kind(call: ProfiledCall) -> str:
    return _LEFT if call.where == IN_ONNXRUNTIME else call.limit.value


def _style(share: float, kind: str) -> str:
    return f"width:{100 * share:.3f}%;background:var(--limit-{kind})"


def _row(call: ProfiledCall, profile: Profile) -> list[str]:
    inside = [tag("li", text(f"{node.op} {node.name}")) for node in call.nodes]
    if call.operators and call.where != IN_ONNXRUNTIME:
        inside.append(tag("li", text(f"compiled as {' + '.join(call.operators)}")))
    inside.append(tag("li", tag("span", text(call.kernel), class_="mono faint")))
    bar = tag("i", class_="share", style=_style(call.share, _kind(call)))
    summary = tag("summary", text(call.title) + bar, class_="plain")
    more = tag("details", summary + tag("ul", inside), id=f"call-{call.place}")
    return [
        more,
        _us(call.us),
        f"{call.share:.1%}",
        f"{call.gflops:.0f}" if call.gflops else "",
        f"{call.gbytes_per_s:.1f}" if call.gbytes_per_s else "",
        str(call.threads),
        narrow_precision(call) if profile.precisions else "",
        _limit(call),
    ]


def _regions(profile: Profile) -> str:
    """The regions, their times in the network against the sums of their kernels; empty where there are none."""
    if not profile.regions:
        return ""
    slowest = sorted(profile.regions, key=lambda region: -region.us)[:_MOST_ROWS]
    return table("Regions", _REGION_COLUMNS, (_region_row(region) for region in slowest))


def _region_row(region: RegionProfile) -> list[str]:
    cells = [_us(region.us), f"{region.share:.1%}"] if region.times else ["not run"]
    if region.calls:
        sign = "-" if region.boundary_us < 0 else ""
        cells += [str(region.calls), _us(region.kernels_us), f"{sign}{_us(abs(region.boundary_us))}"]
    cells += [""] * (len(_REGION_COLUMNS) - 1 - len(cells))
    inside = tag("ul", [tag("li", text(node)) for node in region.nodes])
    more = tag("details", tag("summary", text(region.title), class_="plain") + inside, id=f"region-{region.number}")
    return [more, *cells]


def _limit(call: ProfiledCall) -> str:
    if call.where == IN_ONNXRUNTIME:
        return f"in {IN_ONNXRUNTIME}"
    limit = "" if call.limit is Limit.UNKNOWN else f"{call.limit.value} {reached(call).replace('>', '&gt;')}"
    return limit if call.region < 0 else f"{limit}{' ' if limit else ''}(region {call.region})"


def _us(value: float) -> str:
    return milliseconds(value / 1e3)
