"""Which extensions a CPU needs to compute in a narrow precision."""

from __future__ import annotations

from collections.abc import Collection

from kintune.core.capabilities import FOR_BF16, FOR_INT8, Capabilities
from kintune.core.measurement_protocol import DeviceType
from kintune.errors import TargetError
from kintune.hardware.cpu import spelled

__all__ = ["check_narrow", "has_instructions", "lacking", "require_instructions"]

_NEEDED = {
    "bf16": f"for bfloat16 ({spelled(FOR_BF16)})",
    "int8": f"for products of bytes ({spelled(FOR_INT8)})",
}


def lacking(device: DeviceType) -> dict[str, str]:
    """The precisions that a device does not compute in itself, each with the reason."""
    can = device.capabilities
    if not can.narrow:
        return dict.fromkeys((*_NEEDED, "auto"), f"{can.noun}s compute in fp32")
    return _lacking(device.isa, device.model)


def check_narrow(device: DeviceType, precision: str, weights: int = 0) -> None:
    """Check that a device computes in a precision itself, and takes models with `weights` of so many bits; 0: any.

    Raises:
        TargetError: it does not.
    """
    if why := lacking(device).get(precision):
        raise TargetError(f"precision {precision}: {why}; leave --precision out")
    if weights and not (can := device.capabilities).narrow:
        raise TargetError(f"weights of {weights} bits: {can.noun}s run models as they are; leave --weights out")


def require_instructions(precision: str, extensions: Collection[str], cpu: str) -> None:
    """Check that a `cpu` with these extensions computes in a precision itself.

    Raises:
        TargetError: it does not.
    """
    if why := _lacking(extensions, cpu).get(precision):
        raise TargetError(f"precision {precision}: {why}; leave --precision out")


def has_instructions(precision: str, extensions: Collection[str] | None) -> bool:
    """Whether a CPU with these extensions computes in a precision itself, instead of emulating it.

    True where the extensions are not known (None), or the precision needs none.
    """
    return extensions is None or precision not in _lacking(extensions, "")


def _lacking(extensions: Collection[str], cpu: str) -> dict[str, str]:
    computed = Capabilities(extensions=tuple(extensions)).precisions
    return {
        precision: f"{cpu} has no instructions {what}"
        for precision, what in _NEEDED.items()
        if precision not in computed
    }
