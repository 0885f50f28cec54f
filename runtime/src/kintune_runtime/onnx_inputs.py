"""Reads the names of extents of an ONNX file's inputs, such as "batch"; it needs no package.

It reads as much of protobuf's encoding as that takes: a message is a sequence of fields, each with a number.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["named_extents"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # how a field is stored

# numbers of fields in onnx.proto
_MODEL_GRAPH, _GRAPH_INPUT, _VALUE_NAME, _VALUE_TYPE = 7, 11, 1, 2
_TYPE_TENSOR, _TENSOR_SHAPE, _SHAPE_EXTENT, _EXTENT_NAME = 1, 2, 1, 2


def named_extents(model: bytes) -> dict[str, tuple[str, ...]]:
    """The names of the extents of each input that has a shape; "" for an extent that is a number or not known.

    Raises:
        ValueError: it is no ONNX file.
    """
    found: dict[str, tuple[str, ...]] = {}
    for graph in _fields(memoryview(model), _MODEL_GRAPH):
        for value in _fields(graph, _GRAPH_INPUT):
            name = _text(value, _VALUE_NAME)
            for kind in _fields(value, _VALUE_TYPE):
                for tensor in _fields(kind, _TYPE_TENSOR):
                    for shape in _fields(tensor, _TENSOR_SHAPE):
                        found[name] = tuple(_text(each, _EXTENT_NAME) for each in _fields(shape, _SHAPE_EXTENT))
    return found


def _text(message: memoryview, number: int) -> str:
    return next((bytes(each).decode(errors="replace") for each in _fields(message, number)), "")


def _fields(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """The contents of the fields with the number `wanted` that are bytes; other fields are skipped."""
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _BYTES:
            size, at = _varint(message, at)
            if size > end - at:
                raise ValueError("a field is longer than its message")
            if tag >> 3 == wanted:
                yield message[at : at + size]
            at += size
        elif kind == _VARINT:
            _, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"a field is stored in way {kind}")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """The variable-length number at a place, seven bits a byte, and the place after it."""
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a number has no end")
