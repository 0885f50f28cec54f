"""Blobs: large immutable bytes, stored once under the digest of their content."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from enum import Enum
from typing import Any

from sqlalchemy import select

from kintune.core.candidate import digest_of
from kintune.errors import RecordsError
from kintune.records.database import Database, insert_or_keep
from kintune.records.integrity import Damage
from kintune.records.schema import blobs

__all__ = ["Blobs", "Codec", "content", "pack", "unpack"]

_LEAST_PACKED = 256  # bytes: shorter blobs are stored as they are
_LEVEL = 3  # trained models and traces shrink to a third; higher levels gain little for twice the time


def content(row: Mapping[str, Any]) -> bytes:
    """Returns the bytes of one row of `blobs`.

    Raises:
        DamagedRecord: they do not match their digest.
    """
    try:
        data = unpack(row["codec"], row["bytes"])
    except (ValueError, TypeError) as error:
        raise Damage(blobs.name, str(row["digest"]), f"cannot be read: {error}").error() from error
    if digest_of(data) != row["digest"]:
        raise Damage(blobs.name, str(row["digest"]), "its content does not match its digest").error()
    return data


class Blobs:
    """Bytes by digest."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, data: bytes) -> str:
        """Stores `data`, and returns its digest, `digest_of(data)`."""
        digest = digest_of(data)
        with self._database.transaction() as connection:
            if connection.scalar(select(blobs.c.digest).where(blobs.c.digest == digest)) is None:
                codec, kept = pack(data)
                insert_or_keep(connection, blobs, {"digest": digest, "codec": codec.value, "bytes": kept})
        return digest

    def get(self, digest: str) -> bytes:
        """Returns the bytes with this digest.

        Raises:
            RecordsError: there are none.
            DamagedRecord: they changed.
        """
        with self._database.snapshot() as connection:
            row = connection.execute(select(blobs).where(blobs.c.digest == digest)).one_or_none()
        if row is None:
            raise RecordsError(f"records: no blob {digest}")
        return content(row._asdict())


class Codec(str, Enum):
    """The encoding of the bytes of a row."""

    RAW = "raw"
    ZLIB = "zlib"


def pack(data: bytes) -> tuple[Codec, bytes]:
    """Returns the codec and the bytes to store for `data`."""
    if len(data) >= _LEAST_PACKED:
        packed = zlib.compress(data, _LEVEL)
        if len(packed) < len(data):
            return Codec.ZLIB, packed
    return Codec.RAW, data


def unpack(codec: str, kept: bytes) -> bytes:
    """Reverses `pack`.

    Raises:
        ValueError: the bytes are damaged, or their codec is unknown.
    """
    if codec == Codec.RAW.value:
        return kept
    if codec != Codec.ZLIB.value:
        raise ValueError(f"unknown codec {codec!r}")
    try:
        return zlib.decompress(kept)
    except zlib.error as error:
        raise ValueError(str(error)) from error
