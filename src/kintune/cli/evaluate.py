"""`kintune evaluate`: time a tuned model."""

from __future__ import annotations

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.merge import VariantSummary, describe_variant
from kintune.cli.run import read_arrays
from kintune.runtime import opening
from kintune.runtime.executable import Executable
from kintune.terminal.formatting import milliseconds

__all__ = ["EvaluateDocument", "command"]


class EvaluateDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune evaluate --json`: milliseconds, medians and percentiles of the timed runs, in order.

    `variants` are those of a file for CPUs, `variant` is the number of the one that was timed; 0 for a GPU.
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
    variant: int = 0
    variants: tuple[VariantSummary, ...] = ()


@click.command("evaluate", short_help="Time a tuned model.")
@click.argument("executable", metavar="FILE.kt")
@click.option("--input", "inputs", metavar="FILE.npz", help="Run on these inputs.  [default: random ones]")
@click.option("--repeats", type=click.IntRange(min=1), default=50, show_default=True, help="Timed runs.")
@click.option("--warmups", type=click.IntRange(min=0), default=3, show_default=True, help="Untimed runs before them.")
@click.option("--variant", type=click.IntRange(min=0), help="Time this variant.  [default: the best for this CPU]")
@json_option
def command(
    executable: str, inputs: str | None, repeats: int, warmups: int, variant: int | None, json_target: JsonTarget
) -> None:
    """Time the tuned model FILE.kt: the median of repeated runs and their spread.

    Of a file for several CPUs (see 'kintune merge'), it says what there is and what was picked.

    FILE.kt holds machine code: run only what you trust.
    """
    arrays = () if inputs is None else (read_arrays(inputs),)
    opened = opening.open(executable, variant)
    timed = opened.evaluate(*arrays, repeats=repeats, warmups=warmups)
    manifest = opened.manifest
    chosen, variants = _variants(opened)
    document = EvaluateDocument(
        executable=executable,
        model=manifest.model_name,
        threads=manifest.threads,
        median_ms=timed.median_ms,
        p10_ms=timed.p10_ms,
        p90_ms=timed.p90_ms,
        spread=timed.spread,
        times_ms=timed.times_ms,
        variant=chosen,
        variants=variants,
    )
    write_document(json_target, document)
    runs = len(timed.times_ms)
    echo(f"{manifest.model_name}: {milliseconds(timed.median_ms)} (median of {runs} runs)", json_target)
    echo(
        f"8 of 10 runs took {milliseconds(timed.p10_ms)} to {milliseconds(timed.p90_ms)}; "
        f"the model was tuned for {manifest.threads} threads",
        json_target,
    )
    if len(variants) > 1:
        echo(f"variant {chosen} of these was timed:", json_target)
        for each in variants:
            echo(describe_variant(each), json_target)


def _variants(opened: opening.AnyExecutable) -> tuple[int, tuple[VariantSummary, ...]]:
    """The number of the variant that runs, and all that the file has; none for a GPU."""
    if not isinstance(opened, Executable):
        return 0, ()
    return opened.variant.number, tuple(VariantSummary.of(*each) for each in enumerate(opened.variants))
