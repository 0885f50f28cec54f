"""Complex tensors, each as two real ones: its real and its imaginary parts.  Fourier transforms are matrix products.

The compiler has no complex numbers.  A model may use them inside, but not take or return them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from tvm import relax

from kintune.models.expressions import dtype_of, shape_of
from kintune.models.formulas import Real
from kintune.models.fourier import fourier_matrix
from kintune.models.torch_converters import elementwise, linear, reduction, tensors
from kintune.models.torch_converters.translation import Converter, Expression, NotConvertible, Translation

__all__ = ["COMPLEX_CONVERTERS", "Complex"]


class Complex(NamedTuple):
    """The real and the imaginary parts of a tensor, of one shape and element type."""

    real: Expression
    imaginary: Expression


_REAL: dict[str, Converter] = {
    **elementwise.CONVERTERS,
    **linear.CONVERTERS,
    **reduction.CONVERTERS,
    **tensors.CONVERTERS,
}

_LINEAR: tuple[str, ...] = ("cat.default", "stack.default", "constant_pad_nd.default", "as_strided.default")
_LINEAR += ("unfold.default", "index.Tensor", "gather.default", "sum.default", "sum.dim_IntList", "mean.default")
_LINEAR += ("mean.dim", "cumsum.default", "neg.default", "clone.default", "alias.default", "detach.default")
_LINEAR += ("contiguous.default", "lift_fresh_copy.default", *sorted(tensors.MOVES))
"""Operators that do to each part what they do to a real tensor."""


def _is_complex(value: Any) -> bool:
    return isinstance(value, Complex | complex)


def _parts(value: Any) -> tuple[Any, Any]:
    """The real and the imaginary part of a tensor or number, which may be real."""
    if isinstance(value, Complex):
        return value
    return (value.real, value.imag) if isinstance(value, complex) else (value, 0.0)


def _linear(name: str) -> Converter:
    convert_real = _REAL[name]

    def convert(t: Translation, a: SimpleNamespace) -> Any:
        if getattr(a, "value", 0):
            raise NotConvertible("padding of complex numbers by another value than zero")
        if hasattr(a, "tensors"):
            a.tensors = [_with_parts(t, value) for value in a.tensors]
        real, imaginary = (convert_real(t, _part(a, place)) for place in range(2))
        if isinstance(real, tuple):
            pairs = zip(real, imaginary, strict=True)
            return tuple(None if first is None else Complex(first, second) for first, second in pairs)
        return Complex(real, imaginary)

    return convert


def _with_parts(t: Translation, value: Any) -> Complex:
    return value if isinstance(value, Complex) else Complex(value, t.full(shape_of(value), 0, dtype_of(value)))


def _part(a: SimpleNamespace, place: int) -> SimpleNamespace:
    """The arguments with one part of each complex tensor."""

    def of(value: Any) -> Any:
        if isinstance(value, Complex):
            return value[place]
        return [of(each) for each in value] if isinstance(value, list) else value

    return SimpleNamespace(**{name: of(value) for name, value in vars(a).items()})


def _sum(name: str) -> Converter:
    convert_real = _REAL[name]

    def convert(t: Translation, a: SimpleNamespace) -> Complex:
        parts = zip(_parts(a.self), _parts(a.other), strict=True)
        alpha = getattr(a, "alpha", 1)
        real, imaginary = (convert_real(t, SimpleNamespace(self=x, other=y, alpha=alpha)) for x, y in parts)
        return Complex(t.expand(real, t.result.shape), t.expand(imaginary, t.result.shape))

    return convert


def _product(name: str, other: str = "other") -> Converter:
    """Any product of two operands, one of which at least is complex: `self` and the one called `other`."""
    convert_real = _REAL[name]

    def convert(t: Translation, a: SimpleNamespace) -> Complex:
        def times(x: Any, y: Any) -> Expression:
            return convert_real(t, SimpleNamespace(**{**vars(a), "self": x, other: y}))

        left, right = a.self, getattr(a, other)
        if not _is_complex(left):
            return Complex(*(times(left, part) for part in _parts(right)))
        (real, imaginary), (other_real, other_imaginary) = _parts(left), _parts(right)
        if not _is_complex(right):
            return Complex(times(real, right), times(imaginary, right))
        return Complex(
            t.emit(relax.op.subtract(times(real, other_real), times(imaginary, other_imaginary))),
            t.emit(relax.op.add(times(real, other_imaginary), times(imaginary, other_real))),
        )

    return convert


_times = _product("mul.Tensor")


def _square(t: Translation, a: SimpleNamespace) -> Any:
    if a.exponent != 2:
        raise NotConvertible("powers of complex numbers other than the square")
    return _times(t, SimpleNamespace(self=a.self, other=a.self))


def _quotient(t: Translation, a: SimpleNamespace) -> Any:
    divide = _REAL["div.Tensor"]
    if not _is_complex(a.other):
        return Complex(*(divide(t, SimpleNamespace(self=part, other=a.other)) for part in _parts(a.self)))
    real, imaginary = _parts(a.other)
    if isinstance(a.other, complex):
        return _times(t, SimpleNamespace(self=a.self, other=1 / a.other))
    above = _times(t, SimpleNamespace(self=a.self, other=Complex(real, t.emit(relax.op.negative(imaginary)))))
    real, imaginary = Real(t, real), Real(t, imaginary)
    below = real * real + imaginary * imaginary
    return Complex(*((Real(t, part) / below).value for part in above))


def _conjugate(t: Translation, a: SimpleNamespace) -> Any:
    return Complex(a.self.real, t.emit(relax.op.negative(a.self.imaginary))) if isinstance(a.self, Complex) else a.self


def _magnitude(t: Translation, a: SimpleNamespace) -> Expression:
    return _REAL["hypot.default"](t, SimpleNamespace(self=a.self.real, other=a.self.imaginary))


def _angle(t: Translation, a: SimpleNamespace) -> Expression:
    return _REAL["atan2.default"](t, SimpleNamespace(self=a.self.imaginary, other=a.self.real))


def _joined(t: Translation, a: SimpleNamespace) -> Expression:
    """Both parts along a new last axis."""
    shape = shape_of(a.self.real)
    return t.concat([t.reshape(part, [*shape, 1]) for part in a.self], len(shape))


def _separated(t: Translation, a: SimpleNamespace) -> Complex:
    *shape, _ = shape_of(a.self)
    return Complex(*(t.reshape(t.slice(a.self, len(shape), i, i + 1), shape) for i in range(2)))


def _from_parts(t: Translation, a: SimpleNamespace) -> Complex:
    return Complex(t.expand(a.real, t.result.shape), t.expand(a.imag, t.result.shape))


def _polar(t: Translation, a: SimpleNamespace) -> Complex:
    return _turned(t, a.abs, a.angle)


def _exponential(t: Translation, a: SimpleNamespace) -> Complex:
    return _turned(t, t.emit(relax.op.exp(a.self.real)), a.self.imaginary)


def _turned(t: Translation, size: Expression, angle: Expression) -> Complex:
    turns = (Real(t, angle).cos(), Real(t, angle).sin())
    return Complex(*((Real(t, size) * turn).value for turn in turns))


def _cast(t: Translation, a: SimpleNamespace) -> Any:
    """To another type; to a real one, the imaginary part is left out, as PyTorch does."""
    if a.dtype is not None and not a.dtype.is_complex:
        return t.finish(a.self.real)
    return Complex(*(t.finish(part) for part in _with_parts(t, a.self)))


def _transform_of_reals(t: Translation, a: SimpleNamespace) -> Any:
    """The last of the axes is transformed first; half of its spectrum is enough for real values."""
    sizes = [shape_of(a.self)[axis] for axis in a.dim]
    scale = _scale(a.normalization, sizes)
    value = _transformed(t, a.self, a.dim[-1], sizes[-1], scale, is_half=a.onesided)
    for axis, size in zip(a.dim[:-1], sizes, strict=False):
        value = _transformed(t, value, axis, size)
    return value


def _transform(t: Translation, a: SimpleNamespace) -> Any:
    sizes = [shape_of(a.self.real)[axis] for axis in a.dim]
    value, scale = a.self, _scale(a.normalization, sizes)
    for axis, size in zip(a.dim, sizes, strict=True):
        value = _transformed(t, value, axis, size, scale, is_inverse=not a.forward)
        scale = 1.0
    return value


def _transform_to_reals(t: Translation, a: SimpleNamespace) -> Expression:
    """Inverse transforms; the last of the axes has half of a spectrum, whose other half is conjugate."""
    sizes = [*(shape_of(a.self.real)[axis] for axis in a.dim[:-1]), a.last_dim_size]
    value = a.self
    for axis, size in zip(a.dim[:-1], sizes, strict=False):
        value = _transformed(t, value, axis, size, is_inverse=True)
    scale = _scale(a.normalization, sizes)
    return _transformed(t, value, a.dim[-1], sizes[-1], scale, is_half=True, is_inverse=True)


def _scale(normalization: int, sizes: Sequence[int]) -> float:
    """The factor of PyTorch's normalization: none, by the root of the number of values, by their number."""
    return float(math.prod(sizes) ** (0.0, -0.5, -1.0)[normalization])


