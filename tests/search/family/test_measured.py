from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kintune.search.family import Samples, Subject, families, measured
from kintune.search.family.measured import clusters
from kintune.search.family.relation import LEAST_SAMPLES, Relation, Relations


def _samples(workload: str, taste: int, count: int, *, operator: str = "conv2d", seed: int = 0) -> Samples:
    """A subgraph that likes the feature number `taste` high, and has nothing to do with the others."""
    rng = np.random.default_rng([seed, *workload.encode()])
    features = rng.uniform(0.0, 8.0, (count, 6)).astype(np.float32)
    labels = (0.02 + features[:, taste] / 8.5).astype(np.float32)
    return Samples(Subject(workload, 1, 1e6, operator, operator), features, labels)


def _families(assigned: dict[str, str]) -> set[frozenset[str]]:
    keys = set(assigned.values())
    return {frozenset(w for w, key in assigned.items() if key == of) for of in keys}


def test_without_evidence_families_are_those_by_operator() -> None:
    evidence = [_samples("a", 0, 0), _samples("b", 1, 0), _samples("c", 0, 0, operator="dense")]
    assigned = families("measured").group(evidence, {})
    assert _families(assigned) == {frozenset("ab"), frozenset("c")}
    assert assigned["a"] == "measured:conv2d"


def test_tastes_divide_an_operator_and_join_two() -> None:
    evidence = [
        _samples("a", 0, 64),
        _samples("b", 0, 64),
        _samples("c", 3, 64),
        _samples("d", 3, 64, operator="dense"),
    ]
    assert _families(families("measured").group(evidence, {})) == {frozenset("ab"), frozenset("cd")}


def test_the_map_is_high_among_kin_and_at_chance_among_strangers() -> None:
    relation = Relations(seed=0, threads=1).relate([_samples("a", 0, 96), _samples("b", 0, 96), _samples("c", 3, 96)])
    assert relation.workloads == ("a", "b", "c")
    assert relation.matrix[0, 1] > 0.85
    assert abs(relation.matrix[0, 2] - 0.5) < 0.15
    kinship = relation.kinship()
    assert kinship[0, 1] > 0.8 > 0.4 > kinship[0, 2]
    assert np.array_equal(kinship, kinship.T)


def test_one_with_few_samples_goes_with_its_likes() -> None:
    evidence = [
        _samples("a", 0, 64),
        _samples("c", 3, 64, operator="dense"),
        _samples("few", 3, LEAST_SAMPLES - 1, operator="dense"),
        _samples("new", 0, 0, operator="pool"),
    ]
    assigned = families("measured").group(evidence, {})
    assert assigned["few"] == assigned["c"] != assigned["a"]
    assert assigned["new"] == "measured:pool"


def test_keys_stay_while_families_part() -> None:
    finder = families("measured")
    before = finder.group([_samples(w, 0, 0) for w in "abc"], {})
    evidence = [_samples("a", 0, 64), _samples("b", 0, 64), _samples("c", 3, 64)]
    after = finder.group(evidence, before)
    assert after["a"] == after["b"] == before["a"] != after["c"]
    assert finder.group(evidence, after) == after


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_samples_that_do_not_differ_tell_nothing(label: float) -> None:
    same = _samples("same", 0, 64)
    evidence = [same._replace(labels=np.full(64, label, np.float32)), _samples("a", 0, 64)]
    assigned = families("measured").group(evidence, {})
    assert assigned["same"] == assigned["a"]
    assert Relations(seed=0, threads=1).relate(evidence).workloads == ("a",)


class _Scripted:
    """A map of two that rank each other fairly well, and what a model of both gains or loses."""

    def __init__(self, gain: float) -> None:
        self._gain = gain

    def relate(self, evidence: Sequence[Samples]) -> Relation:
        return Relation(("a", "b"), np.array([[0.8, 0.7], [0.7, 0.8]]))

    def shared(self, workloads: Sequence[str]) -> tuple[float, ...]:
        return (0.8,) if len(workloads) == 1 else (0.8 + self._gain, 0.8 + self._gain)


@pytest.mark.parametrize(
    ("gain", "family", "strangers"), [(0.01, True, True), (-0.01, True, False), (-0.03, False, False)]
)
def test_what_was_a_family_may_lose_a_little_and_strangers_nothing(
    gain: float, family: bool, strangers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "Relations", lambda **_: _Scripted(gain))
    evidence = [_samples("a", 0, 64), _samples("b", 0, 64)]
    finder = measured.MeasuredFamilies(seed=0, threads=1)
    for previous, together in (({"a": "x", "b": "x"}, family), ({"a": "x", "b": "y"}, strangers)):
        assigned = finder.group(evidence, previous)
        assert (assigned["a"] == assigned["b"]) is together
        assert assigned["a"] == "x"
        assert together or assigned["b"] != "x"


def test_of_equally_many_operators_the_key_names_the_same_in_any_order() -> None:
    evidence = [_samples("a", 0, 64, operator="dense"), _samples("b", 0, 64, operator="conv2d")]
    keys = {families("measured").group(order, {})["a"] for order in (evidence, evidence[::-1])}
    assert len(keys) == 1


