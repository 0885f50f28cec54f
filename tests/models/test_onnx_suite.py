"""ONNX's own backend suite: each case is right, or refused by name before anything is built."""

from __future__ import annotations

import pytest

from tests.support.models_page import LIST, PAGE, read_list, refused_list, table_of, written_table
from tests.support.onnx_suite import REFUSED, RIGHT, SHARED, Verdict, run_suite

pytestmark = [pytest.mark.tvm, pytest.mark.timeout(1200)]

UPDATE = "python -m tests.support.models_page writes it anew"

Verdicts = dict[str, Verdict]


@pytest.fixture(scope="module")
def verdicts() -> Verdicts:
    return run_suite()


def faults(verdicts: Verdicts) -> dict[str, str]:
    return {
        name: f"{verdict.kind}: {verdict.reason}"
        for name, verdict in verdicts.items()
        if verdict.kind not in (RIGHT, REFUSED)
    }


def test_no_case_is_wrong_or_fails_after_it_was_taken(verdicts: Verdicts) -> None:
    assert faults(verdicts) == {}


def test_the_list_of_refused_cases_only_gets_shorter(verdicts: Verdicts) -> None:
    listed = read_list(LIST.read_text())
    refused = read_list(refused_list(verdicts))
    assert {name: why for name, why in refused.items() if name not in listed} == {}, "refused, and not listed"
    assert sorted(listed.keys() - refused.keys()) == [], f"listed, and no longer refused: {UPDATE}"
    assert listed == refused, f"the reasons changed: {UPDATE}"


def test_refused_cases_are_right_with_nodes_in_onnxruntime(verdicts: Verdicts) -> None:
    refused = [name for name, verdict in verdicts.items() if verdict.kind == REFUSED]
    found = run_suite(shared=True, names=refused)
    assert {name: verdict for name, verdict in found.items() if verdict.kind != SHARED} == {}


def test_most_cases_are_right(verdicts: Verdicts) -> None:
    assert len(verdicts) > 1050
    assert sum(verdict.kind == RIGHT for verdict in verdicts.values()) >= 1000


def test_the_page_is_current(verdicts: Verdicts) -> None:
    assert written_table(PAGE.read_text()) == table_of(verdicts), UPDATE


def test_programs_of_the_rule_compute_the_same() -> None:
    assert faults(run_suite(rules=True, share=12)) == {}


@pytest.mark.slow
def test_programs_of_the_rule_compute_the_same_in_all_cases() -> None:
    assert faults(run_suite(rules=True)) == {}


@pytest.mark.slow
def test_all_cases_are_right_as_a_job_compiles_them() -> None:
    found = run_suite(shared=True)
    assert {name: verdict for name, verdict in found.items() if verdict.kind != SHARED} == {}
