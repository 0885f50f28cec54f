"""`kintune compile`: an executable in seconds, from what is known."""

from __future__ import annotations

from typing import Any

import click

from kintune import api
from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import config_options, constant_option, shape_option
from kintune.core.config import COMPILE_FIELDS, TuneConfig
from kintune.terminal.summary import summarize

__all__ = ["command"]


@click.command("compile", short_help="Compile a model in seconds, without measuring.")
@click.argument("model")
@shape_option
@constant_option
@config_options(
    COMPILE_FIELDS,
    help={
        "target": "What to compile for; 'native' is this machine.",
        "device": "What it will run on, as for 'kintune tune'.",
        "seed": "Seed of the inputs that are drawn.",
        "output": "Where the executable goes.",
    },
)
@click.option("--quiet", is_flag=True, help="Show no progress, only the summary.")
@json_option
def command(
    model: str,
    shapes: tuple[str, ...],
    constants: tuple[str, ...],
    quiet: bool,
    json_target: JsonTarget,
    **options: Any,
) -> None:
    """Compile MODEL without measuring anything: an ONNX file, a PyTorch exported program (.pt2), or zoo:NAME.

    Each subgraph gets the fastest program that was ever measured for this device, else one by rule.  The result runs
    once and is compared with onnxruntime or PyTorch.  'kintune tune' begins with the same, and goes on from there.
    """
    result = api.Model.parse(model, shapes, constants).compile(config=TuneConfig(**options), progress=not quiet)
    for line in summarize(result.report):
        echo(line, json_target)
    write_document(json_target, result.report)
