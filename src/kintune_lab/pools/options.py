"""Options and progress of experiments on a pool."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from kintune.errors import InputError
from kintune_lab.experiment.experiment import Cell, CellProgress, ModelFacts, Show
from kintune_lab.experiment.option import Option, OptionError, OptionKind, OptionsByName, threads_option
from kintune_lab.experiment.tables import Row
from kintune_lab.pools.collect import check_origin, obtain_pool
from kintune_lab.pools.pool import Pool, load_pool

__all__ = ["POOL_OPTIONS", "Pace", "check_pool", "describe", "obtain", "seconds_to_collect"]


_SECONDS_A_TRIAL = 0.3  # a guess


POOL_OPTIONS: OptionsByName = {
    "model": Option(OptionKind.MODEL, required=True, help="the network"),
    "samples": Option(OptionKind.INTEGER, 256, "programs measured of each subgraph", low=16, high=100_000),
    "pool": Option(
        OptionKind.TEXT, None, "the .npz that holds them; collected when missing, in the cell's own directory"
    ),
    "seed": Option(OptionKind.INTEGER, 0, "seed of the search that collects", low=0),
    "threads": threads_option("programs"),
}


def check_pool(cell: Cell) -> None:
    """Check that the cell's pool can be read or made.

    Raises:
        OptionError: its path cannot be used, or another pool is there.
    """
    name = cell.values["pool"]
    if name is None:
        return
    path = Path(str(name))
    if path.suffix != ".npz":
        raise OptionError("pool", 'must end in ".npz"')
    if not path.exists() and not path.parent.is_dir():
        raise OptionError("pool", f"there is no directory {path.parent}; create it first")
    if path.exists():
        try:
            origin = load_pool(path).origin
            check_origin(path, origin, str(cell.values["model"]), *_seed_and_threads(cell), _content(cell))
        except InputError as error:
            raise OptionError("pool", f"cannot be used: {error}") from error


def _seed_and_threads(cell: Cell) -> tuple[int, int | None]:
    threads = cell.values["threads"]
    return int(cell.values["seed"] or 0), None if threads is None else int(threads)


def _content(cell: Cell) -> str:
    """The digest of the model; empty if it is no file."""
    return cell.contents.get(str(cell.values["model"]), "")


def obtain(cell: Cell, directory: Path, show: Show) -> Pool:
    """The cell's pool, collected unless it is there; one of its own lies in the cell's `directory`.

    Of a file with more samples than the cell asks for, it has the first ones.

    Raises:
        InputError: see `obtain_pool`.
        KintuneError: see `obtain_pool`.
    """
    name = cell.values["pool"]
    seed, threads = _seed_and_threads(cell)
    samples = int(cell.values["samples"] or 0)
    pool = obtain_pool(
        str(cell.values["model"]),
        directory / "pool.npz" if name is None else Path(str(name)),
        samples,
        seed=seed,
        threads=threads,
        show=show,
        content=_content(cell),
    )
    return pool.first(samples)


def describe(pool: Pool) -> list[Row]:
    """What is in a pool: a row for each subgraph."""
    return [
        {
            "workload": measured.subject.workload,
            "operator": measured.subject.operator,
            "signature": measured.subject.signature,
            "flops": measured.subject.flops,
            "weight": measured.subject.weight,
            "measured": len(measured),
            "failed": int(np.isinf(measured.times_us).sum()),
            "best_us": float(measured.times_us.min()),
            "median_us": float(np.median(measured.times_us)),
            "device": pool.origin.device,
            "compiler": pool.origin.compiler,
        }
        for measured in pool.subgraphs.values()
    ]


def seconds_to_collect(cell: Cell, models: Mapping[str, ModelFacts]) -> float:
    """About how long collecting takes: nothing when the pool is there."""
    if cell.values["pool"] is not None and Path(str(cell.values["pool"])).exists():
        return 0.0
    facts = models.get(str(cell.values["model"]))
    return int(cell.values["samples"] or 0) * (facts.tunable if facts else 0) * _SECONDS_A_TRIAL


class Pace:
    """Shows which of `total` steps, each called `what`, is being taken; from the second one on, the seconds left."""

    def __init__(self, what: str, total: int, show: Show, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._total, self._show, self._clock = what, total, show, clock
        self._began_s = clock()

    def begin(self, number: int) -> None:
        """Step `number`, counted from 0, begins; all before it are done."""
        elapsed_s = self._clock() - self._began_s
        left_s = elapsed_s / number * (self._total - number) if number else None
        self._show(CellProgress(f"{self._what} {number + 1} of {self._total}", number / self._total, left_s))
