"""Outputs as a `.npz` file holds them: tensors as they are, of sequences and maps the numbers and the texts inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kintune.runtime.inputs import Array, encode_arrays, load_inputs

__all__ = ["load_outputs", "name_parts", "save_outputs"]

_NUMBERS, _TEXTS = "numbers", "texts"


def save_outputs(path: Path, outputs: Sequence[Any]) -> None:
    """Write outputs by position.

    Types that `.npz` does not know (bfloat16) are written as float32, which holds them exactly, and strings as an array
    of fixed width.  What is no tensor becomes two arrays of one axis: its numbers and its texts.
    """
    parts: dict[str, Array] = {}
    for position, output in enumerate(outputs):
        if isinstance(output, np.ndarray | np.generic):
            parts[str(position)] = _plain(np.asarray(output))
        else:
            leaves = [_plain(leaf).reshape(-1) for leaf in _leaves(output)]
            texts = [leaf for leaf in leaves if leaf.dtype.kind == "U"]
            numbers = [leaf.astype(np.float64) for leaf in leaves if leaf.dtype.kind != "U"]
            parts[f"{position} {_NUMBERS}"] = np.concatenate(numbers) if numbers else np.zeros(0)
            parts[f"{position} {_TEXTS}"] = np.concatenate(texts) if texts else np.zeros(0, "U1")
    path.write_bytes(encode_arrays(parts))


def load_outputs(path: str) -> dict[str, Array]:
    """The arrays that `save_outputs` wrote, by the names of the parts.

    Raises:
        InputError: the file is missing or damaged.
    """
    return load_inputs(path)


def name_parts(parts: Sequence[str], outputs: Sequence[str]) -> list[str]:
    """The names of these parts for messages, given those of the outputs: "labels", "probabilities (numbers)"."""
    found = []
    for part in parts:
        position, _, kind = part.partition(" ")
        name = outputs[int(position)] if int(position) < len(outputs) else position
        found.append(f"{name} ({kind})" if kind else name)
    return found


def _leaves(value: Any) -> Iterator[Array]:
    """The tensors, numbers and texts inside of a value, keys of maps before their values."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield np.asarray(key)
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
    elif value is not None and isinstance(value, np.ndarray | np.generic | bool | int | float | str):
        yield np.asarray(value)


def _plain(array: Array) -> Array:
    if array.dtype.kind in "fiubU":
        return array
    return array.astype(str) if array.dtype == object else array.astype(np.float32)
