"""Objects that are neither copied nor pickled: opened models, and what runs them."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex

from .errors import InputError

__all__ = ["NotCopied"]


class NotCopied:
    """Has memory, threads or a device: an attempt to copy or pickle it is refused, and told what to do instead."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        del protocol
        raise InputError(
            f"{type(self).__name__}: an opened model is neither copied nor pickled: give the other process the path of"
            " its file, or the file's bytes, and open it there; threads share it, each with a context() of its own"
        )
