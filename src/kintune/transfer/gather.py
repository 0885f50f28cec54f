"""Everything the records know that may serve a job, as one value."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from kintune.core.conditions import Conditions
from kintune.core.knowledge import Knowledge
from kintune.records import Store
from kintune.search.family import Subject
from kintune.transfer.offer import Offer, choose, choose_programs, expand

__all__ = ["gather_knowledge"]


def gather_knowledge(
    store: Store,
    device_type: str,
    compiler: str,
    feature_version: str,
    subjects: Sequence[Subject],
    *,
    families: str = "op",
    exclude: Collection[str] = (),
    seed: int = 0,
    threads: int = 1,
) -> Knowledge:
    """Programs of other workloads with the core operators of `subjects`, and models of their families.

    `device_type` is a digest, `families` the algorithm that the job goes by.  Workloads in `exclude` count as never
    measured: their programs are left out, and models are trained here, from the samples of all others, since those in
    the records may have seen them.  Damaged records are left out.

    Raises InputError for an unknown algorithm.
    """
    conditions = Conditions(device_type, compiler, feature_version)
    with store.snapshot():
        if not exclude:
            return expand(store, choose(store, conditions, subjects, families)).knowledge
        programs = choose_programs(store, conditions, subjects, without=exclude)
        told = expand(store, Offer(programs)).knowledge
        from kintune.transfer.pretrain import train_all

        models = train_all(store, conditions, families, without=exclude, seed=seed, threads=threads)
        operators = {subject.operator for subject in subjects}
        useful = tuple(m.known for m in models if operators & {subject.operator for subject in m.known.subjects})
        return msgspec.structs.replace(told, models=useful)
