"""`kintune evaluate`: time a tuned model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.run import read_arrays
from kintune.core.model import Combination, spell_shapes
from kintune.runtime import opening
from kintune.runtime.inputs import draw_inputs
from kintune.runtime.package import Manifest
from kintune.terminal.formatting import milliseconds
from kintune_runtime import Evaluation
from kintune_runtime.inputs import choose_plan

__all__ = ["EvaluateDocument", "command"]


class EvaluateDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune evaluate --json`: milliseconds, medians and percentiles of the timed runs, in order.

    Of a model that runs with several combinations of shapes, `shapes` says which one was timed.  Where all were,
    `combinations` has a document of each, and the times are those of the first.
    """

    schema_version: int = 1
    executable: str
    model: str
    threads: int
    median_ms: float
    p10_ms: float
    p90_ms: float
    spread: float
    times_ms: tuple[float, ...]
    shapes: dict[str, tuple[int, ...]] = {}
    combinations: tuple[EvaluateDocument, ...] = ()


@click.command("evaluate", short_help="Time a tuned model.")
@click.argument("executable", metavar="FILE.kt")
@click.option("--input", "inputs", metavar="FILE.npz", help="Run on these inputs.  [default: random ones]")
@click.option("--repeats", type=click.IntRange(min=1), default=50, show_default=True, help="Timed runs.")
@click.option("--warmups", type=click.IntRange(min=0), default=3, show_default=True, help="Untimed runs before them.")
@json_option
def command(executable: str, inputs: str | None, repeats: int, warmups: int, json_target: JsonTarget) -> None:
    """Time the tuned model FILE.kt: the median of repeated runs and their spread.

    A model that runs with several combinations of shapes is timed with each, or with that of the inputs given.

    FILE.kt holds machine code: run only what you trust.
    """
    arrays = None if inputs is None else read_arrays(inputs)
    opened = opening.open(executable)
    manifest = opened.manifest
    combinations = manifest.combinations
    given: list[tuple[Combination | None, tuple[Mapping[str, Any], ...]]]
    if len(combinations) == 1:
        given = [(None, () if arrays is None else (arrays,))]
    elif arrays is None:
        given = [(each, (draw_inputs(each.inputs),)) for each in combinations]
    else:
        given = [(combinations[choose_plan([each.inputs for each in combinations], [arrays])], (arrays,))]
    documents = [
        _document(executable, manifest, each, opened.evaluate(*chosen, repeats=repeats, warmups=warmups))
        for each, chosen in given
    ]
    document = documents[0]
    if len(documents) > 1:
        document = msgspec.structs.replace(document, combinations=tuple(documents))
    write_document(json_target, document)
    for each in documents:
        with_these = f" with {spell_shapes(each.shapes)}" if each.shapes else ""
        runs = len(each.times_ms)
        echo(f"{each.model}{with_these}: {milliseconds(each.median_ms)} (median of {runs} runs)", json_target)
        echo(
            f"8 of 10 runs took {milliseconds(each.p10_ms)} to {milliseconds(each.p90_ms)}; "
            f"the model was tuned for {each.threads} threads",
            json_target,
        )


def _document(
    executable: str, manifest: Manifest, combination: Combination | None, timed: Evaluation
) -> EvaluateDocument:
    return EvaluateDocument(
        executable=executable,
        model=manifest.model_name,
        threads=manifest.threads,
        median_ms=timed.median_ms,
        p10_ms=timed.p10_ms,
        p90_ms=timed.p90_ms,
        spread=timed.spread,
        times_ms=timed.times_ms,
        shapes={} if combination is None else combination.shapes,
    )
