"""`kintune tune`: make a model fast on this machine, or several at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from kintune.cli.document import JsonTarget, echo, json_option
from kintune.cli.options import (
    config_options,
    constant_option,
    policy_option,
    quiet_option,
    shape_option,
    verbose_option,
)
from kintune.cli.progress import showing
from kintune.cli.run_reports import RunReports
from kintune.cli.sections import TUNE_SECTIONS, SectionedCommand
from kintune.core.config import TuneConfig
from kintune.core.constraints import fields_of
from kintune.errors import EngineError, InputError, JobFailed, KintuneError, StorageError
from kintune.files import check_writable
from kintune.terminal.summary import summarize
from kintune.workers.engine.interrupts import ending_by_signals

if TYPE_CHECKING:
    from kintune import api

__all__ = ["command"]

_LIKE_SHAPE = re.compile(r".+=(\d+x)*\d+")

_Ending: TypeAlias = "api.Result | KintuneError"


@click.command("tune", cls=SectionedCommand, sections=TUNE_SECTIONS, short_help="Make a model fast on this machine.")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@shape_option
@constant_option
@config_options([name for name in fields_of(TuneConfig) if name != "priority"])
@policy_option("Which of several models is scheduled first")
@click.option("--priority", "priorities", type=float, multiple=True, help="A priority for each model, in their order.")
@click.option("--bundling", is_flag=True, help="Reserve the resources of a model's next stage with the current ones.")
@click.option("--no-pipeline", is_flag=True, help="Do not prepare a round while another is measured.")
@click.option("--schedule", metavar="FILE.jsonl", help="Record the schedule, for 'kintune simulate'.")
@quiet_option
@verbose_option
@json_option
def command(
    models: tuple[str, ...],
    shapes: tuple[str, ...],
    constants: tuple[str, ...],
    policy: str,
    priorities: tuple[float, ...],
    bundling: bool,
    no_pipeline: bool,
    schedule: str | None,
    quiet: bool,
    verbose: bool,
    json_target: JsonTarget,
    **options: Any,
) -> None:
    """Make each MODEL fast on this machine: an ONNX file, a PyTorch exported program (.pt2), or zoo:NAME.

    The result is one file, which 'kintune run' and kintune.open() run anywhere on the same kind of CPU; what was done
    stands in a report beside it.  Ctrl-C, or a signal to end, ends the search and keeps what was found; a second one
    ends it at once.  The same command again goes on from what is known.  Several models are tuned at once.
    """
    from kintune import api  # with numpy, which --help does not need

    if shapes and (left := [model for model in models if _LIKE_SHAPE.fullmatch(model)]):
        raise InputError(
            f"{left[0]} is not a model: the shell has expanded the braces of --shape; put its text in quotes, "
            "as in --shape 'ids=1x{32,64}'"
        )
    if len(models) > 1 and (shapes or constants or options["inputs"] or options["calibrate"]):
        raise InputError(
            "--shape, --constant, --input and --calibrate are for one model; tune the models that need them by "
            "themselves"
        )
    loaded = [api.Model.parse(model, shapes, constants) for model in models]
    strict = options.pop("strict")
    config = TuneConfig(**options)
    reports = RunReports(loaded, config, json_target, policy)
    with showing([model.name for model in loaded], quiet=quiet, verbose=verbose) as progress, ending_by_signals():
        try:
            endings = api.tune_all(
                loaded,
                config=config,
                policy=policy,
                priorities=priorities or None,
                bundling=bundling,
                pipelined=not no_pipeline,
                schedule=None if schedule is None else str(check_writable(schedule, "--schedule", stream=True)),
                progress=progress,
                on_failure=reports.failed,
                return_exceptions=True,
            )
        except (EngineError, StorageError) as error:
            reports.write([error] * len(loaded))
            raise
    problem = reports.write([ending if isinstance(ending, KintuneError) else ending.report for ending in endings])
    for number, ending in enumerate(endings):
        for line in () if isinstance(ending, KintuneError) else summarize(ending.report, reports.written(number)):
            echo(line, json_target)
    if len(endings) == 1 and isinstance(endings[0], KintuneError):
        raise endings[0]
    if problem is not None:  # what was found has been said
        raise problem
    _complain(loaded, endings)
    for ending in endings:
        if strict and not isinstance(ending, KintuneError):
            api.refuse_doubts(ending.report)


def _complain(models: Sequence[api.Model], endings: Sequence[_Ending]) -> None:
    """Raise an error that names the models without a result, with the causes, if there are any.

    Raises:
        InputError: all causes are wrong inputs, or files that cannot be written.
        JobFailed: some are not.
    """
    failed = [(m.name, e) for m, e in zip(models, endings, strict=True) if isinstance(e, KintuneError)]
    if failed:
        kind = InputError if all(isinstance(error, InputError | StorageError) for _, error in failed) else JobFailed
        causes = "; ".join(f"{name}: {error}" for name, error in failed)
        raise kind(f"{len(failed)} of {len(models)} models failed: {causes}")
