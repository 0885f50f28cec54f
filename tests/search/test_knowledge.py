"""Knowledge of earlier jobs helps a search, and does no harm if it is wrong."""

from __future__ import annotations

import statistics

import msgspec
import numpy as np
import pytest

from kintune.core.candidate import Candidate
from kintune.core.config import Strategy
from kintune.core.knowledge import Knowledge, KnownModel, KnownProgram, ModelVersion
from kintune.search.cost_model import Trees
from kintune.search.session import SearchSession
from kintune.testing.synthetic_space import MatMul, SyntheticSpace
from tests.support.search_run import Began, SearchRun, fold, new_session

_BARE = Strategy(round_size=16, foresee_size=4, rules=False)  # nothing but what is learnt
_TEACHERS = (MatMul("big", 112, 512, 64), MatMul("long", 28, 256, 512), MatMul("flat", 56, 1024, 128))


@pytest.fixture(scope="module")
def lessons() -> tuple[SyntheticSpace, SearchSession]:
    """A long search on other workloads of the same family."""
    space = SyntheticSpace(_TEACHERS)
    return space, SearchRun(space, new_session(space, seed=1)).play(400).session


def _knowledge(lessons: tuple[SyntheticSpace, SearchSession], *, wrong: bool = False) -> Knowledge:
    space, session = lessons
    programs: list[KnownProgram] = []
    for state in session.states.values():
        ran = state.fastest(10_000)
        sketches = {sketch.digest: sketch for sketch in space.sketches(state.subject.workload)}
        chosen = [c for c in (ran[::-1] if wrong else ran) if c.sketch in sketches][:3]
        programs += [KnownProgram(state.subject, sketches[c.sketch], c, 1.0 - 0.01 * i) for i, c in enumerate(chosen)]
    models: list[KnownModel] = []
    for family in {state.family for state in session.states.values()}:
        features, labels = session.samples(family)
        blob = Trees.train(features, 1 - labels if wrong else labels, seed=0, threads=1).to_bytes()
        subjects = tuple(s.subject for s in session.states.values() if s.family == family)
        models.append(KnownModel(ModelVersion("blob", family, "device", "features", len(labels)), blob, subjects))
    return Knowledge(tuple(programs), tuple(models))


def _latency(space: SyntheticSpace, trials: int, seed: int, knowledge: Knowledge | None) -> float:
    session = new_session(space, seed=seed, strategy=_BARE)
    if knowledge is not None:
        session.teach(knowledge)
    return SearchRun(space, session).play(trials).session.latency_us()


def _medians(space: SyntheticSpace, trials: int, knowledge: Knowledge | None) -> float:
    return statistics.median(_latency(space, trials, seed, knowledge) for seed in range(5))


@pytest.mark.slow  # single decisions of it are below
def test_a_taught_search_starts_where_another_one_ends(
    space: SyntheticSpace, lessons: tuple[SyntheticSpace, SearchSession]
) -> None:
    knowledge = _knowledge(lessons)
    kin = SyntheticSpace([space.products["wide"], space.products["deep"]])
    assert _medians(kin, 24, knowledge) < 0.8 * _medians(kin, 24, None)
    assert _medians(space, 200, knowledge) < 1.1 * _medians(space, 200, None)


@pytest.mark.slow  # single decisions of it are below
def test_what_is_wrong_does_no_harm_that_lasts(
    space: SyntheticSpace, lessons: tuple[SyntheticSpace, SearchSession]
) -> None:
    assert _medians(space, 200, _knowledge(lessons, wrong=True)) < 1.15 * _medians(space, 200, None)


def test_programs_of_the_job_itself_and_slow_ones_are_left_alone(
    space: SyntheticSpace, lessons: tuple[SyntheticSpace, SearchSession]
) -> None:
    (subject,) = [s for s in space.subjects() if s.workload == "wide"]
    sketch = space.sketches("wide")[0]
    own = KnownProgram(subject, sketch, Candidate("wide", sketch.digest, space.rules("wide", 1)[0].decisions), 1.0)
    slow = msgspec.structs.replace(_knowledge(lessons).programs[0], speed=0.3)
    session = new_session(SyntheticSpace([space.products["wide"]]), strategy=_BARE)
    session.teach(Knowledge((own, slow)))
    plan = session.plan()
    assert plan is not None
    assert [entry.size for entry in plan.entries] == [1]


def test_a_taught_search_folds_again_to_the_same_decisions(
    space: SyntheticSpace, lessons: tuple[SyntheticSpace, SearchSession]
) -> None:
    strategy = Strategy(round_size=16, foresee_size=4, families="measured", width=2)
    knowledge = _knowledge(lessons)

    def taught() -> SearchSession:
        session = new_session(space, seed=3, strategy=strategy)
        session.teach(knowledge)
        return session

    run = SearchRun(space, taught()).play(150)
    began = [i for i, event in enumerate(run.events) if isinstance(event, Began)]
    for i in began[1:]:
        again = fold(taught(), run.events[:i])
        event = run.events[i]
        assert isinstance(event, Began)
        plan = again.plan(
            150 - sum(len(e.picks) for e in run.events[:i] if isinstance(e, Began)) + len(space.subjects())
        )
        assert plan is not None
        assert plan.entries[0].workload == event.plan.entries[0].workload
        chosen, _ = again.select(event.plan)
        assert {p.draft.candidate: p.predicted for p in chosen} == dict(event.predicted)


def test_a_prior_scores_before_there_is_anything_to_learn_from(
    space: SyntheticSpace, lessons: tuple[SyntheticSpace, SearchSession]
) -> None:
    session = new_session(space)
    session.teach(_knowledge(lessons))
    plan = session.plan()
    assert plan is not None
    chosen, _ = session.select(plan)
    scored = {p.draft.candidate.workload for p in chosen if p.predicted is not None}
    assert scored == {"wide", "deep", "prime"}  # the fourth is of another family
    assert all(np.isfinite(p.predicted) for p in chosen if p.predicted is not None)
