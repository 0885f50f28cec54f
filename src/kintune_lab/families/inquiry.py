"""Finds the families of a model's subgraphs, from the model itself and its measured samples."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kintune.core.model import ModelRef
from kintune.core.stage_results import Prepared
from kintune.errors import InputError
from kintune.records import Store
from kintune.tuning.estimation import preparing
from kintune_lab.families.document import FamiliesDocument, RelationMap, families_of
from kintune_lab.families.samples import (
    LEAST_SAMPLES,
    SubgraphSamples,
    conditions_of,
    group,
    is_dynamic,
    read_measured,
    relate,
    subject_of,
)

__all__ = ["inquire"]


def inquire(
    ref: ModelRef,
    algorithm: str,
    *,
    target: str = "native",
    threads: int | None = None,
    records: str | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> FamiliesDocument:
    """The families of the model's subgraphs; their relationship map too where records have samples enough.

    No records are created.

    Raises:
        InputError: model, target or records cannot be used, or the algorithm needs samples and there are none.
    """
    with preparing(target=target, threads=threads, on_wait=on_wait) as prepare:
        prepared = prepare(ref)
    measured, device = _measured(prepared, records)
    if is_dynamic(algorithm) and not any(len(samples) >= LEAST_SAMPLES for samples in measured.values()):
        raise InputError(
            f"{prepared.model_name}: families {algorithm!r} are found from samples, and the records have too few yet; "
            "'kintune tune' brings them"
        )
    keys = group(algorithm, measured, [subject_of(subgraph) for subgraph in prepared.subgraphs if subgraph.tunable])
    counts = {workload: len(samples) for workload, samples in measured.items()}
    families = families_of(prepared, algorithm, keys, counts)
    if not measured:
        return families
    return msgspec.structs.replace(families, measured_on=device, relation=_map(families, measured))


def _measured(prepared: Prepared, records: str | None) -> tuple[dict[str, SubgraphSamples], str | None]:
    """What the records know of the model's subgraphs, and the name of the device."""
    subjects = [subject_of(subgraph) for subgraph in prepared.subgraphs if subgraph.tunable]
    where = records or Store.default_location()
    if not Store.are_at(where):
        return {}, None
    with Store.open(where, create=False) as store:
        conditions = conditions_of(store, [subject.workload for subject in subjects])
        if conditions is None:
            return {}, None
        return read_measured(store, subjects, conditions), store.devices.get(conditions.device_type).model


def _map(families: FamiliesDocument, measured: dict[str, SubgraphSamples]) -> RelationMap | None:
    """The relations among the members that have samples enough; None when fewer than two have."""
    members = [member for member in families.members if member.samples >= LEAST_SAMPLES]
    if len(members) < 2:
        return None
    matrix = relate([measured[member.workload] for member in members])
    return RelationMap(
        numbers=tuple(member.number for member in members),
        accuracy=tuple(tuple(None if value != value else float(value) for value in row) for row in matrix),
    )
