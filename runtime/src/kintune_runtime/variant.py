"""Which of a file's variants was opened: a file may have plans for several kinds of CPU."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from .errors import InputError
from .library import DescribedVariant, library, raise_for

__all__ = ["BEST", "Variant", "check_number", "variant_of"]

BEST = -1
"""The number of the variant that suits this machine best; `KT_BEST`."""


class Variant(NamedTuple):
    """The plans that were chosen for this machine's CPU.

    It is number `number`, from 0, of the `total` variants of the file.  `cpu` is the name of the CPU that it was tuned
    on, empty where that is not known; `isa` are the extensions that it uses, `threads` ran it when it was tuned.
    """

    number: int
    total: int
    machine: str
    cpu: str
    isa: tuple[str, ...]
    threads: int


def check_number(variant: int) -> int:
    """`variant`, if it can be the number of a variant.

    Raises:
        InputError: it cannot: it is negative, or too large for the library.
    """
    if not 0 <= variant < 1 << 31:
        raise InputError(f"there is no variant {variant}; they count from 0")
    return variant


def variant_of(model: ctypes.c_void_p) -> Variant:
    """The variant of an opened model."""
    found = DescribedVariant()
    if status := library().kt_describe_variant(model, ctypes.byref(found)):
        raise_for(status)
    machine, cpu, isa = (text.decode(errors="replace") for text in (found.machine, found.cpu, found.isa))
    return Variant(found.number, found.total, machine, cpu, tuple(isa.split()), found.threads)
