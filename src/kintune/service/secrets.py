"""Tokens: shown once, kept as a hash."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import NamedTuple

__all__ = ["NewToken", "hash_of", "looks_like_a_token", "new_token"]

_PREFIX = "kt_"
_BYTES = 32
_SHAPE = re.compile(rf"{_PREFIX}[A-Za-z0-9_-]{{43}}")


class NewToken(NamedTuple):
    """A token that nobody has seen yet; `hint` is its beginning, by which people tell theirs apart."""

    text: str
    hash: str
    hint: str


def new_token() -> NewToken:
    """Draw a token from the system's randomness: 256 bits."""
    text = _PREFIX + secrets.token_urlsafe(_BYTES)
    return NewToken(text, hash_of(text), text[: len(_PREFIX) + 6])


def hash_of(text: str) -> str:
    """What is kept of a token.

    A plain SHA-256: a slow hash protects passwords, which can be guessed; 256 random bits cannot.
    """
    return hashlib.sha256(text.encode()).hexdigest()


def looks_like_a_token(text: str) -> bool:
    """Whether it is worth looking up."""
    return _SHAPE.fullmatch(text) is not None
