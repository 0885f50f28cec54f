"""From a PyTorch exported program to a Relax module."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from kintune.errors import ModelError, UnsupportedOperators
from kintune.graph.inputs import numpy_dtype
from kintune.models.accumulate import accumulate_in_float32
from kintune.models.constants import fit_constant, store_constant
from kintune.models.digest import exported_digest
from kintune.models.graph_file import first_line
from kintune.models.model import Model
from kintune.models.quiet import quiet
from kintune.models.shapes import Dimension, resolve, unknown_constant, with_constants
from kintune.models.signature import signature
from kintune.models.torch import require_torch

if TYPE_CHECKING:
    from typing import Any

    import torch

    from kintune.job.payloads import Constant, ModelRef

__all__ = ["load_exported"]


def load_exported(ref: ModelRef) -> Model:
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
    path = Path(ref.source)
    digest = _digest(path, ref.shapes, ref.constants)
    with quiet():
        try:
            program = _open(path)
            names = _input_names(path, program), _output_names(path, program)
            module = accumulate_in_float32(_import(str(path), program))
        except ModelError:
            raise
        except Exception as error:  # reader and importer raise whatever they stumble over
            raise ModelError(f"{path}: cannot be imported: {first_line(error)}") from error
    values = _fit_constants(str(path), module, names[0], ref.constants)
    module = _bind_shapes(str(path), module, names[0], with_constants(str(path), ref.shapes, values))
    module, left = _bind_constants(module, names[0], values)
    inputs, outputs = signature(str(path), module, left, names[1])
    return Model(
        name=ref.name,
        digest=digest,
        module=module,
        inputs=inputs,
        outputs=outputs,
        exported_path=str(path),
        constants={name: store_constant(name, array, typed=True) for name, array in values.items()},
    )


def _digest(path: Path, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, Constant]) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            # PyTorch stores members as they are; a compressed one could unfold to any size.
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ModelError(f"{path}: is not an archive that torch.export.save wrote")
        return exported_digest(path, shapes, constants)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ModelError(f"{path}: is not a PyTorch exported program, or is incomplete: {first_line(error)}") from error


def _open(path: Path) -> torch.export.ExportedProgram:
    import torch

    try:
        return torch.export.load(path).run_decompositions()
    except Exception as error:  # the reader raises whatever it stumbles over
        raise ModelError(f"{path}: PyTorch cannot read this exported program: {first_line(error)}") from error


def _import(label: str, program: torch.export.ExportedProgram) -> tvm.IRModule:
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    class Importer(ExportedProgramImporter):  # type: ignore[misc]
        """The stock importer, which counts what it does not know."""

        def _check_unsupported_func_type(self, nodes: list[Any]) -> None:
            called = Counter(node.target.__name__ for node in nodes if node.op == "call_function")
            missing = {name: count for name, count in called.items() if name not in self.convert_map}
            if missing:
                raise UnsupportedOperators(label, missing)

    return Importer().from_exported_program(
        program,
        keep_params_as_input=False,
        unwrap_unit_return_tuple=True,
        no_bind_return_tuple=False,
        custom_convert_map=None,
    )


def _input_names(path: Path, program: torch.export.ExportedProgram) -> list[str]:
    names = list(program.graph_signature.user_inputs)
    if not all(isinstance(name, str) for name in names):
        raise ModelError(f"{path}: has an input that is not a tensor; export it with tensors alone")
    return names


def _output_names(path: Path, program: torch.export.ExportedProgram) -> list[str]:
    """Names from the structure that `forward` returns: keys of a dict, fields of a dataclass, else numbers."""
    from torch.utils import _pytree as pytree

    values = program.graph_signature.user_outputs
    if not all(isinstance(value, str) for value in values):
        raise ModelError(f"{path}: has an output that is not a tensor; return tensors alone")
    structure = program.call_spec.out_spec
    if structure is None or len(values) == 1:
        paths: list[str] = [""] * len(values)
    else:
        leaves, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(len(values))), structure))
        paths = [".".join(_key_text(key) for key in keys) for keys, _ in leaves]
    if len(values) == 1:
        return ["output"]
    return [text if text and not text[0].isdigit() else f"output_{text or i}" for i, text in enumerate(paths)]


def _key_text(key: Any) -> str:
    """One step of a path into a structure."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _bind_shapes(
    label: str, module: tvm.IRModule, names: list[str], shapes: Mapping[str, tuple[int, ...]]
) -> tvm.IRModule:
    """Give the program's open dimensions their sizes."""
    main = module["main"]
    symbols: dict[str, Any] = {}
    declared: dict[str, tuple[Dimension, ...]] = {}
    for name, parameter in zip(names, main.params, strict=True):
        declared[name] = _declared(parameter)
        symbols.update({str(size): size for size in parameter.ty.shape.values if not isinstance(size, tvm.tirx.IntImm)})
    fixed = resolve(label, declared, shapes)
    sizes = {
        symbols[dimension]: size
        for name, shape in fixed.items()
        for dimension, size in zip(declared[name], shape, strict=True)
        if isinstance(dimension, str)
    }
    if sizes:
        main = main.bind_symbolic_vars(sizes)
    for attribute in ("tir_var_lower_bound", "tir_var_upper_bound"):
        if attribute in main.attrs:
            main = main.without_attr(attribute)
    module["main"] = main.with_attr("num_input", len(names))
    return module


def _declared(parameter: relax.Var) -> tuple[Dimension, ...]:
    """The shape of a parameter; open sizes by the names that the program gives them."""
    return tuple(int(size) if isinstance(size, tvm.tirx.IntImm) else str(size) for size in parameter.ty.shape.values)


def _fit_constants(
    label: str, module: tvm.IRModule, names: list[str], constants: Mapping[str, Constant]
) -> dict[str, NDArray[Any]]:
    """The values of constants in the types and shapes of the program's inputs."""
    parameters = dict(zip(names, module["main"].params, strict=False))
    fitted: dict[str, NDArray[Any]] = {}
    for name, constant in constants.items():
        if name not in parameters:
            raise unknown_constant(label, name, names)
        dtype = numpy_dtype(str(parameters[name].ty.dtype))
        fitted[name] = fit_constant(label, name, constant, dtype, _declared(parameters[name]))
    return fitted


def _bind_constants(
    module: tvm.IRModule, names: list[str], values: Mapping[str, NDArray[Any]]
) -> tuple[tvm.IRModule, list[str]]:
    """Make constants of the parameters that have values; also returns the names of the inputs that are left."""
    if not values:
        return module, names
    parameters = dict(zip(names, module["main"].params, strict=False))
    bound = {parameters[name]: tvm.runtime.tensor(np.ascontiguousarray(array)) for name, array in values.items()}
    left = [name for name in names if name not in values]
    module = relax.transform.BindParams("main", bound)(module)
    module["main"] = module["main"].with_attr("num_input", len(left))
    return module, left
