"""`kintune export`: write a tuned model so that another runtime runs it."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.runtime.export_onnx import LIBRARY_NAME, export_onnx

__all__ = ["ExportDocument", "command"]


class ExportDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune export --json`: the network's file, and the library that its runtime must load."""

    schema_version: int = 1
    executable: str
    to: str
    network: str
    library: str


@click.command("export", short_help="Write a tuned model for another runtime.")
@click.argument("executable", metavar="FILE.kt")
@click.argument("folder", metavar="DIR")
@click.option("--to", type=click.Choice(["onnx"]), required=True, help="What it is for; 'onnx' is onnxruntime.")
@json_option
def command(executable: str, folder: str, to: str, json_target: JsonTarget) -> None:
    """Write the tuned model FILE.kt to the new directory DIR so that another runtime runs it.

    For onnxruntime these are an ONNX file with one custom operator, and the library that implements it.
    """
    network = export_onnx(Path(executable), Path(folder))
    library = network.with_name(LIBRARY_NAME)
    write_document(
        json_target, ExportDocument(executable=executable, to=to, network=str(network), library=str(library))
    )
    echo(f"The network is {network}", json_target)
    echo(f"Register the library first: SessionOptions.register_custom_ops_library({str(library)!r})", json_target)
