"""`kintune estimate`: say what tuning a model will take, before doing it."""

from __future__ import annotations

import click

from kintune import api
from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import constant_option, records_option, shape_option
from kintune.terminal.formatting import count, counted, duration, milliseconds, times
from kintune.tuning.estimation import Estimate, estimate_model
from kintune.tuning.forecast import Forecast

__all__ = ["command"]

_HARDLY = 1.05  # times as fast: where no more is likely, a gain is called unlikely
_DISTURBED = 1.4  # by which a baseline's runs differ where other programs use the cores


@click.command("estimate", short_help="Estimate the time and the gain of tuning a model.")
@click.argument("model")
@shape_option
@constant_option
@click.option("--target", default="native", show_default=True, help="What to tune for; 'native' is this machine.")
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Threads that the model will run on.  [default: all physical cores]",
)
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    default=api.DEFAULT_TRIALS,
    show_default=True,
    help="Number of programs that the search measures.",
)
@records_option
@json_option
def command(
    model: str,
    shapes: tuple[str, ...],
    constants: tuple[str, ...],
    target: str,
    threads: int | None,
    trials: int,
    records: str | None,
    json_target: JsonTarget,
) -> None:
    """Estimate tuning of MODEL: operations, a lower bound of the latency, known measurements, the duration.

    The model is imported and split as for tuning, the machine's peak is measured unless the records know it, and other
    runtimes are timed for a second, so that the likely gain can be told.
    """
    estimate = estimate_model(
        api.Model.parse(model, shapes, constants).ref,
        target=target,
        threads=threads,
        trials=trials,
        records=records,
        on_wait=lambda holder: click.echo(f"waiting for the cores, held by process {holder}", err=True),
    )
    write_document(json_target, estimate)
    for line in _lines(estimate):
        echo(line, json_target)


def _lines(estimate: Estimate) -> list[str]:
    peak, known = estimate.peak, estimate.known
    run = (
        f"for one run with each of {estimate.combinations} combinations of shapes"
        if estimate.combinations > 1
        else "a run"
    )
    lines = [
        f"{estimate.model}: {count(estimate.flops, 'FLOP')} {run}, {count(estimate.weight_bytes, 'B')} of weights; "
        f"{counted(estimate.subgraphs, 'distinct subgraph')}, {estimate.tunable} of them worth tuning",
        f"With {counted(estimate.threads, 'thread')} this machine does {count(peak.gflops * 1e9, 'FLOP')} and reads "
        f"{count(peak.gbytes_per_s * 1e9, 'B')} a second, so no program takes less than "
        f"{milliseconds(estimate.bound_ms)}",
    ]
    if known.measurements:
        reach = f"; with the best, about {milliseconds(known.latency_ms)}" if known.latency_ms else ""
        covered = f"{known.workloads} of the {counted(estimate.subgraphs, 'subgraph')}"
        lines.append(f"The records have {counted(known.measurements, 'program')} for {covered}{reach}")
    else:
        lines.append("The records have no measurements of its subgraphs yet")
    lines.extend(_foretold(estimate.forecast))
    basis = "from past runs" if estimate.judged_by_runs else "a rough guess, since there is no past run"
    first = f", {duration(estimate.baseline_seconds)} of it for other runtimes" if estimate.baseline_seconds else ""
    trials = "1 trial takes" if estimate.trials == 1 else f"{estimate.trials} trials take"
    lines.append(f"{trials} about {duration(estimate.seconds)}{first} ({basis})")
    return lines


def _foretold(found: Forecast | None) -> list[str]:
    """What tuning will likely reach, and whether it pays."""
    if found is None or found.high_ms <= 0:
        return []
    basis = f"from {counted(found.judged_by, 'subgraph')} tuned here before"
    if not found.judged_by:
        basis = "a rough guess, since nothing was tuned here before"
    reach = f"it will likely take {milliseconds(found.low_ms)} to {milliseconds(found.high_ms)}"
    if found.baseline is None or (gains := found.gains) is None:
        return [f"Tuned, {reach} ({basis})"]
    pays = ""
    if found.spread > _DISTURBED:
        pays = "; other programs use the cores, so this is uncertain"
    elif gains[1] < _HARDLY:
        pays = "; a gain is unlikely"
    elif gains[0] < 1.0:
        pays = "; a gain is uncertain"
    return [
        f"{found.baseline.name} takes {milliseconds(found.baseline.ms)}; tuned, {reach}, {times(gains[0])} to "
        f"{times(gains[1])} as fast ({basis}){pays}"
    ]
