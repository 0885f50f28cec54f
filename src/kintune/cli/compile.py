"""`kintune compile`: an executable in seconds, from what is known."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from kintune import api
from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import config_options, constant_option, quiet_option, shape_option, verbose_option
from kintune.cli.progress import showing
from kintune.cli.sections import TUNE_SECTIONS, SectionedCommand
from kintune.core.config import COMPILE_FIELDS, TuneConfig
from kintune.terminal.summary import summarize
from kintune.workers.engine.interrupts import ending_by_signals

__all__ = ["command"]


@click.command(
    "compile", cls=SectionedCommand, sections=TUNE_SECTIONS, short_help="Compile a model in seconds, without measuring."
)
@click.argument("model")
@shape_option
@constant_option
@config_options(
    COMPILE_FIELDS,
    help={
        "target": "What to compile for; 'native' is this machine.",
        "device": "The device that the result runs on, as for 'kintune tune'.",
        "seed": "Seed of random inputs.",
        "output": "The executable to write.",
    },
)
@quiet_option
@verbose_option
@json_option
def command(
    model: str,
    shapes: tuple[str, ...],
    constants: tuple[str, ...],
    quiet: bool,
    verbose: bool,
    json_target: JsonTarget,
    **options: Any,
) -> None:
    """Compile MODEL without measuring anything: an ONNX file, a PyTorch exported program (.pt2), or zoo:NAME.

    Each subgraph gets the fastest program that was ever measured for this device, else one by rule.  The result runs
    once and is compared with onnxruntime or PyTorch.  With a narrower precision, or weights of fewer bits, the error at
    the outputs is measured, and the network is timed against the one in fp32.  'kintune tune' starts with these steps,
    then searches.
    """
    loaded = api.Model.parse(model, shapes, constants)
    with showing([loaded.name], quiet=quiet, verbose=verbose) as progress, ending_by_signals():
        show = partial(progress, 0) if callable(progress) else progress
        result = loaded.compile(config=TuneConfig(**{**options, "strict": False}), progress=show)
    for line in summarize(result.report):
        echo(line, json_target)
    write_document(json_target, result.report)
    if options["strict"]:
        api.refuse_doubts(result.report)
