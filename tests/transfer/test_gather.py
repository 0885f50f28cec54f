"""What somebody else than a job asks the records for: experiments, mainly."""

from __future__ import annotations

import pytest

from kintune.core.knowledge import Knowledge
from kintune.errors import InputError
from kintune.search.cost_model import Trees
from kintune.testing.synthetic_space import MatMul, SyntheticSpace
from kintune.transfer.gather import gather_knowledge
from tests.support.toy_records import CONDITIONS, ToyRecords

ONE, TWO = MatMul("one", 64, 128, 64), MatMul("two", 64, 256, 64)
OTHER = MatMul("other", 64, 64, 64, operator="conv2d")
NEW = MatMul("new", 64, 192, 64)


def gathered(records: ToyRecords, *products: MatMul, families: str = "op", exclude: tuple[str, ...] = ()) -> Knowledge:
    subjects = SyntheticSpace(products).subjects()
    return gather_knowledge(records.store, *CONDITIONS, subjects, families=families, exclude=exclude)


def test_it_is_what_a_job_would_be_told(records: ToyRecords) -> None:
    records.tune(ONE, TWO)
    knowledge = gathered(records, NEW)
    assert {program.subject.workload for program in knowledge.programs} == {"one", "two"}
    assert [model.version.family for model in knowledge.models] == ["op:dense"]


def test_what_is_excluded_leaves_no_trace(records: ToyRecords) -> None:
    """Neither programs nor models that have seen its samples."""
    records.tune(ONE, TWO, OTHER)
    knowledge = gathered(records, ONE, exclude=("one", "other"))
    assert {program.subject.workload for program in knowledge.programs} == {"two"}
    (model,) = knowledge.models
    assert [subject.workload for subject in model.subjects] == ["two"]
    kept = [record.version.blob for record in records.store.models.find(CONDITIONS.device_type)]
    assert model.version.blob not in kept
    assert Trees.from_bytes(model.blob)
    assert gathered(records, ONE, exclude=("one", "two", "other")) == Knowledge()


def test_families_are_those_of_the_algorithm(records: ToyRecords) -> None:
    records.tune(ONE, TWO)
    (model,) = gathered(records, NEW, families="none", exclude=("one",)).models
    assert model.version.family == "none"
    with pytest.raises(InputError, match="unknown family algorithm 'kin'"):
        gathered(records, NEW, families="kin")
