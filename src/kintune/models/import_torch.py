"""Imports a PyTorch exported program into a Relax module."""

from __future__ import annotations

from pathlib import Path

from kintune.core.model import ModelRef
from kintune.errors import ModelError, cause_line
from kintune.models.exported_program import digest_of_program, fit_constants, open_program, output_names
from kintune.models.imported_module import complete_model
from kintune.models.model import ImportedModel
from kintune.models.quiet import quiet
from kintune.models.torch_export import require_torch

__all__ = ["load_exported"]


def load_exported(ref: ModelRef) -> ImportedModel:
    """Import the exported program in the file that `ref` names; weights become constants.

    PyTorch's own reader opens the file, and it may unpickle parts of it: such files are taken from the user alone,
    never from a network.

    Raises:
        OrderError: when PyTorch is not installed.
        ModelError: when the file is damaged or the program cannot be imported; `UnsupportedOperators` lists all
            operators that stand in the way.
        ShapeError: an open dimension that is not bound, or a shape that contradicts the program.
    """
    require_torch()
    # These modules import PyTorch, which need not be installed.
    from kintune.models.torch_converters.prepare import input_names, prepare
    from kintune.models.torch_converters.program import translate

    path = Path(ref.source)
    label = str(path)
    digest = digest_of_program(path, ref.shapes, ref.constants)
    with quiet():
        try:
            program = open_program(path)
            values = fit_constants(label, program, ref.constants)
            program = prepare(label, program, ref.shapes, values)
            names = [name for name in input_names(program) if name not in values], output_names(program)
            imported = translate(label, program, values)
        except ModelError:
            raise
        except Exception as error:  # PyTorch's reader and TVM raise exceptions of many types
            raise ModelError(f"{path}: cannot be imported: {cause_line(error)}") from error
    return complete_model(ref, imported, *names, digest=digest, constants=values, exported_path=label)
