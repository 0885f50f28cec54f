"""`kintune tune`: make a model fast on this machine, or several at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import click

from kintune import api
from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import constant_option, records_option, shape_option
from kintune.core.report import CampaignReport, FailedRun, RunReport
from kintune.errors import InputError, JobFailed, KintuneError
from kintune.files import check_writable
from kintune.terminal.summary import summarize

__all__ = ["command"]

Ending: TypeAlias = "api.Result | KintuneError"


@click.command("tune", short_help="Make a model fast on this machine.")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@shape_option
@constant_option
@click.option("--target", default="native", show_default=True, help="What to tune for; 'native' is this machine.")
@click.option(
    "--device",
    default="cpu",
    show_default=True,
    help="What times programs: 'cpu', which is all cores by turns, or cores of its own: cpu:1, cpu:2-3, cpu:2+cpu:3;"
    " a GPU: cuda, cuda:1.",
)
@click.option("--threads", type=int, help="Threads that the model will run on.  [default: all physical cores]")
@click.option("--trials", type=int, help="Stop after measuring this many programs.  [default: 1000 if no other limit]")
@click.option("--minutes", type=float, help="Stop after this long.")
@click.option("--until-ms", type=float, help="Stop once the model is estimated to take at most this long.")
@click.option(
    "--families", default="op", show_default=True, help="Which subgraphs learn together: op, hash, measured, ind, none."
)
@click.option(
    "--foresee", default="guarded", show_default=True, help="Short rounds for siblings: guarded, published or none."
)
@click.option("--no-carry", is_flag=True, help="Do not try a subgraph's good programs on its siblings.")
@click.option("--no-kin", is_flag=True, help="Do not start from what other networks' subgraphs have taught.")
@click.option("--round-size", type=int, help="Programs of a full round.  [default: 32]")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything drawn at random.")
@click.option("--input", "inputs", metavar="FILE.npz|DIR", help="Compare on these inputs.  [default: random ones]")
@click.option("--rtol", type=float, default=1e-3, show_default=True, help="Relative tolerance of outputs.")
@click.option("--atol", type=float, default=1e-3, show_default=True, help="Absolute tolerance of outputs.")
@records_option
@click.option("--output", metavar="FILE.kt", help="Where the executable goes; a directory if there are several.")
@click.option("--fresh", is_flag=True, help="Neither go on with an unfinished run nor reuse what was measured.")
@click.option("--log", metavar="FILE", help="Where the details go.")
@click.option("--policy", default="predictive", show_default=True, help="Who goes first among several models.")
@click.option("--priority", "priorities", type=float, multiple=True, help="A weight for each model, in their order.")
@click.option("--bundling", is_flag=True, help="A model keeps what its next step needs as well.")
@click.option("--no-pipeline", is_flag=True, help="Never prepare a round while another is measured.")
@click.option("--schedule", metavar="FILE.jsonl", help="Record what is scheduled, for 'kintune simulate'.")
@click.option("--quiet", is_flag=True, help="Show no progress, only the summary.")
@json_option
def command(
    models: tuple[str, ...],
    shapes: tuple[str, ...],
    constants: tuple[str, ...],
    target: str,
    device: str,
    threads: int | None,
    trials: int | None,
    minutes: float | None,
    until_ms: float | None,
    families: str,
    foresee: str,
    no_carry: bool,
    no_kin: bool,
    round_size: int | None,
    seed: int,
    inputs: str | None,
    rtol: float,
    atol: float,
    records: str | None,
    output: str | None,
    fresh: bool,
    log: str | None,
    policy: str,
    priorities: tuple[float, ...],
    bundling: bool,
    no_pipeline: bool,
    schedule: str | None,
    quiet: bool,
    json_target: JsonTarget,
) -> None:
    """Make each MODEL fast on this machine: an ONNX file, a PyTorch exported program (.pt2), or zoo:NAME.

    The result is one file, which 'kintune run' and kintune.open() run anywhere on the same kind of CPU.  Ctrl-C ends
    the search and keeps what was found.  The same command again goes on from what is known.  Several models are tuned
    at once.
    """
    options: dict[str, Any] = {
        "device": device,
        "threads": threads,
        "trials": trials,
        "minutes": minutes,
        "until_ms": until_ms,
        "families": families,
        "foresee": foresee,
        "carry": not no_carry,
        "kin": not no_kin,
        "round_size": round_size,
        "seed": seed,
        "inputs": inputs,
        "rtol": rtol,
        "atol": atol,
        "records": records,
        "fresh": fresh,
        "log": log,
    }
    if len(models) > 1 and (shapes or constants or inputs):
        raise InputError(
            "--shape, --constant and --input are for one model; tune the models that need them by themselves"
        )
    loaded = [api.Model.parse(model, shapes, constants) for model in models]
    endings = api.tune_all(
        loaded,
        target,
        policy=policy,
        priorities=priorities or None,
        bundling=bundling,
        pipelined=not no_pipeline,
        schedule=None if schedule is None else str(check_writable(schedule, "--schedule")),
        output=output,
        progress=not quiet,
        **options,
    )
    document: RunReport | CampaignReport
    if len(endings) == 1:
        (ending,) = endings
        if isinstance(ending, KintuneError):
            raise ending
        document = ending.report
    else:
        document = _document(policy, loaded, endings)
    for ending in endings:
        for line in () if isinstance(ending, KintuneError) else summarize(ending.report):
            echo(line, json_target)
    write_document(json_target, document)  # should that fail, what was found has been said
    _complain(loaded, endings)


def _document(policy: str, models: Sequence[api.Model], endings: Sequence[Ending]) -> CampaignReport:
    return CampaignReport(
        policy=policy,
        runs=tuple(ending.report for ending in endings if not isinstance(ending, KintuneError)),
        failed=tuple(
            FailedRun(model.name, type(ending).__name__, str(ending))
            for model, ending in zip(models, endings, strict=True)
            if isinstance(ending, KintuneError)
        ),
    )


def _complain(models: Sequence[api.Model], endings: Sequence[Ending]) -> None:
    """Raise what says of which models nothing came, and why; InputError if nothing but their input was wrong."""
    failed = [(m.name, e) for m, e in zip(models, endings, strict=True) if isinstance(e, KintuneError)]
    if failed:
        kind = InputError if all(isinstance(error, InputError) for _, error in failed) else JobFailed
        causes = "; ".join(f"{name}: {error}" for name, error in failed)
        raise kind(f"{len(failed)} of {len(models)} models failed: {causes}")
