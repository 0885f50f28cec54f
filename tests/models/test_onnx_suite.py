"""ONNX's own backend suite: each case is right, or refused by name before anything is built.

The fast tests take every sixteenth case, those that are the first with an operator, and all that are refused.  The slow
ones take all.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.extreme_runs import KNOWN_DIFFERENCES
from tests.support.models_page import LIST, PAGE, contradictions, read_list, refused_list, table_of, written_table
from tests.support.onnx_suite import (
    REFUSED,
    RIGHT,
    SHARED,
    Suite,
    Verdict,
    representatives,
    run_suite,
    written_suite,
)

pytestmark = [pytest.mark.tvm, pytest.mark.timeout(1200)]

UPDATE = "python -m tests.support.models_page writes it anew"

Verdicts = dict[str, Verdict]


@pytest.fixture(scope="module")
def suite() -> Iterator[Suite]:
    with written_suite() as suite:
        yield suite


@pytest.fixture(scope="module")
def some(suite: Suite) -> Verdicts:
    """Verdicts on some cases, which run on extreme inputs, too."""
    return run_suite(suite, extremes=True, names={*representatives(suite.operators, 96), *read_list(LIST.read_text())})


@pytest.fixture(scope="module")
def verdicts(suite: Suite) -> Verdicts:
    """Verdicts on all, which run on extreme inputs, too."""
    return run_suite(suite, extremes=True)


def faults(verdicts: Verdicts) -> dict[str, str]:
    return {
        name: f"{verdict.kind}: {verdict.reason}"
        for name, verdict in verdicts.items()
        if verdict.kind not in (RIGHT, REFUSED)
    }


def check_list(verdicts: Verdicts) -> None:
    """The list of refused cases is what was found."""
    listed = read_list(LIST.read_text())
    refused = read_list(refused_list(verdicts))
    assert {name: why for name, why in refused.items() if name not in listed} == {}, "refused, and not listed"
    assert sorted(listed.keys() - refused.keys()) == [], f"listed, and no longer refused: {UPDATE}"
    assert listed == refused, f"the reasons changed: {UPDATE}"


def test_known_differences_are_of_cases_that_exist(suite: Suite) -> None:
    assert set(KNOWN_DIFFERENCES) <= suite.operators.keys()


def unlike(found: Verdicts, wanted: str) -> Verdicts:
    return {name: verdict for name, verdict in found.items() if verdict.kind != wanted}


def test_none_of_some_cases_is_wrong_or_fails_after_it_was_taken(some: Verdicts) -> None:
    assert faults(some) == {}


def test_of_some_cases_the_listed_ones_are_refused(some: Verdicts) -> None:
    check_list(some)


def test_each_operator_of_the_page_is_among_some_cases(some: Verdicts) -> None:
    """And what became of them there does not contradict the page."""
    assert contradictions(PAGE.read_text(), some) == [], UPDATE


def test_some_refused_cases_are_right_with_nodes_in_onnxruntime(suite: Suite) -> None:
    names = list(read_list(LIST.read_text()))[::3]
    assert unlike(run_suite(suite, shared=True, names=names), SHARED) == {}


def test_programs_of_the_rule_compute_the_same_in_some_cases(suite: Suite) -> None:
    assert faults(run_suite(suite, rules=True, names=list(suite.operators)[::96])) == {}


@pytest.mark.slow
def test_no_case_is_wrong_or_fails_after_it_was_taken(verdicts: Verdicts) -> None:
    assert faults(verdicts) == {}


@pytest.mark.slow
def test_the_list_of_refused_cases_only_gets_shorter(verdicts: Verdicts) -> None:
    check_list(verdicts)


@pytest.mark.slow
def test_most_cases_are_right(verdicts: Verdicts) -> None:
    assert len(verdicts) > 1050
    assert sum(verdict.kind == RIGHT for verdict in verdicts.values()) >= 1000


@pytest.mark.slow
def test_the_page_is_current(verdicts: Verdicts) -> None:
    assert written_table(PAGE.read_text()) == table_of(verdicts), UPDATE


@pytest.mark.slow
def test_programs_of_the_rule_compute_the_same_in_all_cases(suite: Suite) -> None:
    assert faults(run_suite(suite, rules=True)) == {}


@pytest.mark.slow
def test_all_cases_are_right_as_a_job_compiles_them(suite: Suite) -> None:
    assert unlike(run_suite(suite, shared=True), SHARED) == {}
