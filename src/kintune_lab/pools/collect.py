"""Collect a pool by tuning: a search without favourites, so that every subgraph gets the same number of trials.

What a search proposes is what its models must rank, so the candidates are those of a search, from random ones at first
to evolved ones at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import kintune.tuning.front.driver as front
from kintune.core.config import Options, Strategy
from kintune.core.model import ModelRef
from kintune.core.report import ProgressReport, StopReason
from kintune.errors import InputError, KintuneError
from kintune.hardware.cores import choose_cores
from kintune.models.ref import parse_ref
from kintune.records import Store
from kintune.search.family import Subject
from kintune.tuning.estimation import preparing
from kintune.tuning.front.request import TuneRequest
from kintune_lab.experiment.experiment import CellProgress, Show
from kintune_lab.families.samples import conditions_of, read_measured, subject_of
from kintune_lab.pools.pool import Origin, Pool, load_pool, save_pool

__all__ = ["BALANCED", "check_origin", "obtain_pool", "read_pool"]

BALANCED = Strategy(
    families="none", foresee="none", carry=False, rules=False, survey=(), budget="balanced", round_size=32
)
"""The search that collects: the subgraph with the fewest trials is always next, and nothing is known beforehand."""


def obtain_pool(
    model: str, path: Path, samples: int, *, seed: int, threads: int | None, show: Show, content: str = ""
) -> Pool:
    """The pool of `model` at `path` with `samples` of each subgraph; collected unless it is there already.

    The records of its collection lie beside it; an interrupted one goes on from them.  A subgraph with fewer programs
    than `samples` has them all.  `content` digests the model, if it is a file.

    Raises:
        InputError: the model or the file cannot be used, or the file's pool is of another model, seed or number of
            threads.
        KintuneError: a subgraph has no measured candidate.
    """
    if path.exists():
        pool = load_pool(path)
        check_origin(path, pool.origin, model, seed, threads, content)
        if pool.origin.samples >= samples:
            return pool
    ref = parse_ref(model)
    show(CellProgress("importing the model"))
    with preparing(
        threads=threads, on_wait=lambda who: show(CellProgress(f"waiting for the cores, held by {who}"))
    ) as prepare:
        subgraphs = [subgraph for subgraph in prepare(ref).subgraphs if subgraph.tunable]
    subjects = [subject_of(subgraph) for subgraph in subgraphs]
    records, cores = path.with_suffix(".sqlite"), len(choose_cores(threads or 0))
    if missing := _missing(records, subjects, samples):
        _tune(ref, records, missing, seed=seed, threads=threads, show=show)
    with Store.open(records, create=False) as store:
        pool = read_pool(store, subjects, model=model, seed=seed, samples=samples, threads=cores, content=content)
    if len(pool.subgraphs) < len(subjects):
        bare = [subgraph.name for subgraph in subgraphs if subgraph.workload not in pool.subgraphs]
        raise KintuneError(f"{model}: no candidate of {', '.join(bare)} was measured; see {records}")
    save_pool(path, pool)
    return pool


def check_origin(path: Path, origin: Origin, model: str, seed: int, threads: int | None, content: str = "") -> None:
    """Check that the pool at `path` is the one that would be collected; `threads` None accepts any number.

    Raises:
        InputError: it is of another model, seed or number of threads.
    """
    if origin.model != model:
        raise InputError(f"{path}: is a pool of {origin.model}, not of {model}; name another file")
    if origin.content and content and origin.content != content:
        raise InputError(f"{path}: is a pool of {model} before it changed; name another file")
    if origin.seed != seed:
        raise InputError(
            f"{path}: is a pool of seed {origin.seed}, not of {seed}; a file holds one, so name another, or leave "
            "pool away, and every cell collects its own"
        )
    if threads is not None and origin.threads not in (0, threads):
        raise InputError(f"{path}: its programs ran with {origin.threads} threads, not {threads}; name another file")


def read_pool(
    store: Store,
    subjects: Sequence[Subject],
    *,
    model: str,
    seed: int,
    samples: int,
    threads: int = 0,
    content: str = "",
) -> Pool:
    """The pool of these subgraphs that `store` holds.

    Raises:
        KintuneError: nothing was measured of them.
    """
    conditions = conditions_of(store, [subject.workload for subject in subjects])
    if conditions is None:
        raise KintuneError(f"{model}: nothing was measured of its subgraphs in {store.where}")
    device = store.devices.get(conditions.device_type).model
    origin = Origin(model, seed, samples, conditions.device_type, device, conditions.compiler, threads, content)
    return Pool(origin, read_measured(store, subjects, conditions))


def _missing(records: Path, subjects: Sequence[Subject], samples: int) -> int:
    """Returns the number of trials to ask for; for an interrupted collection as at first, since that is resumed."""
    everything = samples * len(subjects)
    if not records.exists():
        return everything
    with Store.open(records) as store:
        if any(not run.state.final for run in store.runs.list()):
            return everything
        conditions = conditions_of(store, [subject.workload for subject in subjects])
        known = read_measured(store, subjects, conditions) if conditions else {}
    return sum(max(0, samples - len(known.get(subject.workload, ()))) for subject in subjects)


def _tune(ref: ModelRef, records: Path, trials: int, *, seed: int, threads: int | None, show: Show) -> None:
    output = records.with_suffix(".kt")
    request = TuneRequest(
        model=ref,
        threads=threads,
        options=Options(trials=trials, strategy=BALANCED, seed=seed, compare=()),
        records=str(records),
        output=str(output),
        log=str(records.with_suffix(".log")),
    )
    try:
        report = front.tune(request, _teller(trials, show))
    finally:
        output.unlink(missing_ok=True)
    if report.reason is StopReason.INTERRUPTED:
        raise KeyboardInterrupt


def _teller(trials: int, show: Show) -> Callable[[ProgressReport], None]:
    def tell(report: ProgressReport) -> None:
        phase = f"collecting: {report.trials} of {trials} trials" if report.trials else f"collecting: {report.stage}"
        show(CellProgress(phase, done=min(1.0, report.trials / trials), seconds_left=report.time_left_s))

    return tell
