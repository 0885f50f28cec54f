"""The file format of family models: samples, members and trained trees, without pickle.

A zip of numpy arrays: `header` is a JSON document.  For the n-th workload there are `rows_n` (the feature rows of the
stores of all its candidates), `stores_n` (the number of stores of each candidate) and `costs_n` (seconds).  For the
n-th family there is `trees_n` (XGBoost's UBJSON, empty when it was never trained).
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from typing import Any

import msgspec
import numpy as np
import tvm
from numpy.typing import NDArray
from tvm.s_tir.meta_schedule.cost_model.xgb_model import FeatureGroup

from kintune.errors import InputError
from kintune.files import check_readable, check_writable, write_whole
from kintune.integrations.stock.members import TaskMember
from kintune.runtime.inputs import encode_arrays

__all__ = ["Archive", "read_archive", "write_archive"]

_FORMAT = "kintune family models 1"
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)


class Archive(msgspec.Struct, frozen=True):
    """The content of a file: the family algorithm, each member with its family, samples by member, trees by family."""

    algorithm: str
    members: dict[str, tuple[TaskMember, str]]
    samples: dict[str, FeatureGroup]
    trees: dict[str, bytes]


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content beside the arrays; `samples` and `trees` have the keys of members and families in their order."""

    format: str
    compiler: str
    algorithm: str
    members: dict[str, tuple[TaskMember, str]]
    samples: list[str]
    trees: list[str]


def write_archive(path: str | os.PathLike[str], archive: Archive) -> None:
    """Write a file, whole or not at all.

    Raises:
        InputError: it cannot be written.
    """
    target = check_writable(path, "the cost model's file")
    header = _Header(
        _FORMAT, tvm.__version__, archive.algorithm, archive.members, list(archive.samples), list(archive.trees)
    )
    arrays: dict[str, NDArray[Any]] = {"header": np.frombuffer(msgspec.json.encode(header), np.uint8)}
    for n, group in enumerate(archive.samples.values()):
        arrays[f"rows_{n}"] = np.concatenate(group.features)
        arrays[f"stores_{n}"] = np.array([len(rows) for rows in group.features], np.int64)
        arrays[f"costs_{n}"] = np.asarray(group.costs, np.float32)
    for n, trees in enumerate(archive.trees.values()):
        arrays[f"trees_{n}"] = np.frombuffer(trees, np.uint8)
    write_whole(target, encode_arrays(arrays, zipfile.ZIP_DEFLATED))


def read_archive(path: str | os.PathLike[str]) -> Archive:
    """Read a file.

    Raises:
        InputError: it is not a file of family models, is damaged, or was written with another version of TVM.
    """
    source = check_readable(path, "the cost model's file")
    try:
        with np.load(io.BytesIO(source.read_bytes()), allow_pickle=False) as arrays:
            header = msgspec.json.decode(arrays["header"].tobytes(), type=_Header)
            samples = {key: _group(key, arrays, n) for n, key in enumerate(header.samples)}
            trees = {family: arrays[f"trees_{n}"].tobytes() for n, family in enumerate(header.trees)}
    except _DAMAGE as error:
        raise InputError(f"{path}: no file of family models, or a damaged one; save the cost model again") from error
    if header.format != _FORMAT or not set(samples) <= set(header.members):
        raise InputError(f"{path}: {header.format!r} is not {_FORMAT!r}; save the cost model again")
    if header.compiler != tvm.__version__:
        raise InputError(
            f"{path}: written with TVM {header.compiler}, and features of TVM {tvm.__version__} do not compare with it"
        )
    return Archive(header.algorithm, header.members, samples, trees)


def _group(key: str, arrays: Any, n: int) -> FeatureGroup:
    rows, stores, costs = arrays[f"rows_{n}"], arrays[f"stores_{n}"], arrays[f"costs_{n}"]
    if len(stores) != len(costs) or not len(costs) or stores.min() < 1 or stores.sum() != len(rows):
        raise ValueError(f"{key}: lengths do not agree")
    features = np.split(rows.astype(np.float32, copy=False), np.cumsum(stores)[:-1])
    return FeatureGroup(key, list(features), costs.astype(np.float32, copy=False))
