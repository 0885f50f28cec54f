"""A profile as lines of text; a terminal of less than 80 columns shows fewer columns of the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kintune.core.profile import IN_ONNXRUNTIME, Limit, Profile, ProfiledCall, RegionProfile, narrow_precision, reached
from kintune.terminal.formatting import count, counted, milliseconds

__all__ = ["network_lines", "profile_lines"]

_HEAD = "operators, slowest first"
_LEAST_WIDTH = 24  # of the first column, for which others are left out
_LEAST_TITLE = 12  # of the first column, where nothing more can be left out
_LIMIT = "limit"  # the only column of words
_LEFT_OUT = ("thr", "GB/s", "GF/s")  # columns that go first where the terminal is narrow


def profile_lines(profile: Profile, top: int = 20, width: int = 80) -> Iterator[str]:
    """The whole network in some lines, and a table of its `top` slowest calls, no line wider than `width`."""
    yield from network_lines(profile)
    yield ""
    yield from _table(profile, top, width)
    if profile.regions:
        yield ""
        yield from _regions(profile.regions, top, width)
    yield from (f"Note: {note}" for note in profile.notes)


def network_lines(profile: Profile) -> Iterator[str]:
    """The network as a whole: a run, the machine, the sum of its kernels, and what bounds them."""
    yield (
        f"{profile.model}: {milliseconds(profile.run_ms)} a run, median of {profile.runs} "
        f"({milliseconds(profile.p10_ms)} to {milliseconds(profile.p90_ms)})"
    )
    yield f"{profile.cpu}, {profile.threads} thread{'s' if profile.threads > 1 else ''}"
    if profile.peak is not None:
        yield f"measured peak: {profile.peak_text}"
    more = "more" if profile.gap_ms >= 0 else "less"
    took = f"{profile.summed} {'takes' if len(profile.calls) == 1 else 'take'} {milliseconds(profile.kernels_ms)}"
    gap = f"a run takes {milliseconds(abs(profile.gap_ms))} {more} than their sum"
    if profile.is_hybrid:
        part = _share(sum(call.us for call in profile.left), profile)
        yield f"{took}, {part:.0%} of it in onnxruntime" if part < 1.0 else took
        yield gap
    else:
        yield f"{took}; {gap}"
    if profile.copies:
        copies = "1 copy" if profile.copies == 1 else f"{profile.copies} copies"
        yield f"also {copies} of {count(profile.copied_bytes, 'B')}"
    if profile.onnxruntime is not None:
        onnx = profile.onnxruntime
        yield (
            f"onnxruntime {onnx.version}: {milliseconds(onnx.run_ms)} a run; "
            f"Kintune takes {profile.run_ms / onnx.run_ms:.2f} of that"
        )
    kernels = [call for call in profile.calls if call.where != IN_ONNXRUNTIME]
    totals = {limit: sum(call.us for call in kernels if call.limit is limit) for limit in Limit}
    parts = [f"{limit.value} {milliseconds(us / 1e3)}" for limit, us in totals.items() if us]
    if parts and profile.peak is not None and any(call.limit is not Limit.UNKNOWN for call in kernels):
        yield f"bound by {', '.join(parts)}"


def _table(profile: Profile, top: int, width: int) -> Iterator[str]:
    beside = profile.onnxruntime is not None
    narrow = ["in"] if profile.precisions else []
    heads = ["time", "share", "GF/s", "GB/s", "thr", *narrow, _LIMIT, *(["onnxrt"] if beside else [])]
    shown = profile.slowest[:top]
    rows = [_cells(call, profile) for call in shown]
    rest = profile.slowest[top:]
    if rest:
        us = sum(call.us for call in rest)
        rows.append([milliseconds(us / 1e3), f"{_share(us, profile):.1%}"])
    titles = [_HEAD, *(call.title.replace(" + ", "+") for call in shown), *([f"{len(rest)} more"] if rest else [])]
    widths = {at: max(len(row[at]) for row in [heads, *rows] if at < len(row)) for at in range(len(heads))}
    for head in _LEFT_OUT:
        if width - sum(widths.values()) - len(widths) - 1 >= _LEAST_WIDTH:
            break
        del widths[heads.index(head)]
    room = width - sum(widths.values()) - len(widths) - 1
    first = max(_LEAST_TITLE, min(room, max(map(len, titles))))
    for title, row in zip(titles, [heads, *rows], strict=True):
        yield _line(title, row, first, widths, heads.index(_LIMIT))
    if beside and any(row[-1].startswith("(") for row in rows):
        yield "(in brackets: for several calls together; --json and --html say which)"
    if profile.prefix:
        yield f"All names begin with {profile.prefix}, which is left out"


def _cells(call: ProfiledCall, profile: Profile) -> list[str]:
    cells = [
        milliseconds(call.us / 1e3),
        f"{call.share:.1%}",
        f"{call.gflops:.0f}" if call.gflops else "",
        f"{call.gbytes_per_s:.1f}" if call.gbytes_per_s else "",
        str(call.threads),
        *([narrow_precision(call)] if profile.precisions else []),
        _limit(call),
    ]
    if profile.onnxruntime is not None:
        cells.append(_theirs(call, profile))
    return cells


def _limit(call: ProfiledCall) -> str:
    """What bounds a call, or that onnxruntime runs it."""
    if call.where == IN_ONNXRUNTIME:
        return f"in {IN_ONNXRUNTIME}"
    return "" if call.limit is Limit.UNKNOWN else f"{call.limit.value} {reached(call)}"


def _regions(regions: Sequence[RegionProfile], top: int, width: int) -> Iterator[str]:
    """A line for each region, the slowest first: its time in the network, and what of it its kernels explain."""
    heads = ["time", "share", "calls", "kernels", "boundary"]
    shown = sorted(regions, key=lambda region: -region.us)[:top]
    rows = [_region_cells(region) for region in shown]
    rest = len(regions) - len(shown)
    widths = [max(len(row[at]) for row in [heads, *rows]) for at in range(len(heads))]
    titles = ["regions, as nodes of onnxruntime", *(region.title for region in shown)]
    first = max(_LEAST_TITLE, min(width - sum(widths) - len(widths) - 1, max(map(len, titles))))
    for title, row in zip(titles, [heads, *rows], strict=True):
        aligned = " ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        yield f"{_cut(title, first):<{first}}  {aligned}".rstrip()
    if rest:
        yield counted(rest, "more region")


def _region_cells(region: RegionProfile) -> list[str]:
    if not region.times:
        return ["not run", "", "", "", ""]
    cells = [milliseconds(region.us / 1e3), f"{region.share:.1%}"]
    if not region.calls:
        return [*cells, "", "", ""]
    sign = "-" if region.boundary_us < 0 else ""
    kernels, boundary = (milliseconds(abs(us) / 1e3) for us in (region.kernels_us, region.boundary_us))
    return [*cells, str(region.calls), kernels, f"{sign}{boundary}"]


def _theirs(call: ProfiledCall, profile: Profile) -> str:
    """What onnxruntime takes for the same; in brackets where that is for several calls together."""
    if call.onnxruntime_us is not None:
        return milliseconds(call.onnxruntime_us / 1e3)
    if profile.onnxruntime is None or call.group < 0:
        return ""
    return f"({milliseconds(profile.onnxruntime.groups[call.group].onnxruntime_us / 1e3)})"


def _share(us: float, profile: Profile) -> float:
    return us / 1e3 / profile.kernels_ms if profile.kernels_ms else 0.0


def _line(title: str, cells: list[str], first: int, widths: Mapping[int, int], words: int) -> str:
    """A line of the table, whose column `words` is aligned to the left."""
    aligned = [
        cells[place].ljust(width) if place == words else cells[place].rjust(width)
        for place, width in widths.items()
        if place < len(cells)
    ]
    return f"{_cut(title, first):<{first}}  {' '.join(aligned)}".rstrip()


def _cut(title: str, width: int) -> str:
    """The title within a width: without the start of a long name, or else without the end."""
    if len(title) <= width:
        return title
    name, plus, others = title.partition("+")
    if len(name) + 4 > width:
        kept = f"+{len(others.split('+'))}" if plus else ""
        return f"...{name[len(name) + 3 + len(kept) - width :]}{kept}"
    return f"{title[: width - 3]}..."
