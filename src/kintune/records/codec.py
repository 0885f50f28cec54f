"""How bytes are kept in a row: compressed when that makes them smaller."""

from __future__ import annotations

import zlib
from enum import Enum

__all__ = ["Codec", "pack", "unpack"]

_WORTH_IT = 256  # bytes: less is kept as it is
_LEVEL = 3  # trained models and traces shrink to a third; higher levels gain little for twice the time


class Codec(str, Enum):
    """How the bytes of a row are to be read."""

    RAW = "raw"
    ZLIB = "zlib"


def pack(data: bytes) -> tuple[Codec, bytes]:
    """The bytes to keep for `data`, and how to read them."""
    if len(data) >= _WORTH_IT:
        packed = zlib.compress(data, _LEVEL)
        if len(packed) < len(data):
            return Codec.ZLIB, packed
    return Codec.RAW, data


def unpack(codec: str, kept: bytes) -> bytes:
    """What was packed; raises `ValueError` when it is damaged."""
    if codec == Codec.RAW.value:
        return kept
    if codec != Codec.ZLIB.value:
        raise ValueError(f"unknown codec {codec!r}")
    try:
        return zlib.decompress(kept)
    except zlib.error as error:
        raise ValueError(str(error)) from error
