"""Signs files, and checks their signatures; `kintune_runtime.signature` has the format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from kintune.errors import InputError
from kintune.files import check_readable, check_writable, write_whole
from kintune.runtime.stored_zip import opened, replacing
from kintune_runtime.signature import MAGIC, PLACE, SIZE, Key, digest_of, import_ed25519, is_model, message_of, verify

__all__ = ["SUFFIX", "Signed", "sign_file", "verify_file"]

SUFFIX = ".sig"
"""Ends the name of the file that has the signature of another one."""


class Signed(NamedTuple):
    """A file, the file that has its signature (the same for a `.kt` file), and the SHA-256 digest that is signed."""

    path: Path
    signature: Path
    digest: bytes


def sign_file(path: str | os.PathLike[str], key: str | os.PathLike[str]) -> Signed:
    """Sign a file with a private key of Ed25519 in a PEM file.

    A `.kt` file gets its signature inside: it is replaced by renaming.  Any other file gets one beside it.

    Raises:
        InputError: one of the two cannot be read, the key is none, or `cryptography` is missing.
        StorageError: the signature cannot be written.
    """
    source, private = check_readable(path, "the file"), _private_key(key)
    with opened(source) as file:
        if not is_model(file):
            beside = check_writable(f"{source}{SUFFIX}", "the signature")
            digest = digest_of(file, False)
            write_whole(beside, MAGIC + private.sign(message_of(digest)))
            return Signed(source, beside, digest)
        with replacing(source) as target:
            digest = digest_of(file, True, target)
            target.seek(PLACE)
            target.write(MAGIC + private.sign(message_of(digest)))
    return Signed(source, source, digest)


def verify_file(path: str | os.PathLike[str], key: Key) -> Signed:
    """Check that a file was signed with the private key of a public one.

    Raises:
        InputError: it was not, or was altered since then; it or its signature cannot be read, or the key is none.
    """
    source = check_readable(path, "the file")
    with opened(source) as file:
        if is_model(file):
            return Signed(source, source, verify(file, key, os.fspath(path)))
        beside = Path(f"{source}{SUFFIX}")
        if not beside.exists():
            raise InputError(f"{path}: is not signed: there is no {beside}; `kintune sign` signs it")
        with opened(beside) as signature:
            return Signed(source, beside, verify(file, key, os.fspath(path), signature.read(SIZE + 1)))


def _private_key(path: str | os.PathLike[str]) -> Any:
    ed25519 = import_ed25519()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    file = check_readable(path, "--key")
    try:
        key = load_pem_private_key(file.read_bytes(), None)
    except OSError as error:
        raise InputError(f"--key {path} cannot be read: {error.strerror or error}") from error
    except TypeError:
        raise InputError(f"--key {path} is encrypted; give it as `openssl pkey -in {path}` writes it") from None
    except Exception as error:
        raise InputError(
            f"--key {path}: no private key in PEM; `openssl genpkey -algorithm ed25519` makes one"
        ) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise InputError(f"--key {path}: no key of Ed25519; `openssl genpkey -algorithm ed25519` makes one")
    return key
