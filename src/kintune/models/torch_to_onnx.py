"""Has PyTorch export a program to an ONNX file, for what works on ONNX graphs."""

from __future__ import annotations

import ast
import os
import re
from importlib.metadata import version
from pathlib import Path

from kintune.core.candidate import digest_of
from kintune.core.model import ModelRef
from kintune.errors import ModelError, cause_line
from kintune.models.exported_program import digest_of_program, fit_constants, open_program, output_names
from kintune.models.quiet import quiet
from kintune.models.ref import ONNX
from kintune.models.torch_export import EXPORTER, require_exporter, require_torch
from kintune.runtime.stored_zip import folder_beside

__all__ = ["exported_to_onnx", "exporter"]

_MISSING = re.compile(r"No ONNX function found for <OpOverload\(op='([^']+)'")
_SCOPES = "pkg.torch.onnx.name_scopes"


def exporter() -> str:
    """What exports a program, with versions."""
    return f"PyTorch {version('torch')} with {EXPORTER} {version(EXPORTER)}"


def exported_to_onnx(ref: ModelRef, beside: str, suffix: str) -> ModelRef:
    """Return the model as an ONNX file that begins with the path `beside`, and then has a digest and the suffix.

    The file is written unless there is one of the same program and exporter.  Open dimensions stay open, and inputs and
    outputs have the names that they have without an export.  Nodes are named after the user's modules.

    Raises:
        OrderError: PyTorch, or its exporter, is not installed.
        ModelError: the program cannot be read or exported, or a shape or constant does not fit it.
    """
    require_torch()
    require_exporter(f"{ref.source}: what works on ONNX graphs")
    digest = digest_of(digest_of_program(Path(ref.source), {}, {}).encode(), exporter().encode())
    written = Path(f"{beside}.{digest[:12]}{suffix}")
    if not written.exists():
        with folder_beside(written, "kintune-exported-") as directory:
            _write(ref, Path(directory, written.name))
            for made in sorted(Path(directory).iterdir(), reverse=True):  # large weights in a file before what names it
                os.replace(made, written.with_name(made.name))
    return ModelRef(ONNX, str(written), ref.name, ref.shapes, {}, ref.constants, True, ref.more_shapes)


def _write(ref: ModelRef, path: Path) -> None:
    """Export a program of PyTorch into a file; weights of more than 1.8 GB go into another one beside it."""
    import torch

    from kintune.models.torch_converters.prepare import prepare  # it imports PyTorch, which need not be installed

    with quiet():
        program = open_program(Path(ref.source))
        prepare(ref.source, program, ref.shapes, fit_constants(ref.source, program, ref.constants))  # it may refuse it
        names = output_names(program)
        try:
            made = torch.onnx.export(program, dynamo=True, verbose=False, output_names=names)
            if [value.name for value in made.model.graph.outputs] != names:
                raise ValueError(f"it has other outputs then than {', '.join(names)}")
            for node in made.model.graph.all_nodes():
                scopes = ast.literal_eval(node.metadata_props.get(_SCOPES, "[]"))
                node.name = "/".join([*scopes[-2:-1], node.name or ""])
                node.metadata_props.clear()  # it holds paths of this machine
            made.save(path)
        except Exception as error:  # the exporter raises exceptions of many types
            missing = _MISSING.search(str(error))
            why = f"PyTorch has no ONNX function for {missing[1]}" if missing else cause_line(_first(error))
            raise ModelError(f"{ref.source}: PyTorch cannot export it to ONNX: {why}") from error


def _first(error: BaseException) -> BaseException:
    """The exception from which this one was raised."""
    return error if error.__cause__ is None else _first(error.__cause__)
