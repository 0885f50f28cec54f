"""`kintune profile`: where the time of a tuned model goes."""

from __future__ import annotations

from pathlib import Path

import click

from kintune.api import Model, profile
from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.held_cores import warn_of_held_cores
from kintune.cli.options import constant_option
from kintune.cli.run import read_arrays
from kintune.cli.sections import SectionedCommand, Sections
from kintune.cli.widths import table_width
from kintune.errors import InputError
from kintune.files import check_writable, write_whole

__all__ = ["command"]

_SECTIONS: Sections = (
    ("What is profiled", ("model", "constants", "inputs", "threads", "runs")),
    ("Output", ("top", "html_target", "trace_target", "json_target")),
)


@click.command(
    "profile", cls=SectionedCommand, sections=_SECTIONS, short_help="Show where the time of a tuned model goes."
)
@click.argument("executable", metavar="FILE.kt")
@click.option("--model", metavar="MODEL", help="Profile this ONNX file, or zoo:NAME, in onnxruntime beside it.")
@constant_option
@click.option("--input", "inputs", metavar="FILE.npz", help="Run on these inputs.  [default: random ones]")
@click.option("--threads", type=click.IntRange(1, 4096), help="Threads of a run.  [default: as tuned]")
@click.option("--runs", type=click.IntRange(min=1), default=50, show_default=True, help="Timed runs.")
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True, help="Rows of the table.")
@click.option("--html", "html_target", metavar="FILE", help="Write a page with all calls and their nodes.")
@click.option("--trace", "trace_target", metavar="FILE", help="Write a trace for Perfetto.")
@json_option
def command(
    executable: str,
    model: str | None,
    constants: tuple[str, ...],
    inputs: str | None,
    threads: int | None,
    runs: int,
    top: int,
    html_target: str | None,
    trace_target: str | None,
    json_target: JsonTarget,
) -> None:
    """Show where the time of the tuned model FILE.kt goes: its kernels by the nodes of your model, slowest first.

    Each kernel is timed inside the network, and held against what this machine reaches: 'arithmetic 60%' is bound by
    arithmetic, and runs at 60% of the measured peak.  With --model, onnxruntime runs the original in turns with it,
    and its times stand beside those of the same nodes.  Of a result that runs partly in onnxruntime, the nodes there
    are rows as well, and each region's kernels are held against its time inside the network.

    FILE.kt holds machine code: run only what you trust.
    """
    html = None if html_target is None else check_writable(html_target, "--html", stream=True)
    trace = None if trace_target is None else check_writable(trace_target, "--trace", stream=True)
    arrays = None if inputs is None else read_arrays(inputs)
    if constants and model is None:
        raise InputError("--constant binds inputs of the original model: give that with --model, or leave it out")
    original = None if model is None else Model.parse(model, constants=constants)
    warn_of_held_cores()
    found = profile(executable, arrays, model=original, threads=threads or 0, runs=runs)
    write_document(json_target, found)
    from kintune.terminal.profile_table import profile_lines

    for line in profile_lines(found, top, table_width()):
        echo(line, json_target)
    if html is not None:
        from kintune.profiling.page import html_page

        _write(html, html_page(found), json_target)
    if trace is not None:
        from kintune.profiling.trace import trace_json

        _write(trace, trace_json(found), json_target)
        echo("Open it at ui.perfetto.dev or chrome://tracing", json_target)


def _write(path: Path, content: bytes, json_target: JsonTarget) -> None:
    write_whole(path, content)
    echo(f"Wrote {path}", json_target)
