"""`kintune export`: write a tuned model so that programs without Kintune run it."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.errors import InputError

__all__ = ["ExportDocument", "command"]


class ExportDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune export --json`: what was written, and the library that its runtime must load, if any."""

    schema_version: int = 1
    executable: str
    to: str
    network: str
    library: str = ""


@click.command("export", short_help="Write a tuned model for programs without Kintune.")
@click.argument("executable", metavar="FILE.kt")
@click.argument("folder", metavar="DIR")
@click.option(
    "--to",
    type=click.Choice(["c", "onnx", "wheel"]),
    required=True,
    help="c: a library and headers; onnx: an operator for onnxruntime; wheel: a Python package.",
)
@click.option("--name", default="", help="The name of the Python package.  [default: the model's name]")
@click.option(
    "--runtime",
    metavar="WHEEL",
    default="",
    help="Take the runtime from this wheel of kintune-runtime, for a model of another machine.  [default: that here]",
)
@json_option
def command(executable: str, folder: str, to: str, name: str, runtime: str, json_target: JsonTarget) -> None:
    """Write the tuned model FILE.kt to the new directory DIR so that programs without Kintune run it.

    For C and C++ these are the model, a library, two headers and an example that CMake builds.  For onnxruntime they
    are an ONNX file with custom operators, the library that implements them, and the model.  For Python it is a wheel
    that needs numpy alone, and onnxruntime where the model runs partly in that.
    """
    if name and to != "wheel":
        raise InputError(f"--name is for wheels; leave it out with --to {to}")
    model, there, wheel = Path(executable), Path(folder), Path(runtime) if runtime else None
    if to == "c":
        from kintune.runtime.exports.c_library import LIBRARY_NAME, export_c

        written = export_c(model, there, wheel)
        library = written / LIBRARY_NAME
        there_quoted = shlex.quote(str(written))
        advice = (
            f"Build and run the example: cd {there_quoted} && cc example.c -L. -lkintune '-Wl,-rpath,$ORIGIN' && "
            "./a.out"
        )
    elif to == "onnx":
        from kintune.runtime.exports.onnx_operator import LIBRARY_NAME, export_onnx

        written = export_onnx(model, there, wheel)
        library = written.with_name(LIBRARY_NAME)
        advice = f"Register the library first: SessionOptions.register_custom_ops_library({str(library)!r})"
    else:
        from kintune.runtime.exports.wheel import export_wheel

        written, library = export_wheel(model, there, name, wheel), None
        package = written.name.partition("-")[0]
        advice = f"Install it with pip; then: import {package}; {package}.load().run(...)"
    document = ExportDocument(
        executable=executable, to=to, network=str(written), library="" if library is None else str(library)
    )
    write_document(json_target, document)
    echo(f"The result is {written}", json_target)
    echo(advice, json_target)