def _transformed(
    t: Translation,
    value: Any,
    axis: int,
    length: int,
    scale: float = 1.0,
    *,
    is_half: bool = False,
    is_inverse: bool = False,
) -> Any:
    """A transform along one axis, multiplied by `scale`: complex, but for an inverse of half a spectrum.

    `length` is the number of values of the signal.  With `is_half`, its spectrum has only `length // 2 + 1`.
    """
    parts = [t.wide(part) for part in value] if isinstance(value, Complex) else [t.wide(value)]
    shape = shape_of(parts[0])
    axis %= len(shape)
    matrix = fourier_matrix(length, len(parts), is_half=is_half, is_inverse=is_inverse) * scale
    if is_inverse:
        matrix = matrix * length
    read, _, written, results = matrix.shape
    if shape[axis] != read:
        raise NotConvertible(f"a transform of {shape[axis]} values where {read} are needed")
    order = [*(other for other in range(len(shape)) if other != axis), axis]
    moved = [t.permute(part, order) for part in parts]
    rows = t.reshape(t.concat(moved, len(shape) - 1), [math.prod(shape) // shape[axis], len(parts) * read])
    factors = matrix.transpose(1, 0, 3, 2).reshape(len(parts) * read, results * written)
    product = t.emit(relax.op.matmul(rows, t.const(factors, dtype_of(rows))))
    lead = [shape[other] for other in order[:-1]]
    back = [order.index(place) for place in range(len(shape))]
    found = []
    for place in range(results):
        part = t.reshape(t.slice(product, 1, place * written, (place + 1) * written), [*lead, written])
        found.append(t.cast(t.permute(part, back), t.result.dtype))
    return Complex(*found) if results == 2 else found[0]


COMPLEX_CONVERTERS: dict[str, Converter] = {
    **{name: _linear(name) for name in _LINEAR},
    **{f"{name}.{kind}": _sum(f"{name}.{kind}") for name in ("add", "sub") for kind in ("Tensor", "Scalar")},
    **{f"mul.{kind}": _product(f"mul.{kind}") for kind in ("Tensor", "Scalar")},
    **{f"div.{kind}": _quotient for kind in ("Tensor", "Scalar")},
    **{f"{name}.default": _product(f"{name}.default", "mat2") for name in ("mm", "bmm")},
    "matmul.default": _product("matmul.default"),
    "pow.Tensor_Scalar": _square,
    "_to_copy.default": _cast,
    **dict.fromkeys(("_conj.default", "conj_physical.default", "_conj_physical.default"), _conjugate),
    "resolve_conj.default": lambda t, a: a.self,
    "abs.default": _magnitude,
    "angle.default": _angle,
    "exp.default": _exponential,
    "polar.default": _polar,
    "complex.default": _from_parts,
    "real.default": lambda t, a: a.self.real,
    "imag.default": lambda t, a: a.self.imaginary,
    **dict.fromkeys(("view_as_real.default", "view_as_real_copy.default"), _joined),
    **dict.fromkeys(("view_as_complex.default", "view_as_complex_copy.default"), _separated),
    "_fft_r2c.default": _transform_of_reals,
    "_fft_c2c.default": _transform,
    "_fft_c2r.default": _transform_to_reals,
}
"""Operator of aten that reads or makes complex numbers -> its converter."""