def test_a_new_key_names_the_operator_of_most_and_is_not_one_that_is_taken() -> None:
    subjects = {
        name: _samples(name, 0, 1, operator=operator).subject
        for name, operator in [("a", "dense"), ("b", "dense"), ("c", "conv2d"), ("d", "conv2d")]
    }
    of = measured._new_key({"a", "b", "c"}, subjects, set())
    assert of == "measured:dense"
    second = measured._new_key({"a", "b", "c"}, subjects, {of})
    third = measured._new_key({"a", "b", "c"}, subjects, {of, second})
    assert second.startswith("measured:dense-")
    assert third.startswith(f"{second}-")
    assert measured._new_key({"b", "a", "d"}, subjects, {of}) == second  # by what they are
    assert measured._new_key({"b", "a", "d"}, subjects, {of, second}) not in (of, second, third)  # by which they are


def test_what_one_feature_decides_is_learnt_from_all_folds() -> None:
    relations = Relations(seed=0, threads=1)
    relations.relate([_samples("a", 0, 96)])
    assert 0.75 < relations.shared(["a"])[0] <= 1.0


def test_one_model_for_strangers_ranks_worse_than_one_each() -> None:
    relations = Relations(seed=0, threads=1)
    relations.relate([_samples("a", 0, 64), _samples("b", 0, 64), _samples("c", 3, 64)])
    alone = [relations.shared([w])[0] for w in "abc"]
    assert np.mean(relations.shared(["a", "b"])) > np.mean(alone[:2])
    assert np.mean(relations.shared(["a", "c"])) < np.mean([alone[0], alone[2]])
    assert relations.shared(["c", "a"]) == relations.shared(["a", "c"])[::-1]


@settings(max_examples=15, deadline=None)
@given(tastes=st.lists(st.integers(0, 2), min_size=1, max_size=5), order=st.randoms(use_true_random=False))
def test_neither_order_nor_what_was_asked_before_matters(tastes: list[int], order: object) -> None:
    evidence = [_samples(f"w{i}", taste, 40) for i, taste in enumerate(tastes)]
    shuffled = list(evidence)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    asked = families("measured")
    asked.group([Samples(s.subject, s.features[:30], s.labels[:30]) for s in evidence], {})
    expected = families("measured").group(evidence, {})
    assert asked.group(shuffled, {}) == expected
    assert set(expected) == {samples.subject.workload for samples in evidence}


@pytest.mark.parametrize("algorithm", ["op", "hash", "ind", "none"])
def test_static_families_do_not_look_at_evidence(algorithm: str) -> None:
    empty, full = [_samples("a", 0, 0), _samples("b", 3, 0)], [_samples("a", 0, 64), _samples("b", 3, 64)]
    finder = families(algorithm)
    assert not finder.dynamic
    assert finder.group(empty, {}) == finder.group(full, {"a": "elsewhere"})


def _blocks(*sizes: int) -> np.ndarray:
    at = np.repeat(np.arange(len(sizes)), sizes)
    return np.where(at[:, None] == at[None, :], 0.9, 0.3)


def test_what_is_near_becomes_one() -> None:
    assert clusters(_blocks(2, 1, 3), 0.6, lambda left, right: True) == [[0, 1], [2], [3, 4, 5]]


def test_what_gains_nothing_stays_apart_however_near() -> None:
    assert clusters(_blocks(3), 0.6, lambda left, right: False) == [[0], [1], [2]]


def test_those_kept_apart_are_asked_about_again_when_one_has_grown() -> None:
    asked: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def merges(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
        asked.append((left, right))
        return (left, right) != ((0,), (1,))

    affinity = np.array([[1.0, 0.9, 0.7], [0.9, 1.0, 0.8], [0.7, 0.8, 1.0]])
    assert clusters(affinity, 0.5, merges) == [[0, 1, 2]]
    assert asked == [((0,), (1,)), ((1,), (2,)), ((0,), (1, 2))]


def test_nothing_makes_no_groups() -> None:
    assert clusters(np.zeros((0, 0)), 0.5, lambda left, right: True) == []


@given(n=st.integers(0, 8), least=st.floats(0.0, 1.0), seed=st.integers(0, 1000))
def test_each_is_in_one_group_and_no_two_groups_are_near(n: int, least: float, seed: int) -> None:
    affinity = np.random.default_rng(seed).uniform(size=(n, n))
    affinity = (affinity + affinity.T) / 2
    groups = clusters(affinity, least, lambda left, right: True)
    assert sorted(i for group in groups for i in group) == list(range(n))
    for at, left in enumerate(groups):
        assert all(affinity[np.ix_(left, right)].mean() < least for right in groups[at + 1 :])


@example(flops=[0.0, 1.0], own=0.0)
@given(flops=st.lists(st.floats(0, 1e12), min_size=2, max_size=4, unique=True), own=st.floats(0, 1e12))
def test_one_with_few_samples_goes_with_the_one_of_its_signature_or_else_of_the_nearest_size(
    flops: list[float], own: float
) -> None:
    def one(workload: str, size: float, signature: str = "conv2d") -> Subject:
        return Subject(workload, 1, size, "conv2d", signature)

    placed = {str(number): number for number in range(len(flops))}
    others = {str(number): one(str(number), size) for number, size in enumerate(flops)}
    nearest = min(range(len(flops)), key=lambda number: abs(math.log((1 + flops[number]) / (1 + own))))
    assert measured._like(one("few", own), placed, others) == nearest
    like = others | {"like": one("like", 1e15, "fused")}
    assert measured._like(one("few", own, "fused"), {**placed, "like": len(flops)}, like) == len(flops)
    assert measured._like(Subject("few", 1, own, "pool", "conv2d"), placed, others) is None
