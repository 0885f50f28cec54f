"""Signatures of files: Ed25519 (RFC 8032) over the SHA-256 digest of their content, by the package `cryptography`.

A signature is a record of `SIZE` bytes: `MAGIC`, then the 64 bytes of Ed25519.  A `.kt` file has its own one inside, at
`PLACE`: in the padding before its first member, which readers skip.  These bytes count as zeros in the digest.  Other
files have it in a file beside them, whose name ends with `.sig`.

`cryptography` is imported when a signature is made or checked.
"""

from __future__ import annotations

import hashlib
import os
from typing import IO, Any, TypeAlias

from .errors import InputError

__all__ = [
    "MAGIC",
    "PLACE",
    "SIZE",
    "Key",
    "digest_of",
    "import_ed25519",
    "is_model",
    "message_of",
    "public_key",
    "verify",
]

Key: TypeAlias = "str | bytes | os.PathLike[str]"
"""A public key: the path of a PEM file, the content of one, or the 32 bytes of the key itself."""

MAGIC = b"KTSIGN1\0"
PLACE, SIZE = 128, len(MAGIC) + 64
_PAGE = 4096
_CHUNK = 16 << 20
_PURPOSE = b"Kintune: content with this SHA-256 digest\n"
_MANIFEST = b"manifest.json"


def import_ed25519() -> Any:
    """The module of `cryptography` that has Ed25519.

    Raises:
        InputError: it is missing, or too old.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise InputError(f"signatures need the package cryptography ({error}): pip install cryptography") from None
    return ed25519


def public_key(key: Key) -> Any:
    """The key, as `cryptography` has it.

    Raises:
        InputError: it cannot be read, is no public key of Ed25519, or `cryptography` is missing.
    """
    ed25519 = import_ed25519()
    name = "the public key" if isinstance(key, bytes) else os.fspath(key)
    try:
        if isinstance(key, bytes) and len(key) == 32:
            return ed25519.Ed25519PublicKey.from_public_bytes(key)
        content = key if isinstance(key, bytes) else _read(key)
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        found = load_pem_public_key(content)
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error
    except Exception as error:
        raise InputError(f"{name}: no public key in PEM; `openssl pkey -pubout` writes one") from error
    if not isinstance(found, ed25519.Ed25519PublicKey):
        raise InputError(f"{name}: no key of Ed25519")
    return found


def is_model(file: IO[bytes]) -> bool:
    """Whether a file begins as a `.kt` file, which has room for its signature."""
    file.seek(0)
    start = file.read(PLACE + SIZE)
    if len(start) < PLACE + SIZE or start[:4] != b"PK\3\4" or start[30 : 30 + len(_MANIFEST)] != _MANIFEST:
        return False
    lengths = int.from_bytes(start[26:28], "little") + int.from_bytes(start[28:30], "little")
    return 30 + lengths == _PAGE


def digest_of(file: IO[bytes], within: bool, copy: IO[bytes] | None = None) -> bytes:
    """The digest of a file that is signed; with `within`, the place of the signature counts as zeros.

    What counts is also written to `copy`.
    """
    digest = hashlib.sha256()
    file.seek(0)
    part = file.read(_CHUNK)
    if within:
        part = part[:PLACE] + bytes(SIZE) + part[PLACE + SIZE :]
    while part:
        digest.update(part)
        if copy is not None:
            copy.write(part)
        part = file.read(_CHUNK)
    return digest.digest()


def message_of(digest: bytes) -> bytes:
    """The message that Ed25519 signs."""
    return _PURPOSE + digest


def verify(file: IO[bytes], key: Key, name: str, record: bytes | None = None) -> bytes:
    """Check that a file was signed; returns its digest.

    `name` is for messages, `record` is the signature where it lies in another file.

    Raises:
        InputError: it was not, or with another key, or was altered since then; the key cannot be used.
    """
    trusted = public_key(key)
    within = record is None
    if record is None:
        record = b""
        if is_model(file):
            file.seek(PLACE)
            record = file.read(SIZE)
    if len(record) != SIZE or not record.startswith(MAGIC):
        raise InputError(f"{name}: is not signed; `kintune sign` signs it")
    from cryptography.exceptions import InvalidSignature

    digest = digest_of(file, within)
    try:
        trusted.verify(record[len(MAGIC) :], message_of(digest))
    except InvalidSignature:
        raise InputError(
            f"{name}: was altered since it was signed, or signed with another key than the trusted one"
        ) from None
    return digest


def _read(path: str | os.PathLike[str]) -> bytes:
    with open(path, "rb") as file:
        return file.read(1 << 16)
