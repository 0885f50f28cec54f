import numpy as np

from kintune.core.outcome import Outcome, Status
from kintune.search.features.analytic import ANALYTIC
from kintune.search.subgraph import SubgraphState
from kintune.search.training_rows import STORES, WIDTH, count, gather, of_analytic, of_stores
from kintune.testing.synthetic_space import MatMul, SyntheticSpace


def test_without_samples_there_are_no_rows() -> None:
    rows = gather([])
    assert [field.shape for field in rows] == [(0, 0), (0,), (0,), (0,)]


def test_what_the_records_know_is_not_fresh_and_what_never_ran_is_no_sample() -> None:
    space = SyntheticSpace([MatMul("a", 56, 128, 64), MatMul("b", 56, 64, 64), MatMul("c", 8, 8, 8)])
    states = [SubgraphState(subject, "op:dense") for subject in space.subjects()]
    for state in states:
        drafts = [draft for draft in space.verify(space.rules(state.subject.workload, 6)) if draft is not None]
        for number, draft in enumerate(drafts):
            failed = number == 2 or state is states[2]
            outcome = Outcome(Status.RUN_FAILED, cause="no") if failed else Outcome(Status.OK, (5.0 + number,))
            state.observe(draft.candidate, outcome, draft.features, counts=True)
        state.told = {draft.candidate for draft in drafts[:4]}
    rows = gather(states)
    assert len(rows.labels) == count(states) == sum(len(state.features) for state in states[:2])
    assert np.array_equal(rows.features, np.stack([f for state in states[:2] for f in state.features.values()]))
    assert rows.workloads.tolist() == [state.subject.workload for state in states[:2] for _ in state.features]
    assert rows.fresh.tolist() == [c not in state.told for state in states[:2] for c in state.features]
    best = [5.0 / state.times_us[c] for state in states[:2] for c in state.features]
    assert np.allclose(rows.labels, best)
    assert rows.labels.min() == 0.0


def test_a_row_has_the_analytic_features_before_those_of_stores() -> None:
    analytic = np.arange(1, 1 + 3 * ANALYTIC, dtype=np.float32).reshape(3, ANALYTIC)
    stores = np.arange(1, 1 + 3 * STORES, dtype=np.float32).reshape(3, STORES)
    nothing = np.zeros((3, WIDTH), np.float32)
    assert of_analytic(analytic).shape == of_stores(stores).shape == (3, WIDTH)
    assert np.array_equal(of_analytic(analytic) + of_stores(stores), np.concatenate([analytic, stores], axis=1))
    assert np.array_equal(of_analytic(analytic * 0) + of_stores(stores * 0), nothing)
