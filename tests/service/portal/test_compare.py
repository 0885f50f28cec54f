from __future__ import annotations

from kintune.core.report import Latencies, SubgraphReport
from kintune.service.job_repository import Job
from kintune.service.job_request import JobRequest
from kintune.service.job_status import JobStatus
from kintune.service.portal.compare import Compared, _facts, operator_rows, standings
from kintune.service.portal.operators import NetworkOperator, operators_of
from tests.support.reports import example_report


def operators(*found: tuple[str, str, float]) -> tuple[NetworkOperator, ...]:
    """Operators of (name, workload, microseconds)."""
    subgraphs = tuple(SubgraphReport(name, 1, 1e6, "dense", 4, us, workload=work) for name, work, us in found)
    return operators_of(example_report(subgraphs=subgraphs), ())


def test_operators_with_one_program_are_one_row() -> None:
    first, second = operators(("conv2d", "a", 30.0), ("dense", "b", 9.0)), operators(("conv2d7", "a", 10.0))
    rows = [
        (title, [None if each is None else each.us for each in cells])
        for title, cells in operator_rows([first, second])
    ]
    assert rows == [("conv2d", [30.0, 10.0]), ("dense", [9.0, None])]


def test_operators_of_one_title_stand_side_by_side() -> None:
    rows = operator_rows([operators(("conv2d", "a", 30.0)), operators(("conv2d", "z", 10.0))])
    assert len(rows) == 1


def test_two_operators_of_one_title_in_one_job_stay_apart() -> None:
    rows = operator_rows([operators(("conv2d", "a", 30.0), ("conv2d1", "b", 20.0))])
    assert [cells[0].us for _, cells in rows if cells[0] is not None] == [30.0, 20.0]


def test_the_fastest_is_one_whose_runs_lie_below_those_of_all_others() -> None:
    def timed(*ms: float) -> Latencies:
        return Latencies.of({"tuned": ms})

    slow, fast, near = timed(5.0, 5.1, 5.2), timed(2.0, 2.1, 2.2), timed(2.1, 2.3, 2.4)
    assert standings([slow, fast]) == ["2.43x the fastest", "the fastest"]
    assert standings([slow, fast, near]) == ["2.43x the fastest", "level with the fastest", "level with the fastest"]
    assert standings([slow, None, near]) == ["2.22x the fastest", "", "the fastest"], (
        "one that is uncertain says nothing"
    )
    assert standings([slow, None]) == ["", ""]
    assert standings([Latencies(), fast, Latencies()]) == ["", "", ""]


def compared(name: str, latency_ms: float, *uncertain: str) -> Compared:
    """A job with a result, of which these lines are uncertain."""
    job = Job(name, 1, 1, JobRequest(), 1.0, None, JobStatus.DONE, "", None, None, None, None, None, 1.0, None, None,
              latency_ms)  # fmt: skip
    return Compared(name, job, example_report(uncertain=uncertain), (), "here")


def test_an_uncertain_latency_says_why_and_is_not_compared() -> None:
    shown = _facts([compared("a", 1.0, "it took 1 to 9 ms"), compared("b", 2.0)])
    assert 'uncertain</span><span class="under">it took 1 to 9 ms' in shown
    assert "the fastest<" not in shown


def test_long_names_are_cut() -> None:
    assert compared("a" * 20 + "b" * 20, 1.0).short == f"{'a' * 13}...{'b' * 13}"
