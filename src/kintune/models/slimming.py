"""Simplifies a graph before import: shapes computed at run time become constants, and constants are folded.

Exporters write chains of Shape, Gather and Concat, which are constant once the input shapes are known; the importer
cannot convert them.  The simplified graph is compared with the original in onnxruntime.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper, shape_inference

from kintune.models.byte_products import NAMES as BYTE_PRODUCTS
from kintune.models.evaluation import DEVIATING, LOG_FATAL, RANDOM, deviates, open_session
from kintune.models.integer_division import guard_divisions
from kintune.models.onnx_nodes import nodes
from kintune.models.quiet import quiet
from kintune.models.unrolling import certain_steps

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["Original", "Unchecked", "slim"]

Arrays: TypeAlias = "Mapping[str, NDArray[Any]]"

_LOGGER = logging.getLogger(__name__)
_LIBRARY_LOGGER = logging.getLogger("onnxslim")

_WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("", {}),
    (" without fusing nodes", {"skip_optimizations": ["graph_fusion"]}),
    (" without its inference of shapes", {"no_shape_infer": True}),
    (" without both", {"no_shape_infer": True, "skip_optimizations": ["graph_fusion", "constant_folding"]}),
)
"""Ways to simplify: what the log says of each, and the options of onnxslim.  The most thorough one comes first."""

_SEVERAL = frozenset({"If", "Loop", "Scan", "Split"})
_SOURCE = "kintune randomness "
_FOLDED = " (constant)"  # ends the name of a result whose readers have a constant in its place
_SET_ASIDE = "kintune_set_aside"  # an attribute, the number of the node's long lists
_ROUNDS = "ONNXSLIM_MAX_ITER"  # onnxslim reads the number of its rounds from the environment; 10 by default
_LARGE_GRAPH = 2000  # nodes
_LONGEST_LIST = 1 << 12  # elements of an attribute up to which onnxslim is given it: it makes each an object of Python
_NEWEST_FORMAT = 10  # IR version of ONNX files that onnxruntime is given; later ones do not change what graphs compute
_SECONDS = 10.0  # limit of one run
_MOST_STEPS = 1_000_000  # of a loop: they take seconds, whatever the steps are
_QUICK_SECONDS = 0.1  # after a run that takes longer, no other inputs are drawn
_DRAWS = 4  # sets of inputs
_ZEROS = 3  # the number of the one whose integers are all 0
_RUNS = 3  # of them that are compared
_LARGEST_INPUTS = 1 << 28  # bytes
_NOISE = 1e-6  # relative disturbance of inputs, as large as the effect of another order of summation
_AMPLIFIED = 64.0  # outputs may differ by this factor times the effect of the disturbance
_LARGEST_SPREAD = float(np.finfo(np.float64).max)
_TOLERANCE = {"float64": 1e-6, "float32": 1e-3, "float16": 2e-2}
_WORDS = np.array(["a", "the", "one", "red"], object)
_SHORTHANDS = {"value_float": "<f4", "value_floats": "<f4", "value_int": "<i8", "value_ints": "<i8"}
"""Maps an attribute of a Constant node to the element type of the tensor it stands for."""


def slim(model: ModelProto, label: str = "", outside: Mapping[str, NDArray[Any]] | None = None) -> ModelProto:
    """Simplify `model`, whose input shapes must be fixed.  Its inputs and outputs keep their names and order.

    `outside` has the values of inputs that are weights; `label` names the model in the log.  The result is compared
    with the original in onnxruntime.  Where it computes something else, fewer kinds of rewriting are tried.  If none
    succeeds, an equivalent of the model as it is in the file is returned; the importer then reports what it cannot
    import.
    """
    original = ModelProto()
    original.CopyFrom(model)
    _spell_out_constants(original)
    _name_results(original)
    _type_outputs(original)
    guard_divisions(original)
    name = label or "the model"
    reference: Original | None = None
    unchecked = False
    for what, options in _WAYS:
        slimmed = _slimmed(original, options)
        if slimmed is None:
            continue
        if reference is None and not unchecked:
            try:
                reference = Original(original, outside or {})
            except Unchecked as error:
                unchecked = True
                _LOGGER.warning("%s: the simplified graph is used without a comparison: %s", name, error)
        if reference is None or not (difference := reference.difference(slimmed)):
            return slimmed
        _LOGGER.warning("%s: simplified%s it computes something else (%s)", name, what, difference)
    _LOGGER.warning("%s: the graph is used as it is in the file", name)
    return original


def _slimmed(original: ModelProto, options: Mapping[str, Any]) -> ModelProto | None:
    """The model simplified with these options of onnxslim; None where onnxslim fails or changes the list of outputs."""
    model = ModelProto()
    model.CopyFrom(original)
    _hide_randomness(model)
    lists = _set_lists_aside(model)
    try:
        with quiet():
            import onnxslim

            with _state_of_onnxslim(few_rounds=len(model.graph.node) >= _LARGE_GRAPH):
                slimmed: ModelProto = onnxslim.slim(model, **options)
    except Exception:  # onnxslim raises exceptions of many types
        return None
    if [value.name for value in slimmed.graph.output] != [value.name for value in original.graph.output]:
        return None
    _show_randomness(slimmed)
    _put_lists_back(slimmed, lists)
    _keep_ports(original, slimmed)
    return slimmed


@contextmanager
def _state_of_onnxslim(*, few_rounds: bool) -> Iterator[None]:
    """Change global state of onnxslim for a run, and put it back.

    It logs nothing, instead of installing a handler that writes to the terminal.  Its variables compare their names
    first: it looks up each input of a graph in lists of all tensors, tens of times, and compares all else before it
    decides.  A result that becomes a constant leaves another in its place, so that the node's further results keep
    theirs.  What onnxruntime would compute wrongly is not folded.  With `few_rounds` it passes through a graph twice,
    unless its user has said how often: in further rounds it finds next to nothing in a large graph, and takes as long.
    """
    from onnxslim.third_party.onnx_graphsurgeon.ir.graph import Graph
    from onnxslim.third_party.onnx_graphsurgeon.ir.tensor import Variable

    thorough, fold, fix = Variable.__eq__, Graph.fold_constants, Variable.to_constant
    rounds, handler = os.environ.get(_ROUNDS), logging.NullHandler()

    def equal(one: Any, other: Any) -> bool:
        return one is other or bool(isinstance(other, Variable) and one.name == other.name and thorough(one, other))

    def to_constant(tensor: Any, *args: Any, **options: Any) -> Any:
        for node in list(tensor.inputs):
            if len(node.outputs) > 1:
                place = next(at for at, output in enumerate(node.outputs) if output is tensor)
                node.outputs[place] = Variable(f"{tensor.name}{_FOLDED}")
        return fix(tensor, *args, **options)

    _LIBRARY_LOGGER.addHandler(handler)
    Variable.__eq__, Variable.to_constant = equal, to_constant
    Graph.fold_constants = lambda *args, **options: fold(*args, **{**options, "should_exclude_node": _is_not_folded})
    if few_rounds and not rounds:
        os.environ[_ROUNDS] = "2"
    try:
        yield
    finally:
        Variable.__eq__, Variable.to_constant, Graph.fold_constants = thorough, fix, fold
        _LIBRARY_LOGGER.removeHandler(handler)
        if rounds is None:
            os.environ.pop(_ROUNDS, None)
        else:
            os.environ[_ROUNDS] = rounds


def _is_not_folded(node: Any) -> bool:
    """Whether onnxruntime may compute something else of a node of onnxslim than its definition says."""
    if node.op in BYTE_PRODUCTS:
        return True
    if node.op not in DEVIATING or not node.inputs:
        return False
    dtype = getattr(node.inputs[0], "dtype", None)  # it may be a number of ONNX's own types
    known = np.dtype(dtype) if isinstance(dtype, type | np.dtype) else None
    return deviates(node.op, known, getattr(node.inputs[0], "values", None))


def _hide_randomness(model: ModelProto) -> None:
    """Give each node with random results an input of its own, so that it is neither folded nor merged."""
    drawing = [node for node in nodes(model) if node.op_type in RANDOM]
    for number, node in enumerate(drawing):
        node.input.append(f"{_SOURCE}{number}")
        model.graph.input.append(helper.make_tensor_value_info(node.input[-1], TensorProto.FLOAT, [1]))


def _show_randomness(model: ModelProto) -> None:
    for node in nodes(model):
        if node.op_type in RANDOM:
            kept = [name for name in node.input if not name.startswith(_SOURCE)]
            del node.input[:]
            node.input.extend(kept)


def _set_lists_aside(model: ModelProto) -> list[list[AttributeProto]]:
    """Take long lists, which the forest of a tree ensemble consists of, out of their nodes; returns those of each.

    A node without them, which has an attribute that no operator knows, is neither folded nor merged.
    """
    found: list[list[AttributeProto]] = []
    for node in nodes(model):
        long = [a for a in node.attribute if max(len(a.floats), len(a.ints), len(a.strings)) > _LONGEST_LIST]
        if not long:
            continue
        found.append([AttributeProto.FromString(each.SerializeToString()) for each in long])
        for each in long:
            node.attribute.remove(each)
        node.attribute.append(helper.make_attribute(_SET_ASIDE, len(found) - 1))
    return found


def _put_lists_back(model: ModelProto, lists: Sequence[Sequence[AttributeProto]]) -> None:
    for node in nodes(model):
        number = next((each for each in node.attribute if each.name == _SET_ASIDE), None)
        if number is not None:
            node.attribute.remove(number)
            node.attribute.extend(lists[number.i])


def _spell_out_constants(model: ModelProto) -> None:
    """Replace the shorthands of Constant nodes (`value_float` and others) by tensors, which all libraries read."""
    for node in nodes(model):
        if node.op_type != "Constant":
            continue
        for attribute in node.attribute:
            if attribute.name in _SHORTHANDS:
                values = np.array(helper.get_attribute_value(attribute), _SHORTHANDS[attribute.name])
                del node.attribute[:]
                node.attribute.append(helper.make_attribute("value", numpy_helper.from_array(values)))
                break


def _name_results(model: ModelProto) -> None:
    """Name results that no node reads, of operators with any number of them: onnxruntime fails, or ends the process."""
    for number, node in enumerate(nodes(model)):
        if node.op_type in _SEVERAL:
            node.output[:] = [name or f"kintune result {number}.{place}" for place, name in enumerate(node.output)]


def _type_outputs(model: ModelProto) -> None:
    """Give outputs without a type the one that follows from the graph: onnxslim demands it, onnxruntime does not."""
    untyped = [port for port in model.graph.output if port.type.WhichOneof("value") is None]
    if not untyped:
        return
    try:
        inferred = {port.name: port for port in shape_inference.infer_shapes(model).graph.output}
    except Exception:  # it has its own exception types
        return
    for port in untyped:
        port.type.CopyFrom(inferred[port.name].type)


def _keep_ports(original: ModelProto, slimmed: ModelProto) -> None:
    """Restore inputs that simplification removed as unused, since callers still pass them, and outputs that it declared
    as tensors although they are sequences or maps.
    """
    del slimmed.graph.input[:]
    slimmed.graph.input.extend(original.graph.input)
    for made, value in zip(slimmed.graph.output, original.graph.output, strict=True):
        if value.type.WhichOneof("value") not in (None, "tensor_type"):
            made.CopyFrom(value)


def _is_as_declared(model: ModelProto, outputs: Sequence[Any]) -> bool:
    """Whether all outputs that are tensors have the extents that the graph declares."""
    declared = [
        port.type.tensor_type.shape.dim if port.type.tensor_type.HasField("shape") else None
        for port in model.graph.output
    ]
    return all(
        dims is None
        or not isinstance(found, np.ndarray)
        or (
            len(dims) == found.ndim
            and all(not dim.dim_value or dim.dim_value == extent for dim, extent in zip(dims, found.shape, strict=True))
        )
        for dims, found in zip(declared, outputs, strict=True)
    )


class Unchecked(Exception):
    """The original cannot be run; the text says why."""


class Original:
    """The graph before simplification, with its outputs for random inputs."""

    def __init__(self, model: ModelProto, outside: Arrays) -> None:
        """Run `model` on random inputs; `outside` has the values of inputs that are weights.

        Raises:
            Unchecked: when onnxruntime cannot run it, its results are random, its inputs are too large, a loop makes
                too many steps, or a run takes too long.
        """
        if any(node.op_type in RANDOM for node in nodes(model)):
            raise Unchecked("it draws random numbers")
        if certain_steps(model) > _MOST_STEPS:
            raise Unchecked(f"a loop makes {certain_steps(model)} steps")
        self._model = model
        self._outside = outside
        self._runs: list[tuple[dict[str, NDArray[Any]], list[Any]]] = []
        session = _session(model)
        reason = ""
        for number, feeds in enumerate(self._draws()):
            begun = time.monotonic()
            try:
                outputs, seconds = _timed(session, {**feeds, **outside})
            except Exception as error:  # onnxruntime has its own exception types; it may accept other values
                reason = _first(error)
                if time.monotonic() - begun >= _SECONDS:
                    break
                continue
            if number == _ZEROS and not _is_as_declared(model, outputs):  # 0 as a wanted extent copies that of the data
                reason = "its outputs do not have the shapes that it declares"
                continue
            self._runs.append((feeds, outputs))
            if seconds > _QUICK_SECONDS or len(self._runs) == _RUNS:
                break
        if not self._runs:
            raise Unchecked(f"onnxruntime does not run it: {reason}")

    def difference(self, model: ModelProto) -> str:
        """Describes in a line how another graph's outputs differ from the original's; empty when they do not."""
        try:
            session = _session(model)
        except Unchecked as error:
            return str(error)
        names = [value.name for value in model.graph.output]
        for feeds, wanted in self._runs:
            try:
                found, _ = _timed(session, {**feeds, **self._outside})
            except Exception as error:
                return f"it does not run: {_first(error)}"
            for index, name in enumerate(names):
                if reason := _difference(found[index], wanted[index]):
                    if self._is_noise(feeds, wanted, found):
                        break
                    return f"output {name} {reason}"
        return ""

    def _is_noise(self, feeds: dict[str, NDArray[Any]], wanted: Sequence[Any], found: Sequence[Any]) -> bool:
        """Whether a small disturbance of the inputs changes the original's outputs about as much."""
        draw = np.random.default_rng(1)
        disturbed = {
            name: (values * (1 + _NOISE * draw.choice((-1.0, 1.0), values.shape))).astype(values.dtype)
            if values.dtype.kind == "f"
            else values
            for name, values in feeds.items()
        }
        try:
            outputs, _ = _timed(_session(self._model), {**disturbed, **self._outside})
        except Exception:
            return False
        return all(
            _spread(other, original) <= min(_AMPLIFIED * _spread(moved, original), _LARGEST_SPREAD)
            for other, moved, original in zip(found, outputs, wanted, strict=True)
            if _difference(other, original)
        )

    def _draws(self) -> Iterator[dict[str, NDArray[Any]]]:
        """Random inputs; integers are likely to be indices in range: first 0 and 1, then 0 to 7, only 1, and only 0."""
        ports = [port for port in self._model.graph.input if port.name not in self._outside]
        shapes = {port.name: tuple(dim.dim_value for dim in port.type.tensor_type.shape.dim) for port in ports}
        types = {
            port.name: np.dtype(helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)) for port in ports
        }
        if any(max(shape, default=0) > _LARGEST_INPUTS for shape in shapes.values()):  # even where another extent is 0
            raise Unchecked("its inputs are too large")
        if sum(math.prod(shapes[name]) * types[name].itemsize for name in shapes) > _LARGEST_INPUTS:
            raise Unchecked("its inputs are too large")
        for number in range(_DRAWS):
            draw = np.random.default_rng(number)
            yield {name: _drawn(draw, number, shapes[name], types[name]) for name in shapes}


