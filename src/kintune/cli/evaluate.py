"""`kintune evaluate`: time a tuned model."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import click
import msgspec
import numpy as np

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.held_cores import warn_of_held_cores
from kintune.cli.merge import VariantSummary, describe_variant
from kintune.cli.options import trusted_option
from kintune.cli.run import read_arrays
from kintune.cli.sections import SectionedCommand, Sections
from kintune.cli.widths import output_width
from kintune.core.hybrid import Hybrid
from kintune.core.kernel_bounds import KernelBounds
from kintune.core.kernel_call import common_folder, title_of
from kintune.core.model import Combination, spell_shapes
from kintune.errors import InputError
from kintune.runtime import opening
from kintune.runtime.executable import Executable
from kintune.runtime.hybrid_executable import HybridExecutable
from kintune.runtime.hybrid_package import kernel_bounds
from kintune.runtime.inputs import draw_inputs
from kintune.runtime.manifest import Manifest, Narrow
from kintune.terminal.formatting import counted, milliseconds
from kintune.terminal.table import Column, table_lines
from kintune_runtime.evaluation import Evaluation
from kintune_runtime.executable import KernelTime
from kintune_runtime.inputs import choose_plan

__all__ = ["EvaluateDocument", "KernelCallTime", "command"]

_SHOWN = 20  # kernels in the table
_RESTLESS = 0.2  # spread above which times cannot be relied on
_GAP_OF_CALL_MS = 0.01  # between a run and its calls, for each call
_REASONS = 5  # why nodes run in onnxruntime

_COLUMNS = (
    Column("operators, slowest first", yields=True),
    Column("calls", right=True),
    Column("time", right=True),
    Column("share", right=True),
)

_SECTIONS: Sections = (
    ("What is timed", ("inputs", "threads", "streams", "kernels", "variant", "trusted")),
    ("How often", ("repeats", "warmups")),
)

_Inputs: TypeAlias = tuple[Mapping[str, Any], ...]
"""A tuple with one mapping of inputs by name, or an empty one if inputs are drawn."""


class KernelCallTime(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a kernel: its place in the plan, and its median time in microseconds inside the network.

    `title` is what it computes, by the nodes of the user's model; empty where the file does not say so.
    """

    place: int
    kernel: str
    median_us: float
    title: str = ""


class EvaluateDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune evaluate --json`: milliseconds, medians and percentiles of the timed runs, in order.

    `threads` ran each request, `streams` requests at once; `per_second` counts those that ended.  `kernels` has the
    calls in their order, where `--kernels` asked for them; `hybrid` says what runs where in a model that runs partly in
    onnxruntime, of which they are the nodes; `narrow` what computes narrower than the model's types.  `variants` are
    those of a file for CPUs, `variant` is the number of the one that was timed; 0 for a GPU.  `bounds` says of each
    plan how many of its kernels are proven to stay inside of their buffers; it is empty for a GPU.  `exporter` names
    what exported a program of PyTorch to ONNX, where the result was made of that.

    Runs with a large `spread`, (p90 - p10) / median, are timed once more, and the timing with the smaller one counts.
    `uncertain` has a line on each number that is out of proportion even so.

    Of a model that runs with several combinations of shapes, `shapes` says which one was timed.  Where all were,
    `combinations` has a document of each, and the times are those of the first.
    """

    schema_version: int = 1
    executable: str
    model: str
    threads: int
    streams: int
    median_ms: float
    p10_ms: float
    p90_ms: float
    p99_ms: float
    spread: float
    per_second: float
    times_ms: tuple[float, ...]
    kernels: tuple[KernelCallTime, ...] = ()
    variant: int = 0
    variants: tuple[VariantSummary, ...] = ()
    hybrid: Hybrid | None = None
    narrow: Narrow | None = None
    shapes: dict[str, tuple[int, ...]] = {}
    combinations: tuple[EvaluateDocument, ...] = ()
    uncertain: tuple[str, ...] = ()
    bounds: tuple[KernelBounds, ...] = ()
    exporter: str = ""


class _Way(NamedTuple):
    """How the model is run."""

    repeats: int
    warmups: int
    threads: int
    streams: int
    kernels: bool


@click.command("evaluate", cls=SectionedCommand, sections=_SECTIONS, short_help="Time a tuned model.")
@click.argument("executable", metavar="FILE.kt")
@click.option("--input", "inputs", metavar="FILE.npz", help="Run on these inputs.  [default: random ones]")
@click.option("--repeats", type=click.IntRange(min=1), default=50, show_default=True, help="Timed runs of a stream.")
@click.option("--warmups", type=click.IntRange(min=0), default=3, show_default=True, help="Untimed runs before them.")
@click.option("--threads", type=click.IntRange(1, 4096), help="Threads of a run.  [default: as tuned]")
@click.option("--streams", type=click.IntRange(1, 1024), default=1, show_default=True, help="Concurrent requests.")
@click.option("--kernels", is_flag=True, help="Time each kernel inside the network too.")
@click.option("--variant", type=click.IntRange(min=0), help="Time this variant.  [default: the best for this CPU]")
@trusted_option
@json_option
def command(
    executable: str,
    inputs: str | None,
    repeats: int,
    warmups: int,
    threads: int | None,
    streams: int,
    kernels: bool,
    variant: int | None,
    trusted: str | None,
    json_target: JsonTarget,
) -> None:
    """Time the tuned model FILE.kt: the median of repeated runs and their spread.

    With --streams N, N threads of this process send requests at once, each to a context of its own, which shows the
    throughput.  Of a file for several CPUs (see 'kintune merge'), it says what there is and what was picked.  A model
    that runs with several combinations of shapes is timed with each, or with that of the inputs given; one for any
    shapes in a range with the greatest and some others.  Of a model that runs partly in onnxruntime, it says what runs
    where, and --kernels times its nodes.

    FILE.kt holds machine code: run only what you trust.
    """
    arrays = None if inputs is None else read_arrays(inputs)
    opened = opening.open(executable, variant, trusted=trusted)
    if kernels and not isinstance(opened, Executable | HybridExecutable):
        raise InputError(f"{executable}: for a GPU, where kernels are not timed one by one; leave out --kernels")
    warn_of_held_cores()
    way = _Way(repeats, warmups, threads or 0, streams, kernels)
    combinations = _combinations(opened.manifest)
    given: list[tuple[Combination | None, _Inputs]]
    if len(combinations) == 1:
        given = [(None, () if arrays is None else (arrays,))]
    elif arrays is None:
        given = [(each, (draw_inputs(each.inputs),)) for each in combinations]
    elif opened.manifest.drawn:
        given = [(_shaped(opened.manifest, {name: np.shape(array) for name, array in arrays.items()}), (arrays,))]
    else:
        given = [(combinations[choose_plan([each.inputs for each in combinations], [arrays])], (arrays,))]
    documents = [_document(executable, opened, each, chosen, way) for each, chosen in given]
    document = documents[0]
    if len(documents) > 1:
        document = msgspec.structs.replace(document, combinations=tuple(documents))
    write_document(json_target, document)
    for each in documents:
        for line in _lines(each, opened.manifest.threads):
            echo(line, json_target)
    of_file = _bounds_lines, _exporter_lines, _precision_lines, _hybrid_lines, _variant_lines
    for line in (line for lines in of_file for line in lines(document)):
        echo(line, json_target)


def _combinations(manifest: Manifest) -> tuple[Combination, ...]:
    """The combinations of shapes that are timed: all, and of open extents the greatest and some others."""
    return (*manifest.combinations, *(_shaped(manifest, shapes) for shapes in manifest.drawn))


def _shaped(manifest: Manifest, shapes: Mapping[str, tuple[int, ...]]) -> Combination:
    """Inputs of these shapes, where extents are open; others are as they are."""
    inputs = (msgspec.structs.replace(t, shape=shapes.get(t.name, t.shape), ranges=()) for t in manifest.inputs)
    return Combination(tuple(inputs), manifest.outputs)


def _document(
    executable: str, opened: opening.AnyExecutable, combination: Combination | None, inputs: _Inputs, way: _Way
) -> EvaluateDocument:
    """Time the model on inputs of one combination of shapes."""
    manifest = opened.manifest
    timed = _time(opened, inputs, way)
    calls: tuple[KernelCallTime, ...] = ()
    if way.kernels and isinstance(opened, Executable | HybridExecutable):
        calls = _titled(
            _medians(opened.profiles(*inputs, repeats=max(3, way.repeats), threads=way.threads)), manifest, combination
        )
    chosen, variants = _variants(opened)
    return EvaluateDocument(
        executable=executable,
        model=manifest.model_name,
        threads=way.threads or manifest.threads,
        streams=way.streams,
        median_ms=timed.median_ms,
        p10_ms=timed.p10_ms,
        p90_ms=timed.p90_ms,
        p99_ms=timed.p99_ms,
        spread=timed.spread,
        per_second=timed.per_second,
        times_ms=timed.times_ms,
        kernels=calls,
        variant=chosen,
        variants=variants,
        hybrid=manifest.hybrid,
        narrow=manifest.narrow,
        shapes={} if combination is None else combination.shapes,
        uncertain=_uncertain(timed, calls, is_hybrid=manifest.hybrid is not None),
        bounds=manifest.bounds if manifest.hybrid is None else kernel_bounds(executable),
        exporter=manifest.exporter,
    )


def _time(opened: opening.AnyExecutable, inputs: _Inputs, way: _Way) -> Evaluation:
    """Times runs; where they vary much, once more: those that vary less are returned."""

    def evaluate() -> Evaluation:
        return opened.evaluate(
            *inputs, repeats=way.repeats, warmups=way.warmups, threads=way.threads, streams=way.streams
        )

    first = evaluate()
    return first if first.spread <= _RESTLESS else min(first, evaluate(), key=lambda each: each.spread)


def _uncertain(timed: Evaluation, calls: Sequence[KernelCallTime], *, is_hybrid: bool) -> tuple[str, ...]:
    """Lines on numbers that are out of proportion: runs that vary much, and calls that do not add up to a run."""
    lines = []
    if timed.spread > _RESTLESS:
        lines.append(
            f"8 of 10 runs took {milliseconds(timed.p10_ms)} to {milliseconds(timed.p90_ms)}, also when timed again: "
            "other programs use the cores, or the clock rate changes"
        )
    together_ms = sum(call.median_us for call in calls) / 1e3
    apart_ms = abs(together_ms - timed.median_ms)
    if calls and not is_hybrid and apart_ms > max(0.5 * timed.median_ms, _GAP_OF_CALL_MS * len(calls)):
        lines.append(
            f"a run took {milliseconds(timed.median_ms)}, and its kernels {milliseconds(together_ms)} when timed singly"
        )
    return tuple(lines)


def _medians(runs: Sequence[Sequence[KernelTime]]) -> tuple[KernelCallTime, ...]:
    """Returns each call that was made, by place and kernel, with the median of the runs that made it."""
    times: dict[tuple[int, str], list[float]] = {}
    for run in runs:
        for call in run:
            times.setdefault((call.place, call.kernel), []).append(call.us)
    return tuple(
        KernelCallTime(place=place, kernel=kernel, median_us=statistics.median(us))
        for (place, kernel), us in sorted(times.items())
    )


def _titled(
    calls: Sequence[KernelCallTime], manifest: Manifest, combination: Combination | None
) -> tuple[KernelCallTime, ...]:
    """Returns the calls with the titles of what they compute, as far as the file has these."""
    known = manifest.combinations
    number = known.index(combination) if combination in known else 0
    records = manifest.calls[number] if manifest.calls else ()
    prefix = common_folder({node.name for record in records for node in record.nodes})
    titles = {record.place: title_of(record) for record in records if record.nodes}
    return tuple(
        msgspec.structs.replace(call, title=title.replace(prefix, "") if prefix else title)
        if (title := titles.get(call.place, ""))
        else call
        for call in calls
    )


def _lines(document: EvaluateDocument, tuned_threads: int) -> Iterator[str]:
    runs = len(document.times_ms)
    with_these = f" with {spell_shapes(document.shapes)}" if document.shapes else ""
    yield f"{document.model}{with_these}: {milliseconds(document.median_ms)} (median of {counted(runs, 'run')})"
    if document.streams == 1:
        yield (
            f"8 of 10 runs took {milliseconds(document.p10_ms)} to {milliseconds(document.p90_ms)}; "
            f"the model was tuned for {counted(tuned_threads, 'thread')}"
        )
    else:
        yield (
            f"{document.streams} streams: {document.per_second:.1f} requests a second; 50 of 100 took at most "
            f"{milliseconds(document.median_ms)}, 99 of 100 at most {milliseconds(document.p99_ms)}"
        )
    for line in document.uncertain:
        yield f"Uncertain: {line}."
    if document.kernels:
        yield from _kernel_lines(document)


def _bounds_lines(document: EvaluateDocument) -> Iterator[str]:
    """How many kernels are known to stay inside of their buffers."""
    if said := KernelBounds.described(document.bounds):
        yield said


def _exporter_lines(document: EvaluateDocument) -> Iterator[str]:
    """How a program of PyTorch came here, if not as it is."""
    if document.exporter:
        yield f"The result is made of a program of PyTorch as ONNX, to which {document.exporter} has exported it."


def _variant_lines(document: EvaluateDocument) -> Iterator[str]:
    if len(document.variants) > 1:
        yield f"variant {document.variant} of these was timed:"
        yield from map(describe_variant, document.variants)


def _precision_lines(document: EvaluateDocument) -> Iterator[str]:
    """What computes narrower than the model's types, and with what error."""
    narrow = document.narrow
    if narrow is None:
        return
    parts = [
        f"{counted(count, 'subgraph')} in {name}" for name, count in sorted(Counter(narrow.precisions.values()).items())
    ]
    if narrow.quantised is not None:
        parts.insert(0, f"{narrow.quantised.int8} of {narrow.quantised.products} products in {narrow.quantised.form}")
    error = (
        "" if narrow.error is None else f"; error of its outputs when it was tuned: {narrow.error:.2g} of their norm"
    )
    yield f"Narrower than the model's types: {', '.join(parts)}{error}"


def _hybrid_lines(document: EvaluateDocument) -> Iterator[str]:
    """What runs where, and why the nodes that are left to onnxruntime are there."""
    hybrid = document.hybrid
    if hybrid is None:
        return
    if hybrid.regions:
        nodes = sum(len(region.nodes) for region in hybrid.regions)
        regions, run = counted(len(hybrid.regions), "region"), "runs" if len(hybrid.regions) == 1 else "run"
        yield f"{regions} of {counted(nodes, 'node')} {run} as Kintune's kernels; onnxruntime runs {hybrid.left}"
    else:
        yield f"onnxruntime runs all of it: {hybrid.left}"
    for region in hybrid.regions:
        if region.is_narrow:
            yield f"  subgraphs of {region.name}: {region.described}"
    for why, number in Counter(hybrid.nodes.values()).most_common(_REASONS):
        yield f"  {counted(number, 'node')}: {why}"


def _variants(opened: opening.AnyExecutable) -> tuple[int, tuple[VariantSummary, ...]]:
    """The number of the variant that runs, and all that the file has; none for a GPU."""
    if not isinstance(opened, Executable | HybridExecutable):
        return 0, ()
    return opened.variant.number, tuple(VariantSummary.of(*each) for each in enumerate(opened.variants))


def _kernel_lines(document: EvaluateDocument) -> Iterator[str]:
    """A table of kernels, the longest first: all calls of one together."""
    total = sum(call.median_us for call in document.kernels)
    whole = total or 1.0  # onnxruntime tells whole microseconds: all may be 0
    calls: dict[str, list[float]] = {}
    titles: dict[str, str] = {}
    for call in document.kernels:
        titles.setdefault(call.kernel, call.title or call.kernel)
        calls.setdefault(call.kernel, []).append(call.median_us)
    ranked = sorted(calls.items(), key=lambda item: -sum(item[1]))
    shown = ranked[:_SHOWN]
    rows = []
    for name, times in shown:
        us = sum(times)
        rows.append([titles[name], str(len(times)), milliseconds(us / 1e3), f"{us / whole:.1%}"])
    if rest := ranked[_SHOWN:]:
        us, number = sum(sum(times) for _, times in rest), sum(len(times) for _, times in rest)
        rows.append([f"{len(rest)} more", str(number), milliseconds(us / 1e3), f"{us / whole:.1%}"])
    yield ""
    yield from table_lines(_COLUMNS, rows, output_width())
    calls_take = "The call takes" if len(document.kernels) == 1 else f"All {len(document.kernels)} calls together take"
    yield f"{calls_take} {milliseconds(total / 1e3)}"
