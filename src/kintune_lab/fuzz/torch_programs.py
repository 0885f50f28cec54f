"""PyTorch programs as subjects: drawn from PyTorch's own table of operators with sample inputs, compared with eager.

The table (`torch.testing._internal`) is what PyTorch tests its operators with.  Reference: PyTorch's `OpInfo`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import sys
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kintune.models.quiet import quiet
from kintune_lab.fuzz.evaluation import Refused, Value
from kintune_lab.fuzz.input_sets import with_error, with_noise
from kintune_lab.fuzz.known import floor_of
from kintune_lab.fuzz.subject import ModelPart, Values
from kintune_lab.fuzz.torch_costs import leave_out_repeated_work
from kintune_lab.fuzz.values import Array, draw_extreme

__all__ = ["TorchPrograms"]

_MEAN_NODES = 10
_LARGEST = 20_000  # elements of a tensor
_SAMPLES = 16  # of an operator, among which one is drawn
_TRIES = 8
_RANDOM = ("rand", "dropout", "bernoulli", "multinomial", "uniform", "exponential", "geometric", "cauchy", "empty")
_LEFT_OUT = (
    "sparse",
    "nonzero",
    "masked_select",
    "unique",
    "argwhere",
    "item",
    "tolist",
    "rrelu",
    "log_normal",
    "normal_",
)
_LEFT_OUT_EXACTLY = ("normal", "resize_", "resize_as_", "equal", "allclose")
_REFUSED = (
    *("polynomial", "airy", "special.bessel", "bessel_j0", "modified_bessel_k", "igamma", "zeta", "gcd", "lcm"),
    *("svd", "pca_lowrank", "linalg.eig", "linalg.ldl", "linalg.lu", "linalg.lstsq", "linalg.cond", "pinv"),
    *("householder", "matrix_exp", "nextafter", "frexp", "histogram", "combinations", "bincount", "corrcoef"),
    *("segment_reduce", "ctc_loss", "gaussian_nll_loss", "linear_cross_entropy", "fractional_max_pool"),
    *("max_pool2d_with_indices_backward", "norm nuc"),
)
_REFUSED_EXACTLY = ("lu", "lu_solve", "lu_unpack", "qr", "linalg.qr", "ormqr", "geqrf", "mode", "cov", "narrow")
"""Operators that the importer, or the export, refuses whatever their operands are: trying them would take long."""

_SPREADING = (
    "conv_transpose",
    "fft",
    "stft",
    "grid_sampl",
    "interpolate",
    "upsample",
)  # what is not finite spreads otherwise than in eager mode
_CASTS = ("byte", "char", "short", "int", "long")
_UNCHECKED = "native_batch_norm"  # eager PyTorch writes outside of statistics that are shorter than the channels
_PLACES = ("argsort", "kthvalue", "sort", "topk")  # that of equal elements is any of theirs
_SPREADS = re.compile(
    r"nn.functional.(interpolate|upsample)|linalg\.(?!.*(norm|cross|vecdot|diagonal|multi_dot|vander))"
)
_BOUNDARIES = {"bucketize": 1, "searchsorted": 0}  # which operand has them, in ascending order
_DTYPES = (torch.float32,) * 6 + (torch.float64, torch.float16, torch.int64, torch.int32, torch.bool)
_KEPT = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)


@dataclass(frozen=True)
class _Tensor:
    """A tensor of a program, among the operands of a node."""

    name: str


@dataclass(frozen=True)
class _Node:
    operator: str
    function: Callable[..., Any]
    operands: Any
    reads: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass
class _Program:
    nodes: list[_Node] = field(default_factory=list)
    values: dict[str, torch.Tensor] = field(default_factory=dict)
    constants: dict[str, bool] = field(default_factory=dict)  # of leaves: whether they are constants


class _Module(torch.nn.Module):  # type: ignore[misc]
    """The nodes as a module."""

    def __init__(self, nodes: Sequence[_Node], inputs: Sequence[str], outputs: Sequence[str], held: Mapping[str, Any]):
        super().__init__()
        self.nodes, self.names, self.results = nodes, inputs, outputs
        self.held = list(held)
        for name, value in held.items():
            self.register_buffer(name, value)

    def forward(self, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = dict(zip(self.names, given, strict=True)) | {name: getattr(self, name) for name in self.held}
        for node in self.nodes:
            values.update(_computed(node, values))
        return tuple(values[name] for name in self.results)


def _computed(node: _Node, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    sample, arguments, named = torch.utils._pytree.tree_map(
        lambda each: values[each.name] if isinstance(each, _Tensor) else each, node.operands
    )
    return dict(zip(node.outputs, _tensors(node.function(sample, *arguments, **named)), strict=True))


def _tensors(result: Any) -> list[torch.Tensor]:
    found = torch.utils._pytree.tree_leaves(result)
    if not found or not all(isinstance(each, torch.Tensor) for each in found):
        raise Refused("its result is no tensor")
    return list(found)


def _is_undefined(node: _Node, given: Mapping[str, torch.Tensor], results: Sequence[torch.Tensor]) -> bool:
    """Whether PyTorch leaves results open.

    They are parts of a decomposition that there is not, as its last result says, places among equal elements or among
    boundaries without an order, casts to integers that do not hold a number, derivatives at poles, which are as large
    as pi is inexact, remainders of denormal numbers, which are NaN where PyTorch computes vectors, or what overflows in
    half precision, since what does so inside of an operator depends on how it is computed.  Coordinates of samples in
    half precision are off by a hundredth of a pixel.  Dropout is random.  How a matrix is decomposed, or an image
    resized, decides where infinities and NaN go, also those of the inverse of denormal numbers.
    """
    if node.operands and node.operands[2].get("dropout_p"):
        return True
    whole = (*(given[name] for name in node.reads), *results)
    if _SPREADS.match(node.operator) and not all(each.isfinite().all() for each in whole):
        return True
    if node.operator.startswith("grid_sampler") and any(given[name].dtype == torch.float16 for name in node.reads):
        return True
    if any(each.dtype == torch.float16 and not each.isfinite().all() for each in results):
        return bool(all(given[name].isfinite().all() for name in node.reads))
    if node.operator == "fmod" and len(node.reads) > 1:
        divisor = given[node.reads[1]].abs()
        is_float = divisor.is_floating_point()
        return bool(is_float and ((divisor > 0) & (divisor < torch.finfo(divisor.dtype).tiny)).any())
    if "polygamma" in node.operator:
        data = given[node.reads[0]].double()
        return bool(((data < 0) & (data == data.floor())).any())
    if node.operator in _CASTS and given[node.reads[0]].is_floating_point():
        data, limits = given[node.reads[0]].double().trunc(), torch.iinfo(results[0].dtype)
        return not bool(((data >= limits.min) & (data <= limits.max)).all())
    if node.operator.endswith("_ex"):
        return bool(results[-1].any())
    if node.operator in _BOUNDARIES:
        boundaries = given[node.reads[_BOUNDARIES[node.operator]]]
        return bool((boundaries[..., 1:] < boundaries[..., :-1]).any() or boundaries.isnan().any())
    if node.operator not in _PLACES or node.operands[2].get("stable"):
        return False
    data = given[node.reads[0]]
    return bool(data.unique().numel() < data.numel())


@functools.cache
def _table() -> tuple[Any, ...]:
    """The operators whose results are tensors that depend on their operands alone."""
    sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=object))  # type: ignore[arg-type]  # of tests
    with quiet():
        from torch.testing._internal.common_methods_invocations import op_db

        leave_out_repeated_work()
    found = {}
    for each in op_db:
        name = each.name
        if name in (*_LEFT_OUT_EXACTLY, *_REFUSED_EXACTLY) or any(
            part in f"{name} {each.variant_test_name}" for part in (*_RANDOM, *_LEFT_OUT, *_REFUSED)
        ):
            continue
        found[f"{name} {each.variant_test_name}"] = each
    return tuple(found[name] for name in sorted(found))


class TorchPrograms:
    """The programs of a seed; see `Subject`."""

    version = 0
    disputed: Sequence[str] = ()

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._number = -1
        self._program = _Program()

    def draw(self, number: int) -> None:
        """As `Subject.draw`."""
        self._number = number
        rng = np.random.default_rng((self._seed, number))
        torch.manual_seed(int(rng.integers(1 << 62)))
        self._program = program = _Program()
        wanted = 1 + int(rng.poisson(_MEAN_NODES - 1))
        for _ in range(wanted * _TRIES):
            if len(program.nodes) >= wanted:
                break
            kept = dict(program.values), dict(program.constants)
            try:
                with torch.no_grad(), quiet(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self._append(rng)
            except Exception:  # operators raise whatever they like of operands that do not suit them
                program.values, program.constants = kept

    def _append(self, rng: np.random.Generator) -> None:
        program = self._program
        operator = _table()[int(rng.integers(len(_table())))]
        dtype = _DTYPES[int(rng.integers(len(_DTYPES)))]
        if dtype not in operator.supported_dtypes("cpu"):
            return
        samples = list(itertools.islice(operator.sample_inputs("cpu", dtype, requires_grad=False), _SAMPLES))
        sample = samples[int(rng.integers(len(samples)))]
        reads: list[str] = []

        def named(each: Any) -> Any:
            if not isinstance(each, torch.Tensor):
                return each
            name = self._operand(rng, each, reads, exact=bool(reads) or _UNCHECKED in operator.name)
            reads.append(name)
            return _Tensor(name)

        operands = torch.utils._pytree.tree_map(named, (sample.input, sample.args, dict(sample.kwargs)))
        operator_name = f"{operator.name} {operator.variant_test_name}".strip()
        node = _Node(operator_name, operator.op, operands, tuple(reads), ())
        given = {name: program.values[name].clone() for name in reads}
        sample_, arguments, keywords = torch.utils._pytree.tree_map(
            lambda each: given[each.name] if isinstance(each, _Tensor) else each, operands
        )
        results = _tensors(operator.op(sample_, *arguments, **keywords))
        if not reads or any(
            each.dtype not in _KEPT or each.layout is not torch.strided or not 0 < each.numel() < _LARGEST
            for each in results
        ):
            raise Refused("its result is none of ours")
        if _is_undefined(node, given, results):
            raise Refused("its result is not defined")
        names = tuple(f"t{len(program.values) + at}" for at in range(len(results)))
        program.values.update(zip(names, (each.detach().clone() for each in results), strict=True))
        program.nodes.append(_Node(node.operator, node.function, operands, node.reads, names))

    def _operand(self, rng: np.random.Generator, sample: torch.Tensor, others: Sequence[str], *, exact: bool) -> str:
        """A tensor of the program of this type and shape (or rank, if not `exact`), or a new one.

        It is none of the node's `others`: of what is taken from itself, rounding alone would be left.
        """
        program = self._program
        if sample.dtype not in _KEPT or sample.layout is not torch.strided or sample.numel() >= _LARGEST:
            raise Refused("an operand is none of ours")
        alike = [
            name
            for name, value in program.values.items()
            if name not in others and value.dtype == sample.dtype and value.dtype.is_floating_point
        ]
        same = [name for name in alike if program.values[name].shape == sample.shape]
        near = [name for name in alike if program.values[name].ndim == sample.ndim] if not exact else []
        for candidates, chance in ((same, 0.75), (near, 0.5)):
            if candidates and rng.random() < chance:
                return candidates[-1 - int(len(candidates) * rng.random() ** 2)]
        name = f"x{len(program.values)}"
        program.values[name] = sample.detach().clone().contiguous()
        program.constants[name] = bool(rng.random() < 0.4)
        return name

    @property
    def operators(self) -> Sequence[str]:
        """As `Subject.operators`."""
        return [node.operator for node in self._program.nodes]

    def sets(self, wanted: int) -> list[Values]:
        """As `Subject.sets`."""
        spreads = any(part in name for name in self.operators for part in _SPREADING)
        rng = np.random.default_rng((self._seed, self._number, 1))
        found: list[Values] = [_arrays(self._program.values)]
        for _ in range(wanted - 1):
            given = {}
            for name, constant in self._program.constants.items():
                value = self._program.values[name]
                if not constant and value.dtype.is_floating_point:
                    array = value.numpy()
                    drawn = (
                        draw_extreme(rng, array.dtype.name, array.shape) if rng.random() < 0.3 and not spreads else None
                    )
                    moved = rng.permutation(array.reshape(-1)).reshape(array.shape) if drawn is None else drawn
                    value = torch.from_numpy(np.ascontiguousarray(moved))
                given[name] = value
            with contextlib.suppress(Exception):  # an operator may refuse such values
                values = self._evaluated(self._program.nodes, given)
                first = self._program.values
                if all(values[name].shape == first[name].shape for name in first):
                    found.append(_arrays(values))
        return found

    def _evaluated(
        self, nodes: Sequence[_Node], given: Mapping[str, torch.Tensor], noise: np.random.Generator | None = None
    ) -> dict[str, torch.Tensor]:
        values = dict(given)
        with torch.no_grad(), quiet():
            for node in nodes:
                copies = {name: values[name].clone() for name in node.reads}
                computed = {name: value.detach().clone() for name, value in _computed(node, copies).items()}
                if noise is None and _is_undefined(node, values, list(computed.values())):
                    raise Refused("a result is not defined")
                if noise is not None:
                    error = floor_of([node.operator])
                    computed = {name: _with_noise(noise, value, error) for name, value in computed.items()}
                values |= computed
        return values

    def part(self, kept: Sequence[int]) -> ModelPart:
        """As `Subject.part`."""
        program = self._program
        nodes = [program.nodes[at] for at in kept]
        made = {name for node in nodes for name in node.outputs}
        read = [name for node in nodes for name in node.reads]
        fixed = {name for name, constant in program.constants.items() if constant}
        given = [name for name in dict.fromkeys(read) if name not in made]
        inputs = tuple(name for name in given if name not in fixed)
        if not inputs:
            raise Refused("it has no inputs")
        outputs = tuple(name for node in nodes for name in node.outputs if name not in read)
        held = {name: program.values[name] for name in given if name in fixed}
        tensors = frozenset({*read, *made})
        return ModelPart(inputs, outputs, tensors, (nodes, _Module(nodes, inputs, outputs, held)))

    def write(self, part: ModelPart, folder: Path) -> Path:
        """As `Subject.write`."""
        path = folder / "model.pt2"
        module = part.content[1].eval()
        examples = tuple(self._program.values[name] for name in part.inputs)
        try:
            with quiet(), torch.no_grad():
                torch.export.save(torch.export.export(module, examples), path)
        except Exception as error:  # PyTorch cannot trace everything
            raise Refused(f"PyTorch does not export it: {type(error).__name__}") from error
        return path

    def noisy(self, part: ModelPart, values: Values, seed: int) -> Values | None:
        """As `Subject.noisy`."""
        rng = np.random.default_rng(seed)
        nodes = part.content[0]
        made = {name for node in nodes for name in node.outputs}
        given = {name: torch.from_numpy(np.array(with_noise(rng, values[name]))) for name in part.tensors - made}
        with contextlib.suppress(Exception):
            return _arrays(self._evaluated(nodes, given, rng))
        return None

    def is_second_reference(self, part: ModelPart, values: Values, outputs: Mapping[str, Array]) -> bool:
        """As `Subject.is_second_reference`."""
        return False  # there is one reference

    def is_overruled(self, part: ModelPart, values: Values) -> bool:
        """As `Subject.is_overruled`."""
        return False  # onnxruntime runs none of them

    def described(self, part: ModelPart) -> Sequence[str]:
        """As `Subject.described`."""
        return ()  # onnxruntime runs none of them

    def listing(self, part: ModelPart) -> str:
        """As `Subject.listing`."""
        return "\n".join(
            f"{', '.join(node.outputs)} = {node.operator}{node.operands!r}"[:1000] for node in part.content[0]
        )


def _with_noise(rng: np.random.Generator, value: torch.Tensor, error: float = 0.0) -> torch.Tensor:
    return torch.from_numpy(np.array(with_error(rng, with_noise(rng, value.numpy(), whole=False), error)))


def _arrays(values: Mapping[str, torch.Tensor]) -> dict[str, Value]:
    return {name: np.ascontiguousarray(value.numpy()).reshape(tuple(value.shape)) for name, value in values.items()}