def _drawn(draw: np.random.Generator, number: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    if dtype.kind == "O":
        return np.asarray(_WORDS[draw.integers(0, len(_WORDS), shape)], object)
    if dtype.kind not in "iub":
        return np.asarray(draw.standard_normal(shape)).astype(dtype)
    if dtype.kind == "b":
        return np.asarray(draw.integers(0, 2, shape)).astype(dtype)
    if number >= 2:
        return np.full(shape, 3 - number, dtype)
    if dtype.itemsize == 1:
        limits = np.iinfo(dtype)
        return np.asarray(draw.integers(limits.min, limits.max + 1, shape)).astype(dtype)
    return np.asarray(draw.integers(0, 2 if number == 0 else 8, shape)).astype(dtype)


def _session(model: ModelProto) -> onnxruntime.InferenceSession:
    """A session for a model of any version of the format; see `open_session`."""
    version = model.ir_version
    try:
        model.ir_version = min(version, _NEWEST_FORMAT)
        return open_session(model)
    except Exception as error:
        raise Unchecked(f"onnxruntime does not take it: {_first(error)}") from error
    finally:
        model.ir_version = version


def _timed(session: onnxruntime.InferenceSession, feeds: Arrays) -> tuple[list[Any], float]:
    """The outputs and the seconds of a run, which is terminated after `_SECONDS`."""
    import onnxruntime

    wanted = {port.name for port in session.get_inputs()}
    options = onnxruntime.RunOptions()
    options.log_severity_level = LOG_FATAL
    timer = threading.Timer(_SECONDS, lambda: setattr(options, "terminate", True))
    timer.daemon = True
    timer.start()
    started = time.monotonic()
    try:
        outputs = session.run(None, {name: values for name, values in feeds.items() if name in wanted}, options)
        return list(outputs), time.monotonic() - started
    finally:
        timer.cancel()


def _difference(found: Any, wanted: Any) -> str:
    """Describes how an output, which may be a sequence or a map, differs from the wanted one; empty if it does not."""
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        return next(filter(None, map(_difference, found, wanted)), "")
    if isinstance(found, dict) and isinstance(wanted, dict) and found.keys() == wanted.keys():
        return next(filter(None, (_difference(found[key], wanted[key]) for key in wanted)), "")
    if isinstance(found, float) and isinstance(wanted, float):
        return _difference(np.array(found, np.float32), np.array(wanted, np.float32))
    if not (isinstance(found, np.ndarray) and isinstance(wanted, np.ndarray)):
        return "" if type(found) is type(wanted) and found == wanted else "is of another kind, or has other values"
    if found.shape != wanted.shape:
        return f"has the shape {found.shape}, not {wanted.shape}"
    if found.dtype != wanted.dtype:
        return f"is {found.dtype}, not {wanted.dtype}"
    if wanted.dtype.kind != "f":
        return "" if np.array_equal(found, wanted) else f"differs in {int((found != wanted).sum())} values"
    special = ~np.isfinite(wanted)
    if not np.array_equal(found[special], wanted[special], equal_nan=True) or not np.isfinite(found[~special]).all():
        return "has other infinities or not-a-numbers"
    a, b = found[~special].astype(np.float64), wanted[~special].astype(np.float64)
    if a.size == 0:
        return ""
    tolerance = _TOLERANCE.get(wanted.dtype.name, 1e-3)
    allowed = tolerance * (np.abs(b) + np.sqrt(np.mean(b * b)))
    return "" if (np.abs(a - b) <= allowed).all() else f"differs by up to {np.abs(a - b).max():.2g}"


def _spread(found: Any, wanted: Any) -> float:
    """The largest difference of two outputs' finite values.

    It is infinite where their shapes, types or strings differ, or other elements are finite, and where they are no
    tensors.
    """
    if not isinstance(found, np.ndarray) or found.shape != wanted.shape or found.dtype != wanted.dtype:
        return float("inf")
    if found.dtype.kind == "O":
        return 0.0 if np.array_equal(found, wanted) else float("inf")
    if found.size == 0 or found.dtype.kind not in "iufb":
        return 0.0
    with np.errstate(invalid="ignore"):
        apart = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
    if not np.array_equal(np.isfinite(found), np.isfinite(wanted)):
        return float("inf")
    return float(np.max(apart, initial=0.0, where=np.isfinite(apart)))


def _first(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
