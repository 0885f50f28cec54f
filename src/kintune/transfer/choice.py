"""Chooses what the records offer to a job: programs of workloads with the same core operators, and family models.

A `TransferChoice` is stored in the job's history and only names records, so that a resumed job gets the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from kintune.core.candidate import Sketch
from kintune.core.device import Peak
from kintune.core.knowledge import Knowledge, KnownModel, KnownProgram, ModelVersion, TrainedModel, TrainingConditions
from kintune.core.stage_results import Taught
from kintune.errors import RecordsError, StorageError
from kintune.records import Measurement, Store, WorkloadRecord
from kintune.search.family import Samples, Subject, families
from kintune.search.sketch_program import has_places

__all__ = ["TransferChoice", "choose", "choose_programs", "expand", "subject_of"]

_PROGRAMS = 3  # of each workload
_LOOKED_AT = 64  # measurements of each workload, the fastest
_NEAREST = 8  # workloads looked at for each subgraph of the job
_WORKLOADS = 48  # in all


class TransferChoice(msgspec.Struct, frozen=True):
    """Programs as (id of the measurement, speed relative to the fastest known of its workload), and model versions.

    `peak` is the peak of the device, None if it was not measured.
    """

    programs: tuple[tuple[int, float], ...] = ()
    models: tuple[ModelVersion, ...] = ()
    peak: Peak | None = None


def subject_of(workload: WorkloadRecord) -> Subject:
    """Returns a workload as a search knows it."""
    return Subject(workload.digest, 1, workload.flops, workload.operator, workload.signature)


def choose(
    store: Store,
    conditions: TrainingConditions,
    subjects: Sequence[Subject],
    algorithm: str,
    *,
    without: Collection[str] = (),
    hidden: Collection[str] = (),
) -> TransferChoice:
    """Chooses programs and models for a job on these subgraphs, whose families are those of `algorithm`.

    Programs of the workloads `without`, measurements of the runs `hidden` and damaged records are left out.

    Raises:
        InputError: there is no such algorithm.
    """
    programs = choose_programs(store, conditions, subjects, without=without, hidden=hidden)
    return TransferChoice(programs, _choose_models(store, conditions, subjects, algorithm))


def choose_programs(
    store: Store,
    conditions: TrainingConditions,
    subjects: Sequence[Subject],
    *,
    without: Collection[str] = (),
    hidden: Collection[str] = (),
) -> tuple[tuple[int, float], ...]:
    """Chooses the best few programs of the workloads nearest to the job's subgraphs.

    The job's own workloads, those in `without`, measurements of the runs `hidden` and earlier programs whose decisions
    are places in lists are left out.  Each program is the id of its measurement, and its speed relative to the fastest
    known program of its workload.
    """
    own = {subject.workload for subject in subjects} | set(without)
    foreign = _measured(store, conditions) - own
    others = [subject_of(w) for w in store.workloads.list(on_damage=_leave_out) if w.digest in foreign]
    chosen: list[tuple[int, float]] = []
    for workload in _nearest(subjects, others):
        found = store.measurements.fastest(
            workload, conditions.device_type, conditions.compiler, _LOOKED_AT, hidden=hidden, on_damage=_leave_out
        )
        described = _described(store, workload)
        usable = {digest for digest, sketch in described[1].items() if not has_places(sketch)} if described else ()
        tuned = [m for m in found if m.candidate.sketch in usable][:_PROGRAMS]
        chosen += [(m.id, found[0].believed_us / m.believed_us) for m in tuned]
    return tuple(chosen)


def expand(store: Store, offer: TransferChoice) -> Taught:
    """Loads the choice from the records; programs and models that are damaged or gone are left out and counted."""
    found = {m.id: m for m in store.measurements.named([number for number, _ in offer.programs], on_damage=_leave_out)}
    described = {w: _described(store, w) for w in dict.fromkeys(m.candidate.workload for m in found.values())}
    programs = [_program(found[number], speed, described) for number, speed in offer.programs if number in found]
    models = [_model(store, version) for version in offer.models]
    knowledge = Knowledge(
        tuple(program for program in programs if program is not None),
        tuple(model for model in models if model is not None),
    )
    lost = len(offer.programs) + len(offer.models) - len(knowledge.programs) - len(knowledge.models)
    return Taught(knowledge, lost, offer.peak)


def _measured(store: Store, conditions: TrainingConditions) -> set[str]:
    """Returns the workloads of which a program ran under these conditions."""
    return {
        tally.workload
        for tally in store.measurements.tallies()
        if (tally.device_type, tally.compiler) == (conditions.device_type, conditions.compiler) and tally.ok
    }


def _nearest(subjects: Sequence[Subject], others: Sequence[Subject]) -> list[str]:
    """Returns those of the others with the operator of a subgraph, the nearest to any of them first."""
    ranked: dict[str, tuple[int, bool, float]] = {}
    for subject in subjects:
        nearest = sorted(
            (*_distance(subject, other), other.workload) for other in others if other.operator == subject.operator
        )
        for place, (foreign, factor, workload) in enumerate(nearest[:_NEAREST]):
            ranked[workload] = min(ranked.get(workload, (place, foreign, factor)), (place, foreign, factor))
    return sorted(ranked, key=lambda workload: (ranked[workload], workload))[:_WORKLOADS]


def _distance(left: Subject, right: Subject) -> tuple[bool, float]:
    """Returns whether the signatures differ, and the distance of the sizes."""
    return left.signature != right.signature, abs(math.log(max(1.0, left.flops) / max(1.0, right.flops)))


def _choose_models(
    store: Store, conditions: TrainingConditions, subjects: Sequence[Subject], algorithm: str
) -> tuple[ModelVersion, ...]:
    """Chooses one version a family: that with the most samples, of equal ones the latest.

    If the families are found from measurements, all models of this algorithm are chosen, and those by operator.
    """
    grouping = families(algorithm)
    nothing = [Samples(s, np.zeros((0, 0), np.float32), np.zeros(0, np.float32)) for s in subjects]
    keys = set(grouping.group(nothing, {}).values())
    if grouping.dynamic:
        keys |= set(families("op").group(nothing, {}).values())
    best: dict[str, ModelVersion] = {}
    for record in store.models.find(conditions.device_type, on_damage=_leave_out):
        version = record.version
        named = version.family in keys or (grouping.dynamic and version.family.startswith(f"{algorithm}:"))
        if named and version.features == conditions.feature_version:
            known = best.get(version.family)
            if known is None or version.rows > known.rows:
                best[version.family] = version
    own_kind_first = sorted(best, key=lambda family: (not family.startswith(f"{algorithm}:"), family))
    return tuple(best[family] for family in own_kind_first)


def _described(store: Store, workload: str) -> tuple[Subject, dict[str, Sketch]] | None:
    """Returns a workload with its sketches by digest; None when any of that cannot be read."""
    try:
        sketches = store.workloads.sketches([workload])
        return subject_of(store.workloads.get(workload)), {sketch.digest: sketch for sketch in sketches}
    except (RecordsError, StorageError):
        return None


def _program(
    measurement: Measurement, speed: float, described: Mapping[str, tuple[Subject, Mapping[str, Sketch]] | None]
) -> KnownProgram | None:
    candidate = measurement.candidate
    known = described[candidate.workload]
    if known is None or candidate.sketch not in known[1]:
        return None
    return KnownProgram(known[0], known[1][candidate.sketch], candidate, speed)


def _model(store: Store, version: ModelVersion) -> KnownModel | None:
    try:
        kept = TrainedModel.from_bytes(store.blobs.get(version.blob))
    except (RecordsError, StorageError):
        return None
    return KnownModel(version, kept.trees, kept.subjects)


def _leave_out(damage: object) -> None:
    """Skips a damaged record."""
    del damage
