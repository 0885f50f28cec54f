from __future__ import annotations

from collections.abc import Callable

import pytest

from kintune.core.candidate import Candidate
from kintune.core.outcome import Status
from kintune_lab.experiment.tables import Row, Tables, check_tables
from kintune_lab.race.analysis import analyse
from kintune_lab.race.networks import NetworkTime
from kintune_lab.race.remeasurement import Remeasurement, best_programs_of
from kintune_lab.race.tables import AT_EQUAL_TIME, FINAL, network_name, tables_of
from kintune_lab.race.turn_scheduler import RaceRecord
from kintune_lab.tuners.messages import CandidateFailure
from tests.support.scripted_tuner import ScriptedTurn

RunTurns = Callable[..., RaceRecord]
FAILURES = (
    CandidateFailure("a", Status.BUILD_FAILED, "LLVM says no", Candidate("a", "s", ((4, 2), (1,)))),
    CandidateFailure("b", Status.RUN_TIMED_OUT, ""),
)


@pytest.fixture
def tables(run_turns: RunTurns) -> Tables:
    """Stock ends at 800 us; ours is there at 600 us after 20 s, and one of its programs came out otherwise."""
    record = run_turns(
        [ScriptedTurn(40, (("a", 500, 450.0),)), ScriptedTurn(20)],
        [
            ScriptedTurn(20, (("a", 300, 310.0),), failures=FAILURES),
            ScriptedTurn(20, (("b", 9, 1.0),)),
            ScriptedTurn(40),
        ],
    )
    remeasurements = {}
    for candidate in (c for tuners in best_programs_of(record).values() for found in tuners.values() for c in found):
        time_us = (
            float(candidate.decisions[0][0]) if candidate.decisions else {"a": 1000.0, "b": 100.0}[candidate.workload]
        )
        wrong = time_us == 9
        remeasurements[candidate] = Remeasurement(
            candidate, () if wrong else (time_us,), Status.WRONG_RESULT if wrong else Status.OK, "off" if wrong else ""
        )
    replayed = {c: "other" if c.decisions == ((300,),) else "h" for c in remeasurements}
    networks = {
        "untuned": NetworkTime((9.0,)),
        network_name("stock", FINAL): NetworkTime((1.0, 1.2, 1.1)),
        network_name("kintune", AT_EQUAL_TIME): NetworkTime((0.5, 0.6, 0.55)),
    }
    return tables_of(record, remeasurements, analyse(record, remeasurements), networks, replayed, 2)


def row_of(tables: Tables, table: str, **wanted: object) -> Row:
    found = [row for row in tables[table] if all(row[k] == v for k, v in wanted.items())]
    assert len(found) == 1, found
    return found[0]


def test_they_are_tables(tables: Tables) -> None:
    check_tables(tables)
    assert set(tables) == {"results", "curve", "stages", "subgraphs", "judgements", "failures", "reference", "networks"}


def test_results(tables: Tables) -> None:
    ours = row_of(tables, "results", method="kintune")
    assert ours["reached"] is True
    assert ours["time_ratio"] == 3.0
    assert ours["quality_ratio"] == pytest.approx(800 / 600)
    assert ours["network_quality_ratio"] == pytest.approx(1.1 / 0.55)
    assert ours["rejected"] == 1
    assert ours["altered"] == 1
    stock = row_of(tables, "results", method="stock")
    assert stock["altered"] == 0
    assert stock["active_seconds"] == 60
    assert stock["network_ms"] == 1.1
    assert tables["results"][0] is stock  # what finds stock's label relies on it


def test_a_ratio_that_was_not_reached_is_left_out_and_bounded(run_turns: RunTurns) -> None:
    record = run_turns([ScriptedTurn(40, (("a", 500, 450.0),))], [ScriptedTurn(50)])
    remeasurements = {
        c: Remeasurement(c, (float(c.decisions[0][0]) if c.decisions else 1000.0,), Status.OK)
        for tuners in best_programs_of(record).values()
        for found in tuners.values()
        for c in found
    }
    ours = row_of(
        tables_of(record, remeasurements, analyse(record, remeasurements), {}, {}, 2), "results", method="kintune"
    )
    assert ours["time_ratio"] is None
    assert ours["time_ratio_at_most"] == 0.8
    assert ours["network_ms"] is None


def test_the_curve_begins_with_the_untuned_network(tables: Tables) -> None:
    assert row_of(tables, "curve", method="kintune", turn=-1)["judged_ms"] == 1.3
    assert [row["active_seconds"] for row in tables["curve"] if row["method"] == "kintune"] == [0, 20, 40, 80]


def test_a_rejected_incumbent_is_told_with_its_cause(tables: Tables) -> None:
    row = row_of(tables, "judgements", method="kintune", workload="b")
    assert (row["status"], row["cause"], row["judged_us"]) == ("wrong_result", "off", None)
    assert row_of(tables, "judgements", method="kintune", workload="a")["as_built"] is False
    assert row_of(tables, "judgements", method="stock", workload="a")["as_built"] is True


def test_what_failed_is_told_and_counted(tables: Tables) -> None:
    ours = row_of(tables, "results", method="kintune")
    assert (ours["failures"], ours["failures_build_failed"], ours["failures_run_timed_out"]) == (2, 1, 1)
    built = row_of(tables, "failures", status="build_failed")
    assert (built["method"], built["turn"], built["workload"]) == ("kintune", 0, "a")
    assert (built["cause"], built["sketch"], built["decisions"]) == ("LLVM says no", "s", "[[4, 2], [1]]")
    assert row_of(tables, "failures", status="run_timed_out")["decisions"] is None


def test_every_side_has_every_subgraph(tables: Tables) -> None:
    assert {(row["method"], row["workload"]) for row in tables["subgraphs"]} == {
        (method, workload) for method in ("stock", "kintune") for workload in "ab"
    }
    assert row_of(tables, "subgraphs", method="kintune", workload="b")["judged_us"] == 100.0


def test_reference_times_are_in_the_order_of_the_turns(tables: Tables) -> None:
    assert [row["began_seconds"] for row in tables["reference"]] == sorted(
        float(row["began_seconds"] or 0) for row in tables["reference"]
    )


def test_networks_have_their_moment(tables: Tables) -> None:
    assert row_of(tables, "networks", method="kintune")["moment"] == AT_EQUAL_TIME
    assert row_of(tables, "networks", method="untuned")["moment"] is None
