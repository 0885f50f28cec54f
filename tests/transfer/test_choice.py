"""What is offered to a job, out of records that earlier jobs have filled."""

from __future__ import annotations

import math
from collections import Counter

from sqlalchemy import text

from kintune.core.candidate import UNTUNED, Candidate, Choice, Sketch, digest_of
from kintune.core.knowledge import ModelVersion, TrainedModel, TrainingConditions
from kintune.core.outcome import Outcome, Status
from kintune.records import Measurement
from kintune.search.cost_model import Trees
from kintune.search.family import Subject
from kintune.testing.synthetic_space import MatMul
from kintune.transfer.choice import TransferChoice, choose, expand
from tests.support.toy_records import CONDITIONS, ToyRecords

NEAR, FAR = MatMul("near", 64, 128, 64), MatMul("far", 64, 4096, 64)
NEW = MatMul("new", 64, 192, 64)
OTHER = MatMul("other", 64, 64, 64, operator="conv2d")


def offered(
    records: ToyRecords, *products: MatMul, algorithm: str = "op", without: tuple[str, ...] = ()
) -> TransferChoice:
    return choose(records.store, CONDITIONS, [p.subject for p in products], algorithm, without=without)


def test_the_best_programs_of_the_nearest_workloads_come_first(records: ToyRecords) -> None:
    records.tune(NEAR, FAR, OTHER)
    programs = expand(records.store, offered(records, NEW)).knowledge.programs
    assert [p.subject.workload for p in programs] == ["near"] * 3 + ["far"] * 3
    for workload in ("near", "far"):
        of_one = [p for p in programs if p.subject.workload == workload]
        best = records.store.measurements.fastest(workload, CONDITIONS.device_type, CONDITIONS.compiler, 3)
        assert [p.candidate for p in of_one] == [m.candidate for m in best]
        assert [p.speed for p in of_one] == [best[0].believed_us / m.believed_us for m in best]
        assert of_one[0].speed == 1.0
    assert all(p.sketch.digest == p.candidate.sketch != UNTUNED for p in programs)


def test_own_workloads_and_those_left_out_are_not_offered(records: ToyRecords) -> None:
    """What is known of the job's own workloads are facts, which it is told otherwise."""
    records.tune(NEAR, FAR)
    assert {p.subject.workload for p in expand(records.store, offered(records, NEAR)).knowledge.programs} == {"far"}
    assert offered(records, NEW, without=("near", "far")).programs == ()


def test_other_conditions_offer_nothing(records: ToyRecords) -> None:
    records.tune(NEAR)
    for conditions in (CONDITIONS._replace(device_type="0" * 32), CONDITIONS._replace(compiler="tvm 1")):
        assert choose(records.store, conditions, [NEW.subject], "op").programs == ()
    elsewhere = TrainingConditions("0" * 32, CONDITIONS.compiler, CONDITIONS.feature_version)
    assert choose(records.store, elsewhere, [NEW.subject], "op").models == ()
    assert choose(records.store, CONDITIONS._replace(feature_version="2"), [NEW.subject], "op").models == ()


def test_the_model_with_the_most_samples_is_offered(records: ToyRecords) -> None:
    records.tune(NEAR, FAR)
    (version,) = offered(records, NEW).models
    trained = [r.version for r in records.store.models.find(CONDITIONS.device_type, "op:dense")]
    assert len(trained) > 1
    assert version.rows == max(v.rows for v in trained)
    (model,) = expand(records.store, offered(records, NEW)).knowledge.models
    assert {s.workload for s in model.subjects} == {"near", "far"}
    assert Trees.from_bytes(model.blob)
    assert version.family == "op:dense"
    assert offered(records, OTHER).models == ()
    assert offered(records, NEW, algorithm="hash").models == ()


def test_the_number_of_workloads_is_bounded(records: ToyRecords) -> None:
    """Each subgraph looks at the nearest few."""
    records.tune(*(MatMul(f"p{i}", 16, 16 * (i + 1), 16) for i in range(12)))
    counts = Counter(
        p.subject.workload for p in expand(records.store, offered(records, MatMul("new", 16, 16, 8))).knowledge.programs
    )
    assert set(counts) == {f"p{i}" for i in range(8)}
    assert max(counts.values()) <= 3


def test_what_is_gone_or_damaged_is_left_out_and_counted(records: ToyRecords) -> None:
    records.tune(NEAR, FAR)
    offer = offered(records, NEW)
    whole = expand(records.store, offer)
    assert whole.lost == 0
    with records.store.transaction() as connection:
        connection.execute(text("UPDATE measurements SET cause = 'x' WHERE id = :id"), {"id": offer.programs[0][0]})
    missing = ModelVersion("0" * 32, "op:dense", CONDITIONS.device_type, CONDITIONS.feature_version, 9)
    told = expand(records.store, TransferChoice((*offer.programs, (10**9, 1.0)), (missing, *offer.models)))
    assert told.lost == 3
    assert told.knowledge.programs == whole.knowledge.programs[1:]
    assert told.knowledge.models == whole.knowledge.models


def test_a_network_whose_operators_nobody_knows_is_offered_nothing(records: ToyRecords) -> None:
    records.tune(NEAR)
    assert offered(records, OTHER) == TransferChoice()
    assert expand(records.store, TransferChoice()).lost == 0


def test_models_of_earlier_versions_are_bare_trees() -> None:
    subject = Subject("w", 1, math.pi, "dense", "dense+relu")
    kept = TrainedModel(b"{trees}", (subject,))
    assert TrainedModel.from_bytes(kept.to_bytes()) == kept
    assert TrainedModel.from_bytes(b"{L\x00\x00") == TrainedModel(b"{L\x00\x00")


def test_earlier_programs_make_room_for_those_that_can_be_built(records: ToyRecords) -> None:
    """The fastest measurements are of a program whose decisions are places in a list."""
    records.tune(NEAR)
    trace = b'{"insts":[],"sampled":[],"program":"tiled.1:8x16"}'
    earlier = Sketch("near", digest_of(b"near", trace), trace, (Choice(tuple(range(9)), (1 / 9,) * 9),))
    records.store.workloads.add_sketch(earlier)
    wanted = expand(records.store, offered(records, NEW)).knowledge.programs
    for place in range(9):
        candidate, outcome = Candidate("near", earlier.digest, ((place,),)), Outcome(Status.OK, (1e-3,))
        records.store.measurements.add(
            Measurement(
                device_type=CONDITIONS.device_type, compiler=CONDITIONS.compiler, candidate=candidate, outcome=outcome
            )
        )
    found = expand(records.store, offered(records, NEW)).knowledge.programs
    assert [p.candidate for p in found] == [p.candidate for p in wanted]
