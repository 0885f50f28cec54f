"""`kintune fuzz`: draw models, compile them, and compare them with references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.errors import InputError
from kintune.files import check_writable
from kintune.models.torch_export import require_torch
from kintune_lab.fuzz.campaign import Campaign, CampaignCounts

__all__ = ["command"]

_FAULTS_FOUND = 1


@click.command("fuzz", short_help="Draw models, compile them, compare the results.")
@click.argument("what", type=click.Choice(["onnx", "torch", "quantised", "candidates", "open"]))
@click.option("--graphs", type=click.IntRange(min=1), default=1000, show_default=True, help="How many to draw.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of what is drawn.")
@click.option("--processes", type=click.IntRange(min=1), default=1, help="How many try them.  [default: 1]")
@click.option("-o", "--output", metavar="DIR", default="fuzz", show_default=True, help="The results' folder.")
@json_option
def command(what: str, **options: Any) -> int:
    """Draw models at random, compile them without measuring, and compare them with references.

    ONNX graphs are compared with onnxruntime and with ONNX's reference implementation, PyTorch's programs with eager
    mode.  "quantised" draws quantised graphs, and compiles each for all instructions for products of bytes that this
    CPU has; "candidates" takes a candidate of the search, drawn at random, for each subgraph of an ONNX graph;
    "open" makes one or two extents of an ONNX graph open, and compares at five of each.

    Model N depends on the seed and N alone.  A run that was interrupted goes on by the same command.  The smallest part
    of each model that fails is in DIR/faults.  The exit code is 1 if there are faults.
    """
    if what == "torch":
        require_torch()
    return _run(what, **options)


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


def _lines(counts: CampaignCounts) -> list[str]:
    mean = counts.nodes / counts.graphs if counts.graphs else 0.0
    lines = [counts.line(0, 0).rpartition(";")[0], f"{mean:.1f} nodes a graph, {len(counts.operators)} operators"]
    lines += [f"{number} x {signature}" for signature, number in counts.signatures.most_common()]
    for what, found in (
        ("refused", counts.refused),
        ("graphs refused", counts.refused_graphs),
        ("the references differ", counts.disputed),
        ("programs", counts.programs),
        ("refused while they were built", counts.unbuilt),
    ):
        if found:
            lines.append(f"{what}: " + ", ".join(f"{name} x{number}" for name, number in found.most_common()))
    return lines
