"""Pools of measured candidates, and the files that hold them."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from kintune.core.candidate import Candidate
from kintune.core.version import COMPILER_ONLY, FEATURES
from kintune.errors import InputError
from kintune.files import check_readable, write_whole
from kintune.search.family import Subject
from kintune.search.training_rows import of_stores
from kintune_lab.families.samples import SubgraphSamples

__all__ = ["Origin", "Pool", "load_pool", "save_pool"]

_FORMAT = "kintune-pool-1"
_UNREADABLE = (
    OSError, ValueError, KeyError, EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error,
    msgspec.MsgspecError,
)  # fmt: skip


class Origin(msgspec.Struct, frozen=True):
    """Where a pool comes from: the model as a spec names it, the seed of its search, what times are true for.

    `samples` were asked for of each subgraph; one with fewer programs has them all.  `threads` is what they ran with
    (0: not known).  `content` digests the model, if it is a file; it is empty in older pools.
    """

    model: str
    seed: int
    samples: int
    device_type: str
    device: str
    compiler: str
    threads: int = 0
    content: str = ""


@dataclass(frozen=True)
class Pool:
    """The measured candidates of every tunable subgraph of a network, by workload."""

    origin: Origin
    subgraphs: dict[str, SubgraphSamples]

    @property
    def least(self) -> int:
        """The number of samples that every subgraph has."""
        return min((len(measured) for measured in self.subgraphs.values()), default=0)

    @property
    def subjects(self) -> tuple[Subject, ...]:
        """The subgraphs, in the order of the network."""
        return tuple(measured.subject for measured in self.subgraphs.values())

    def first(self, samples: int) -> Pool:
        """At most `samples` of each subgraph, the first measured, whatever was measured after them."""
        kept = {w: m.take(np.arange(min(samples, len(m)))) for w, m in self.subgraphs.items()}
        return Pool(msgspec.structs.replace(self.origin, samples=min(samples, self.origin.samples)), kept)

    def best_us(self) -> float:
        """The weighted sum of the fastest times: what a search of this pool can reach at most."""
        return sum(m.subject.weight * float(m.times_us.min()) for m in self.subgraphs.values())


class _Contents(msgspec.Struct, frozen=True):
    format: str
    features: str
    origin: Origin
    subjects: tuple[Subject, ...]
    candidates: tuple[tuple[Candidate, ...], ...]


def save_pool(path: Path, pool: Pool) -> None:
    """Write the pool as an `.npz`: arrays without pickles, and their description as bytes.

    Raises:
        InputError: the file cannot be written.
    """
    contents = _Contents(
        format=_FORMAT,
        features=FEATURES,
        origin=pool.origin,
        subjects=pool.subjects,
        candidates=tuple(measured.candidates for measured in pool.subgraphs.values()),
    )
    arrays = {"contents": np.frombuffer(msgspec.msgpack.encode(contents), dtype=np.uint8)}
    for index, measured in enumerate(pool.subgraphs.values()):
        arrays[f"features_{index}"] = measured.features.astype("<f4")
        arrays[f"times_us_{index}"] = measured.times_us.astype("<f8")
    data = io.BytesIO()
    np.savez_compressed(data, **arrays)  # type: ignore[arg-type]
    write_whole(path, data.getvalue())


def load_pool(path: Path) -> Pool:
    """Returns the pool in a file; rows of the older version without analytic features get zeros in their place.

    Raises:
        InputError: there is no such file, it is damaged, or its features are of another version.
    """
    found = check_readable(path, "the pool")
    try:
        data = io.BytesIO(found.read_bytes())
        with zipfile.ZipFile(data) as archive:
            if damaged := archive.testzip():
                raise zipfile.BadZipFile(f"{damaged} is damaged")
        data.seek(0)
        with np.load(data, allow_pickle=False) as file:
            contents = msgspec.msgpack.decode(file["contents"].tobytes(), type=_Contents)
            arrays = [(file[f"features_{i}"], file[f"times_us_{i}"]) for i in range(len(contents.subjects))]
    except _UNREADABLE as error:
        raise InputError(f"{path}: is no pool, or a damaged one ({error}); remove it, and it is made again") from error
    if contents.format != _FORMAT or contents.features not in (FEATURES, COMPILER_ONLY):
        said = f"{contents.format} with features {contents.features}"
        raise InputError(f"{path}: holds {said}, not {_FORMAT} with {FEATURES}; remove it, and it is made again")
    subgraphs = _checked(path, contents, arrays)
    if contents.features == COMPILER_ONLY:
        subgraphs = {w: replace(measured, features=of_stores(measured.features)) for w, measured in subgraphs.items()}
    return Pool(contents.origin, subgraphs)


def _checked(
    path: Path, contents: _Contents, arrays: Sequence[tuple[np.ndarray, np.ndarray]]
) -> dict[str, SubgraphSamples]:
    if len(contents.candidates) != len(contents.subjects):
        raise InputError(
            f"{path}: has {len(contents.subjects)} subgraphs, but candidates of {len(contents.candidates)}"
        )
    subgraphs: dict[str, SubgraphSamples] = {}
    for subject, candidates, (features, times_us) in zip(contents.subjects, contents.candidates, arrays, strict=True):
        n = len(candidates)
        if features.ndim != 2 or len(features) != n or times_us.shape != (n,) or not (times_us > 0).all():
            raise InputError(
                f"{path}: subgraph {subject.workload}: its arrays do not fit together; make the pool again"
            )
        subgraphs[subject.workload] = SubgraphSamples(
            subject, candidates, features.astype(np.float32), times_us.astype(np.float64)
        )
    return subgraphs
