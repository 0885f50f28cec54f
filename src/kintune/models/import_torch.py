"""Imports a PyTorch exported program into a Relax module."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kintune.core.model import ModelRef, Tensor
from kintune.errors import ModelError, cause_line
from kintune.models.digest import exported_digest
from kintune.models.imported_module import complete_model
from kintune.models.model import ImportedModel
from kintune.models.quiet import quiet
from kintune.models.torch_export import require_torch

if TYPE_CHECKING:
    import torch

    from kintune.core.model import Constant

__all__ = ["exported_inputs", "load_exported"]


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
    from kintune.models.torch_converters.prepare import fit_constants, input_names, output_names, prepare
    from kintune.models.torch_converters.program import translate

    path = Path(ref.source)
    label = str(path)
    digest = _digest(path, ref.shapes, ref.constants)
    with quiet():
        try:
            program = _open(path)
            values = fit_constants(label, program, ref.constants)
            program = prepare(label, program, ref.shapes, values)
            names = [name for name in input_names(program) if name not in values], output_names(program)
            imported = translate(label, program, values)
        except ModelError:
            raise
        except Exception as error:  # PyTorch's reader and TVM raise exceptions of many types
            raise ModelError(f"{path}: cannot be imported: {cause_line(error)}") from error
    return complete_model(ref, imported, *names, digest=digest, constants=values, exported_path=label)


def exported_inputs(ref: ModelRef) -> tuple[Tensor, ...]:
    """Return the inputs of an exported program, with fixed shapes.

    Raises:
        OrderError: when PyTorch is not installed.
        ModelError: when the file is damaged, or a constant does not fit; `ShapeError` where a shape is missing or
            wrong.
    """
    require_torch()
    from kintune.models.torch_converters.prepare import fit_constants, fixed_inputs  # they import PyTorch

    path = Path(ref.source)
    _digest(path, ref.shapes, ref.constants)
    with quiet():
        program = _open(path)
        values = fit_constants(str(path), program, ref.constants)
        inputs = fixed_inputs(str(path), program, ref.shapes, values)
    return tuple(tensor for tensor in inputs if tensor.name not in values)


def _digest(path: Path, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, Constant]) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            # PyTorch does not compress members; a compressed one could expand to any size.
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ModelError(f"{path}: is not an archive that torch.export.save wrote")
        return exported_digest(path, shapes, constants)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ModelError(f"{path}: is not a PyTorch exported program, or is incomplete: {cause_line(error)}") from error


def _open(path: Path) -> torch.export.ExportedProgram:
    import torch

    try:
        return torch.export.load(path)
    except Exception as error:  # the reader raises exceptions of many types
        raise ModelError(f"{path}: PyTorch cannot read this exported program: {cause_line(error)}") from error
