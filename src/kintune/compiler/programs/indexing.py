"""Indices and buffers of programs of our own, in the type of indices that the workload has."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from tvm import tirx

__all__ = ["Indexing", "Vectors", "buffer_of", "index_of"]

_TYPE = "float32"


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
        return index_of(value, self.index_type)

    def buffer(self, name: str, *shape: int) -> Any:
        """A buffer of this shape."""
        return buffer_of(name, shape, self.index_type)


def index_of(value: Any, index_type: str) -> Any:
    """A number as an index; an expression as it is."""
    return tirx.const(value, index_type) if isinstance(value, int) else value


def buffer_of(name: str, shape: tuple[int, ...], index_type: str, dtype: str = _TYPE) -> Any:
    """A buffer, by default of fp32."""
    return tirx.decl_buffer([index_of(extent, index_type) for extent in shape], dtype, name)
