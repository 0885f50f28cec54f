"""`kintune evaluate`: time a tuned model."""

from __future__ import annotations

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.run import read_arrays
from kintune.runtime import opening
from kintune.terminal.formatting import milliseconds

__all__ = ["EvaluateDocument", "command"]


class EvaluateDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune evaluate --json`: milliseconds, medians and percentiles of the timed runs, in order."""

    schema_version: int = 1
    executable: str
    model: str
    threads: int
    median_ms: float
    p10_ms: float
    p90_ms: float
    spread: float
    times_ms: tuple[float, ...]


@click.command("evaluate", short_help="Time a tuned model.")
@click.argument("executable", metavar="FILE.kt")
@click.option("--input", "inputs", metavar="FILE.npz", help="Run on these inputs.  [default: random ones]")
@click.option("--repeats", type=click.IntRange(min=1), default=50, show_default=True, help="Timed runs.")
@click.option("--warmups", type=click.IntRange(min=0), default=3, show_default=True, help="Untimed runs before them.")
@json_option
def command(executable: str, inputs: str | None, repeats: int, warmups: int, json_target: JsonTarget) -> None:
    """Time the tuned model FILE.kt: the median of repeated runs and their spread.

    FILE.kt holds machine code: run only what you trust.
    """
    arrays = () if inputs is None else (read_arrays(inputs),)
    opened = opening.open(executable)
    timed = opened.evaluate(*arrays, repeats=repeats, warmups=warmups)
    manifest = opened.manifest
    document = EvaluateDocument(
        executable=executable,
        model=manifest.model_name,
        threads=manifest.threads,
        median_ms=timed.median_ms,
        p10_ms=timed.p10_ms,
        p90_ms=timed.p90_ms,
        spread=timed.spread,
        times_ms=timed.times_ms,
    )
    write_document(json_target, document)
    runs = len(timed.times_ms)
    echo(f"{manifest.model_name}: {milliseconds(timed.median_ms)} (median of {runs} runs)", json_target)
    echo(
        f"8 of 10 runs took {milliseconds(timed.p10_ms)} to {milliseconds(timed.p90_ms)}; "
        f"the model was tuned for {manifest.threads} threads",
        json_target,
    )
