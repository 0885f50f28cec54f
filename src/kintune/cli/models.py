"""`kintune models`: list the models of the zoo."""

from __future__ import annotations

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.widths import output_width
from kintune.models import zoo
from kintune.terminal.formatting import count
from kintune.terminal.table import Column, table_lines
from kintune.tuning.estimation import count_network_flops

__all__ = ["DESCRIPTIONS", "ModelsDocument", "ZooModel", "command"]

DESCRIPTIONS = {
    "bert_base": "encodes text; transformer encoder, 12 layers",
    "bert_large": "encodes text; transformer encoder, 24 layers",
    "gpt2": "predicts the next token; transformer decoder, 12 layers",
    "mobilenet_v1_0.5": "classifies images; depthwise separable convolutions, half width",
    "mobilenet_v2": "classifies images; inverted residuals",
    "mobilenet_v2_0.5": "classifies images; inverted residuals, half width",
    "resnet18": "classifies images; residual network, 18 layers",
    "resnet50": "classifies images; residual network with bottlenecks, 50 layers",
    "resnet152": "classifies images; residual network with bottlenecks, 152 layers",
    "roberta_large": "encodes text; transformer encoder, 24 layers",
    "vit_base": "classifies images; vision transformer, patches of 16",
    "vit_huge": "classifies images; vision transformer, patches of 14",
}


_COLUMNS = (
    Column("name"),
    Column("parameters", right=True),
    Column("operations", right=True),
    Column("what it is", yields=True),
)


class ZooModel(msgspec.Struct, frozen=True):
    """One network of the zoo with its default options: inputs by name with their shapes, operations of one run."""

    name: str
    description: str
    parameters: int
    flops: float
    inputs: dict[str, tuple[int, ...]]


class ModelsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune models --json`."""

    schema_version: int = 1
    models: tuple[ZooModel, ...]


@click.command("models", short_help="List the models of the zoo.")
@json_option
def command(json_target: JsonTarget) -> None:
    """List the models of the zoo: published networks with random weights from a seed, for tests and examples.

    Use one as zoo:NAME, with options as in zoo:bert_base?batch=8&sequence=64.
    """
    models = tuple(_describe(name) for name in zoo.names())
    write_document(json_target, ModelsDocument(models=models))
    rows = [[m.name, count(m.parameters), count(m.flops, "FLOP"), m.description] for m in models]
    for line in table_lines(_COLUMNS, rows, output_width()):
        echo(line, json_target)


def _describe(name: str) -> ZooModel:
    network = zoo.build(name)
    inputs = {port: shape for port, _, shape in network.inputs}
    return ZooModel(name, DESCRIPTIONS[name], network.parameters, count_network_flops(network), inputs)
