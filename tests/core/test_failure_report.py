from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from kintune.core.config import Options
from kintune.core.failure_report import FailureReport, decode_report, remove_report, report_path, report_schema
from kintune.core.report import (
    CampaignReport,
    CombinationReport,
    FailedRun,
    Latencies,
    ModelIdentity,
    SubgraphReport,
    doubts_of,
)
from tests.support.reports import example_report

SCHEMA = Path(__file__).parents[2] / "docs/report.schema.json"

FAILURE = FailureReport(
    model=ModelIdentity("net", ""),
    target="llvm",
    options=Options(trials=8),
    error="JobFailed",
    cause="nothing could be measured",
    subgraphs=(
        SubgraphReport("conv", 2, 1e6, "", 3, None, {"build timed out": 2, "crashed": 1}),
        SubgraphReport("dense", 1, 1e6, "", 2, 4.0, {"crashed": 2}),
    ),
    output="net.kt",
)
COMBINED = example_report(
    combinations=(CombinationReport({"x": (1, 2)}, 1.0, Latencies.of({"tuned": [1.0]}), None, None),)
)
REPORTS = {
    "finished": example_report(),
    "combined": COMBINED,
    "bare": example_report(curve=(), subgraphs=(), latency_ms=Latencies(), log=None),
    "failed": FAILURE,
    "several": CampaignReport(policy="fair", runs=(example_report(),), failed=(FailedRun("b", "JobFailed", "why"),)),
}


def as_json(report: msgspec.Struct) -> Any:
    return json.loads(msgspec.json.encode(report))


def test_the_schema_in_the_docs_is_that_of_the_structs() -> None:
    """`python -m tests.golden.public_face` writes it anew."""
    assert json.loads(SCHEMA.read_text()) == report_schema()


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_reports_are_valid(report: msgspec.Struct) -> None:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(as_json(report), schema, jsonschema.Draft202012Validator)


@pytest.mark.parametrize("key", ["model", "options", "target", "output"])
def test_what_is_missing_is_found(key: str) -> None:
    for report in (example_report(), FAILURE):
        document = as_json(report)
        del document[key]
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document, report_schema(), jsonschema.Draft202012Validator)


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_a_document_becomes_the_report_again(report: msgspec.Struct) -> None:
    assert decode_report(msgspec.json.encode(report)) == report


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"policy": 1}', b'{"error": "x"}'])
def test_what_is_no_report_is_refused(content: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_report(content)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("a/net.kt", "a/net.report.json"),
        ("net", "net.report.json"),
        ("v1.5.kt", "v1.5.report.json"),
        ("x.bin", "x.bin.report.json"),
    ],
)
def test_a_report_lies_beside_its_executable(output: str, expected: str) -> None:
    assert report_path(output) == Path(expected)


def test_failures_are_counted_over_all_subgraphs() -> None:
    assert list(FAILURE.failures.items()) == [("crashed", 3), ("build timed out", 2)]


def test_a_report_that_is_not_there_need_not_be_removed(tmp_path: Path) -> None:
    output = tmp_path / "net.kt"
    report_path(str(output)).write_text("{}")
    for _ in range(2):
        remove_report(output)
        assert not list(tmp_path.iterdir())


def test_the_doubts_of_a_document_are_its_lines_by_kind() -> None:
    document = {"not_compared": ["a", "b"], "uncertain": None}
    assert doubts_of(document) == ("not compared: a", "not compared: b")
    assert doubts_of({"uncertain": ["c"]}) == ("uncertain: c",)
    assert doubts_of({}) == ()
