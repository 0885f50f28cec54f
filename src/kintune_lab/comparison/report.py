"""The report on a comparison: who is faster on how many files and by how much, then file by file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kintune.validate.baselines import KINTUNE
from kintune_lab.comparison.files import name_models
from kintune_lab.comparison.timing import OTHERS
from kintune_lab.comparison.verdict import BEST, Against, ComparisonSummary, FileResult, summarise
from kintune_lab.experiment.section import Bar, BarChart, Grid, ReportSection
from kintune_lab.experiment.tables import CELLS, Row, Scalar, Tables, by, slug, words

__all__ = ["ComparedFiles", "compared_files", "comparison_sections", "markdown", "to_json"]

_PANELS = ("minutes", "threads", "seed", "precision")
"""Options that make comparisons of their own where a file has several of their values."""

_LABELS = ("shapes", "constants", "inputs", "rtol", "atol", "max_error", "calibrate", "rounds", "baselines", "keep")
"""Options that tell the cells of one file apart."""

_SCHEMA = 1


class ComparedFiles(msgspec.Struct, frozen=True):
    """Files that were compared under one setting, such as `minutes 2.0`, which is empty where there is only one.

    `rows` are those of the table `results` by the file's name; a file that failed without one has its options alone.
    """

    setting: str
    rows: dict[str, Row]
    results: tuple[FileResult, ...]
    summary: ComparisonSummary


def compared_files(tables: Tables) -> list[ComparedFiles]:
    """The files of each setting, those with a result first, the smallest ratio to the first other runtime first."""
    rows = _all_rows(tables)
    names = name_models([str(row["model"]) for row in rows])
    panels = [column for column in _PANELS if _varies_within_a_model(rows, column)]
    found = []
    for key, group in by(rows, *panels).items():
        named: dict[str, Row] = {}
        for rows_of_one in by(group, "model").values():
            telling = [column for column in _LABELS if len({str(row.get(column)) for row in rows_of_one}) > 1]
            for row in rows_of_one:
                more = words(telling, [row.get(column) for column in telling])
                named[", ".join(filter(None, (names[str(row["model"])], more)))] = row
        results = sorted((_result(name, row) for name, row in named.items()), key=_order)
        found.append(
            ComparedFiles(
                words(panels, key),
                {result.name: named[result.name] for result in results},
                tuple(results),
                summarise(results),
            )
        )
    return found


def comparison_sections(tables: Tables) -> list[ReportSection]:
    """Ratios in all, the plot, and each file."""
    latencies = {(row.get("cell"), row.get("runtime")): row for row in tables.get("latencies", ())}
    sections = []
    for files in compared_files(tables):
        title = f" ({files.setting})" if files.setting else ""
        charts = (_chart(files, latencies),) if files.summary.against else ()
        sections += [
            ReportSection(f"Against other runtimes{title}", (*_text(files), _RULE), (_against(files.summary),), charts),
            ReportSection(f"Files{title}", grids=(_files(files),)),
        ]
        if lost := _lost(files):
            sections.append(ReportSection(f"Files that lost{title}", grids=(lost,)))
    if grid := _runtimes(tables.get("latencies", ())):
        sections.append(ReportSection("Runtimes", grids=(grid,)))
    return sections


def markdown(tables: Tables) -> str:
    """Return the comparison as Markdown, without the plot."""
    parts = ["# Comparison", _machines(tables)]
    for section in comparison_sections(tables):
        parts += [f"## {section.title}", *section.text, *map(_table, section.grids)]
    return "\n\n".join(filter(None, parts)) + "\n"


def to_json(tables: Tables) -> bytes:
    """Return the comparison as a JSON document.

    It has the `cpus` that it was measured on, the first and last of the `days`, `runtimes` with their versions, and
    `comparisons`, one for each setting, each with its `summary` and its `files` by name.
    """
    document = {
        "schema_version": _SCHEMA,
        "cpus": _cpus(tables),
        "days": _days(tables),
        "runtimes": _versions(tables.get("latencies", ())),
        "comparisons": [
            {"setting": files.setting, "summary": files.summary, "files": {n: dict(r) for n, r in files.rows.items()}}
            for files in compared_files(tables)
        ],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


_RULE = (
    "Ratios are Kintune's latency over the other's, so less than 1 is faster: medians of the ratios of rounds, in "
    "which both had a turn; means are geometric. Won is more than 2 % faster; lost is slower by more than 2 % and by "
    "more than 5 us. All take turns, with equal threads. Other runtimes compute in fp32 where the model does, unless "
    "their name says otherwise; Kintune in the precision that was asked for.  The plot's bars show where the middle "
    "eight of ten runs of Kintune lie."
)


def _all_rows(tables: Tables) -> list[Row]:
    """The rows of results; of cells that failed without one, their own."""
    rows = list(tables.get("results", ()))
    known = {row.get("cell") for row in rows}
    bare = [row for row in tables.get(CELLS, ()) if row.get("state") == "failed" and row.get("cell") not in known]
    return rows + [{**row, "failure": row.get("reason") or row.get("error")} for row in bare]


def _varies_within_a_model(rows: Sequence[Row], column: str) -> bool:
    return any(len({row.get(column) for row in group}) > 1 for group in by(rows, "model").values())


def _result(name: str, row: Row) -> FileResult:
    others = {other: time for other in OTHERS if (time := _number(row.get(f"{other}_ms"))) is not None}
    ratios = {other: ratio for other in others if (ratio := _number(row.get(f"ratio_{other}"))) is not None}
    ours, failure = _number(row.get(f"{KINTUNE}_ms")), str(row.get("failure") or "")
    return FileResult(name, ours, others, bool(row.get("whole")), failure, ratios)


def _order(result: FileResult) -> tuple[bool, float, str]:
    ratio = next((found for other in result.others_ms if (found := result.ratio(other)) is not None), None)
    return result.kintune_ms is None, 0.0 if ratio is None else ratio, result.name


def _text(files: ComparedFiles) -> list[str]:
    summary = files.summary
    counts = dict.fromkeys(str(row["cores"]) for row in files.rows.values() if row.get("cores"))
    threads = [f"Threads of each runtime: {', '.join(counts)}."] if counts else []
    failed = f"; {len(summary.failed)} failed, which their rows explain" if summary.failed else ""
    return [
        f"{_files_of(summary.files)}: {summary.results} with a result, {summary.whole} compiled whole{failed}.",
        *threads,
    ]


def _against(summary: ComparisonSummary) -> Grid:
    header = ("beside", "files", "mean", "mean of those compiled whole", "worst", "won", "level", "lost")
    return Grid(header, tuple(_line(each) for each in summary.against))


def _line(each: Against) -> tuple[str, ...]:
    whole = "" if each.mean_whole is None else f"{each.mean_whole:.3f} ({_files_of(each.whole)})"
    counts = (str(len(files)) for files in (each.won, each.level, each.lost))
    worst = f"{each.worst:.2f} ({each.worst_file})"
    return (each.other, str(each.files), f"{each.mean:.3f}", whole, worst, *counts)


def _chart(files: ComparedFiles, latencies: dict[tuple[Scalar, Scalar], Row]) -> BarChart:
    """Ratios on a logarithmic scale, in the order of the files; lines go from the ratio of Kintune's fast to that of
    its slow runs.
    """
    bars = []
    others = [each.other for each in files.summary.against if each.other != BEST]
    for other in others:
        for result in files.results:
            if (ratio := result.ratio(other)) is None or result.kintune_ms is None:
                continue
            spread = latencies.get((files.rows[result.name].get("cell"), KINTUNE), {})
            low, high = (_number(spread.get(column)) for column in ("p10_ms", "p90_ms"))
            scale = ratio / result.kintune_ms
            bars.append(Bar(result.name, ratio, low and low * scale, high and high * scale, other))
    means = [Bar(_MEAN, each.mean, series=each.other) for each in files.summary.against if each.other != BEST]
    return BarChart(
        f"ratios-{slug(files.setting)}" if files.setting else "ratios",
        f"Latency over that of others{f', {files.setting}' if files.setting else ''}",
        "Kintune's latency / the other's",
        tuple(bars + means),
        baseline=1.0,
        log=True,
    )


_MEAN = "geometric mean"


def _files(files: ComparedFiles) -> Grid:
    others = [each.other for each in files.summary.against if each.other != BEST]
    others += [other for other in OTHERS if other not in others and any(other in r.others_ms for r in files.results)]
    header = ["file", "Kintune, ms"]
    measured = [other for other in others if any(row.get(f"{other}_error") is not None for row in files.rows.values())]
    for other in others:
        header += [f"{other}, ms", "ratio", "is", *(["its error"] if other in measured else [])]
    header += ["compiled whole", "runs in", "largest error", "error of the norm"]
    header += ["within tolerance", "trials", "failure"]
    lines = []
    for result in files.results:
        row = files.rows[result.name]
        line = [result.name, _digits(result.kintune_ms)]
        for other in others:
            ratio, verdict = result.ratio(other), result.verdict(other)
            line += [_digits(result.others_ms.get(other)), "" if ratio is None else f"{ratio:.2f}"]
            line.append(verdict.value if verdict else "")
            line += [_digits(_number(row.get(f"{other}_error")))] if other in measured else []
        error = row.get(f"{KINTUNE}_error")
        line += [
            _yes(result.whole),
            _where(row),
            _digits(_number(row.get("max_abs_error"))),
            _digits(_number(row.get("norm_error") if error is None else error)),
            _yes(row.get("correct")),
            str(row.get("measured") or ""),
            ": ".join(filter(None, (str(row.get("failed_at") or ""), result.failure))),
        ]
        lines.append(tuple(line))
    return Grid(tuple(header), tuple(lines))


def _lost(files: ComparedFiles) -> Grid | None:
    """A row for each file and runtime that was faster."""
    results = {result.name: result for result in files.results}
    lines = [
        (name, each.other, f"{results[name].ratio(each.other):.2f}")
        for each in files.summary.against
        if each.other != BEST
        for name in each.lost
    ]
    return Grid(("file", "to", "ratio"), tuple(lines)) if lines else None


def _where(row: Row) -> str:
    regions, left = row.get("regions"), row.get("left")
    more = ", ".join(filter(None, (f"{regions} regions" if regions else "", f"left: {left}" if left else "")))
    return f"{row.get('runs_in') or ''}{f' ({more})' if more else ''}"


def _runtimes(rows: Sequence[Row]) -> Grid | None:
    """Versions, how many files each ran, and why it did not run the others."""
    lines = []
    for (name,), group in by(rows, "runtime").items():
        problems = _counted(str(row["problem"]) for row in group if row.get("problem"))
        ran = sum(bool(row.get("runs")) for row in group)
        lines.append((str(name), _versions(group).get(str(name), ""), str(ran), problems))
    return Grid(("runtime", "version", "files", "did not run"), tuple(lines)) if lines else None


def _counted(texts: Iterable[str]) -> str:
    counts: dict[str, int] = {}
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
    return "; ".join(f"{count} x {text}" for text, count in counts.items())


def _versions(rows: Sequence[Row]) -> dict[str, str]:
    return {
        str(name): ", ".join(dict.fromkeys(str(row["version"]) for row in group if row.get("version")))
        for (name,), group in by(rows, "runtime").items()
    }


def _cpus(tables: Tables) -> list[str]:
    return list(dict.fromkeys(str(row["cpu"]) for row in tables.get(CELLS, ()) if row.get("cpu")))


def _machines(tables: Tables) -> str:
    cpus, days = _cpus(tables), _days(tables)
    return f"Measured on {'; '.join(cpus)}, {' to '.join(days)}." if cpus and days else ""


def _days(tables: Tables) -> list[str]:
    """The first and the last day, or the only one."""
    days = sorted({str(row["started"])[:10] for row in tables.get(CELLS, ()) if row.get("started")})
    return days[:1] + days[1:][-1:]


def _table(grid: Grid) -> str:
    lines = [grid.header, ("---",) * len(grid.header), *grid.rows]
    return "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _files_of(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


def _number(value: Scalar) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _yes(value: object) -> str:
    return "" if value is None else "yes" if value else "no"
