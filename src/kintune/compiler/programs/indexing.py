"""Indices, loops and buffers of programs of our own, in the type of indices that the workload has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from tvm import tirx

from kintune.compiler.kernels.loops import buffer, index, loop

__all__ = ["Indexing", "Vectors"]


class Indexing(Protocol):
    """Makes indices of one type."""

    @property
    def index_type(self) -> str:
        """The type of indices."""

    def at(self, value: Any) -> Any:
        """A number as an index; an expression as it is."""


class Vectors(NamedTuple):
    """Vectors of `lanes` values, and indices of the type `index_type`."""

    lanes: int
    index_type: str

    def at(self, value: Any) -> Any:
        """A number as an index; an expression as it is."""
        return index(value, self.index_type)

    def buffer(self, name: str, *shape: int) -> Any:
        """A buffer of fp32 of this shape."""
        return buffer(name, shape, "float32", "global", self.index_type)

    def loop(self, name: str, extent: Any, body: Callable[[Any], Any], kind: int = tirx.ForKind.SERIAL) -> Any:
        """A loop over a new variable; no loop, and index 0, where the extent is the number 1."""
        return loop(name, extent, body, kind, self.index_type)
