"""`kintune fuzz`: draw models, compile them, and compare them with references."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.errors import InputError
from kintune.files import check_writable
from kintune.models.torch_export import require_torch
from kintune_lab.fuzz.campaign import Campaign, Counts

__all__ = ["command"]

_FAULTS_FOUND = 1


@click.group("fuzz", short_help="Draw models, compile them, compare them with references.")
def command() -> None:
    """Draw models at random, compile them without measuring, and compare them with references."""


def _options(command: Callable[..., int]) -> Callable[..., int]:
    """The options of all kinds of models."""
    for option in (
        json_option,
        click.option("-o", "--output", metavar="DIR", default="fuzz", show_default=True, help="The results' folder."),
        click.option("--processes", type=click.IntRange(min=1), default=1, help="How many try them.  [default: 1]"),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of what is drawn."),
        click.option("--graphs", type=click.IntRange(min=1), default=1000, show_default=True, help="How many to draw."),
    ):
        command = option(command)
    return command


@command.command("onnx")
@_options
def onnx(**options: Any) -> int:
    """Draw ONNX graphs, and compare their results with onnxruntime's and those of ONNX's reference implementation.

    Graph N depends on the seed and N alone.  A run that was interrupted goes on by the same command.  The smallest part
    of each graph that fails is in DIR/faults.  The exit code is 1 if there are faults.
    """
    return _run("onnx", **options)


@command.command("torch")
@_options
def torch(**options: Any) -> int:
    """Draw PyTorch programs, and compare their results with those of PyTorch in eager mode.

    Everything else is as for graphs: 'kintune fuzz onnx --help'.
    """
    require_torch()
    return _run("torch", **options)


def _run(what: str, graphs: int, seed: int, processes: int, output: str, json_target: JsonTarget) -> int:
    folder = Path(output)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"--output {output}: the folder cannot be created: {error.strerror}") from error
    check_writable(folder / "log", "--output")
    campaign = Campaign(what, graphs, seed, folder, processes, lambda line: click.echo(line, err=True))
    counts = campaign.run()
    write_document(json_target, counts)
    for line in _lines(counts):
        echo(line, json_target)
    return _FAULTS_FOUND if counts.faults else 0


def _lines(counts: Counts) -> list[str]:
    mean = counts.nodes / counts.graphs if counts.graphs else 0.0
    lines = [counts.line(0, 0).rpartition(";")[0], f"{mean:.1f} nodes a graph, {len(counts.operators)} operators"]
    lines += [f"{number} x {signature}" for signature, number in counts.signatures.most_common()]
    for what, found in (("refused", counts.refused), ("the references differ", counts.disputed)):
        if found:
            lines.append(f"{what}: " + ", ".join(f"{name} x{number}" for name, number in found.most_common()))
    return lines
