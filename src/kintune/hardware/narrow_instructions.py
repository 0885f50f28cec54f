"""Which extensions a CPU needs to compute in a narrow precision."""

from __future__ import annotations

from collections.abc import Collection

from kintune.errors import TargetError

__all__ = ["FOR_BF16", "FOR_INT8", "has_instructions", "require_instructions"]

FOR_BF16 = frozenset({"amxbf16", "avx512bf16"})
"""Extensions for products in bfloat16, as `hardware.cpu.extensions` spells them; one of them is enough."""

FOR_INT8 = frozenset({"avx512vnni", "avxvnni", "dotprod", "i8mm"})
"""The same for products of bytes."""

_NEEDED = {
    "bf16": (FOR_BF16, "for bfloat16 (avx512_bf16 or amx_bf16); leave --precision out"),
    "int8": (
        FOR_INT8,
        "for products of bytes (avx512_vnni, avx_vnni, asimddp or i8mm); leave --precision int8 and --calibrate out",
    ),
}


def has_instructions(precision: str, extensions: Collection[str] | None) -> bool:
    """Whether a CPU with these extensions computes in a precision itself, instead of emulating it.

    True where the extensions are not known (None), or the precision needs none.
    """
    needed, _ = _NEEDED.get(precision, (frozenset[str](), ""))
    return extensions is None or not needed or bool(needed.intersection(extensions))


def require_instructions(precision: str, extensions: Collection[str], cpu: str) -> None:
    """Check that a `cpu` with these extensions computes in a precision itself.

    Raises:
        TargetError: it does not.
    """
    if not has_instructions(precision, extensions):
        raise TargetError(f"precision {precision}: {cpu} has no instructions {_NEEDED[precision][1]}")
