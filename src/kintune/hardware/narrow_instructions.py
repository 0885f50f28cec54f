"""Which extensions a CPU needs to compute in a narrow precision."""

from __future__ import annotations

from collections.abc import Collection

from kintune.core.measurement_protocol import FLUSHED, DeviceType
from kintune.errors import TargetError
from kintune.hardware.gpu_target import is_gpu

__all__ = ["FOR_BF16", "FOR_INT8", "check_narrow", "has_instructions", "lacking", "require_instructions"]

FOR_BF16 = frozenset({"amxbf16", "avx512bf16"})
"""Extensions for products in bfloat16, as `hardware.cpu.extensions` spells them; one of them is enough."""

FOR_INT8 = frozenset({"avx512vnni", "avxvnni", "dotprod", "i8mm"})
"""The same for products of bytes."""

_NEEDED = {
    "bf16": (FOR_BF16, "for bfloat16 (avx512_bf16 or amx_bf16)"),
    "int8": (FOR_INT8, "for products of bytes (avx512_vnni, avx_vnni, asimddp or i8mm)"),
}


def lacking(device: DeviceType) -> dict[str, str]:
    """The precisions that a device does not compute in itself, each with the reason."""
    if others := _others(device):
        return dict.fromkeys((*_NEEDED, "auto"), f"{others} compute in fp32")
    return _lacking(device.isa, device.model)


def check_narrow(device: DeviceType, precision: str, weights: int = 0) -> None:
    """Check that a device computes in a precision itself, and takes models with `weights` of so many bits; 0: any.

    Raises:
        TargetError: it does not.
    """
    if why := lacking(device).get(precision):
        raise TargetError(f"precision {precision}: {why}; leave --precision out")
    if weights and (others := _others(device)):
        raise TargetError(f"weights of {weights} bits: {others} run models as they are; leave --weights out")


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
    return {
        precision: f"{cpu} has no instructions {what}"
        for precision, (needed, what) in _NEEDED.items()
        if not needed.intersection(extensions)
    }


def _others(device: DeviceType) -> str:
    """What a device is that is no CPU of Linux which kernels are timed on directly; empty for those."""
    return "GPUs" if is_gpu(device.target) else "boards" if device.protocol.endswith(FLUSHED) else ""
