from __future__ import annotations

import msgspec
import pytest

from kintune.core.report import RunReport, StopReason
from kintune.core.stage_results import KnowledgeUse, SubgraphEnd, Summary, ValidationResult
from kintune.records import Run, RunState
from kintune.tuning.front.publishing import report_of
from kintune.workers.engine.timings import Timings
from tests.support.toy_tools import toy_spec

RUN = Run("4711", "key", "toy", "d", b"", RunState.RUNNING, "then", "now", 9.0, {"search": 0}, {"kintune": "0"}, None)
END = SubgraphEnd("conv", "w0", 3, 2e9, "conv2d", 40, 812.5, 1700.0, {"build_failed": 2})
PROOF = ValidationResult(
    {"untuned": (4.0, 5.0, 6.0), "tuned": (2.0,), "onnxruntime": (3.0,)}, 1e-6, 1e-5, True, ("untuned",), {}
)
SUMMARY = Summary(
    "toy", "digest", "target met", 40, 7, (END,), ((1.5, 3, 12.0),), 2.4, None, PROOF, KnowledgeUse(12, 2, 9, 1)
)
TIMINGS = Timings({"select": 1.0, "build": 4.0, "profile": 2.0, "update": 0.5, "confirm": 1.5}, 10.0, 9.5)


def report(summary: Summary = SUMMARY) -> RunReport:
    return report_of(
        RUN, toy_spec(), summary, TIMINGS, skipped={"torch": "absent"}, output="toy.kt", log="a.log", resumed=True
    )


def test_it_says_what_the_job_said() -> None:
    told = report()
    assert (told.run_id, told.model.name, told.model.digest) == ("4711", "toy", "digest")
    assert (told.reason, told.trials, told.reused_records) == (StopReason.TARGET_MET, 40, 7)
    assert (told.seeds, told.versions, told.resumed) == (RUN.seeds, RUN.versions, True)
    (subgraph,) = told.subgraphs
    assert (subgraph.name, subgraph.weight, subgraph.flops, subgraph.family) == ("conv", 3, 2e9, "conv2d")
    assert (subgraph.trials, subgraph.best_us, subgraph.failures) == (40, 812.5, {"build_failed": 2})
    assert (told.latency_ms.untuned, told.latency_ms.tuned, told.latency_ms.onnxruntime) == (5.0, 2.0, 3.0)
    assert (told.max_abs_error, told.max_rel_error) == (1e-6, 1e-5)
    assert told.knowledge == SUMMARY.knowledge
    assert told.skipped == {"torch": "absent"}


def test_the_seconds_of_stages_and_the_rest_are_all_there_is() -> None:
    seconds = report().stage_seconds
    assert (seconds.select, seconds.build, seconds.profile, seconds.update) == (1.0, 4.0, 2.0, 0.5)
    assert sum(msgspec.structs.asdict(seconds).values()) == pytest.approx(report().seconds)


def test_the_document_is_what_was_promised() -> None:
    document = msgspec.to_builtins(report())
    for key in (
        "run_id", "model", "target", "options", "seeds", "versions", "trials", "reused_records", "seconds",
        "stage_seconds", "subgraphs", "curve", "latency_ms", "max_abs_error", "max_rel_error",
    ):  # fmt: skip
        assert key in document
    assert document["knowledge"] == {"programs": 12, "models": 2, "measured": 9, "lost": 1}
    assert document["curve"] == ([1.5, 3, 12.0],)
    assert document["subgraphs"][0].keys() >= {"name", "weight", "flops", "family", "trials", "best_us", "failures"}
    assert document["latency_ms"]["spread"]["untuned"]["runs"] == 3


def test_without_a_proof_there_are_no_latencies() -> None:
    told = report(msgspec.structs.replace(SUMMARY, proof=None))
    assert (told.latency_ms.tuned, told.max_abs_error, told.within_tolerance) == (None, None, None)
