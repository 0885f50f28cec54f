"""`kintune records pretrain`: train family models from everything measured so far."""

from __future__ import annotations

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import records_option
from kintune.cli.widths import output_width
from kintune.errors import InputError
from kintune.records import Damage, Store
from kintune.search.family import algorithms
from kintune.terminal.formatting import counted
from kintune.terminal.table import Column, table_lines
from kintune.transfer.pretrain import LEAST_SAMPLES, Pretrained, pretrain

__all__ = ["PretrainDocument", "PretrainedModel", "command"]

_COLUMNS = (
    Column("family", yields=True),
    Column("workloads", right=True, optional=True),
    Column("samples", right=True, optional=True),
    Column("ranked right", right=True),
    Column("of unseen workloads", right=True),
)


class PretrainedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A family's model: what it was trained on, and which share of pairs it orders correctly.

    `accuracy` is that of samples held out, `unseen` that of whole workloads held out; None where there are none.
    """

    device_type: str
    compiler: str
    features: str
    family: str
    model: str
    workloads: int
    samples: int
    accuracy: float | None
    unseen: float | None

    @classmethod
    def of(cls, trained: Pretrained) -> PretrainedModel:
        """The description of a trained model."""
        version = trained.known.version
        return cls(
            device_type=version.device_type,
            compiler=trained.conditions.compiler,
            features=version.features,
            family=version.family,
            model=version.blob,
            workloads=trained.workloads,
            samples=trained.samples,
            accuracy=trained.accuracy,
            unseen=trained.unseen,
        )


class PretrainDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune records pretrain --json`; `damaged` counts records that were left out."""

    schema_version: int = 1
    records: str
    families: str
    models: tuple[PretrainedModel, ...]
    damaged: int


@click.command("pretrain", short_help="Train the cost models of families from measurements.")
@click.option(
    "--families",
    "algorithm",
    type=click.Choice(algorithms()),
    default="op",
    show_default=True,
    help="How workloads are grouped: by core operator, by all operators, each alone, all together, or by samples.",
)
@click.option("--device", metavar="DIGEST", help="Only for this type of device; the first characters are enough.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the training.")
@records_option
@json_option
def command(algorithm: str, device: str | None, seed: int, records: str | None, json_target: JsonTarget) -> None:
    """Train a cost model for each family of workloads from all measurements, and store it: later runs start from it.

    Times are only comparable on the same type of device with the same compiler, so each has models of its own.  The
    table says how well a model that has not seen them orders two programs of a workload: right is 1, by chance 0.5.
    """
    damage: list[Damage] = []
    with Store.open(records, create=False) as store:
        where = store.where
        device_type = None if device is None else _find_device(store, device)
        # by one thread, so that every machine gets the same models
        trained = pretrain(store, algorithm, device_type=device_type, seed=seed, on_damage=damage.append)
        about = {model.conditions.device_type: _about(store, model.conditions.device_type) for model in trained}
    document = PretrainDocument(
        records=where,
        families=algorithm,
        models=tuple(PretrainedModel.of(model) for model in trained),
        damaged=len({(one.table, one.id) for one in damage}),
    )
    write_document(json_target, document)
    for line in _table(document, about):
        echo(line, json_target)


def _find_device(store: Store, start: str) -> str:
    found = sorted({device for device, _, _ in store.measurements.conditions() if device.startswith(start)})
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(f"--device: nothing was measured on a device type {start}; leave it out to train for all")
    raise InputError(f"--device: {len(found)} device types begin with {start}; give more of the digest")


def _about(store: Store, device_type: str) -> str:
    known = store.devices.get(device_type)
    return f"{known.model}, {counted(known.threads, 'thread')}"


def _table(document: PretrainDocument, about: dict[str, str]) -> list[str]:
    lines: list[str] = []
    if not document.models:
        lines.append(
            f"{document.records}: no family has {LEAST_SAMPLES} measured programs with features; "
            "tune a model or import records first"
        )
    group = ("", "", "")
    width = output_width()
    head, *rows = table_lines(_COLUMNS, [_row(model) for model in document.models], width and max(0, width - 2))
    for model, row in zip(document.models, rows, strict=True):
        conditions = (model.device_type, model.compiler, model.features)
        if conditions != group:
            group = conditions
            lines.append(f"{about[model.device_type]} ({model.device_type[:8]}), {model.compiler}")
            lines.append(f"  {head}")
        lines.append(f"  {row}")
    if document.damaged:
        records = "record" if document.damaged == 1 else "records"
        lines.append(f"left out {document.damaged} damaged {records}; 'kintune records check' says which")
    return lines


def _row(model: PretrainedModel) -> tuple[str, ...]:
    return (
        model.family,
        str(model.workloads),
        str(model.samples),
        _share(model.accuracy),
        _share(model.unseen),
    )


def _share(accuracy: float | None) -> str:
    return "-" if accuracy is None else f"{accuracy:.3f}"
