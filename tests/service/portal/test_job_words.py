from __future__ import annotations

import msgspec
import pytest

from kintune.core.hybrid import Hybrid, Region
from kintune.core.report import FastestBaseline, ProgressReport
from kintune.service.job_repository import Job
from kintune.service.job_request import JobRequest
from kintune.service.job_status import JobStatus
from kintune.service.portal.job_words import (
    LABELS,
    describe_error,
    describe_precision,
    describe_request,
    describe_where,
    headline,
    snippets,
    spoken,
    target_ms,
)
from tests.support.portal_jobs import report_of_layers
from tests.support.reports import example_report

JOB = Job("a1", 1, 1, JobRequest(), 1.0, None, JobStatus.QUEUED, "", None, None, None, None, None, 1.0, None, None)
ONNXRUNTIME = FastestBaseline("onnxruntime", 1.74)
REGION = Region("Region0", ("a", "b"), ("x",), ("y",))


@pytest.mark.parametrize(
    ("changes", "report", "said"),
    [
        ({}, None, "net: queued"),
        ({"state": JobStatus.CHECKING}, ProgressReport("baseline", fastest_baseline=ONNXRUNTIME),
         "net: checking"),
        ({"state": JobStatus.TUNING},
         ProgressReport("profile", best_ms=1.41, fastest_baseline=ONNXRUNTIME),
         "net: estimated 1.41 ms"),
        ({"state": JobStatus.DONE, "latency_ms": 1.32, "baseline": "onnxruntime", "baseline_ms": 1.74}, None,
         "net: 1.32 ms"),
        ({"state": JobStatus.DONE, "latency_ms": 1.32}, None, "net: 1.32 ms"),
        ({"state": JobStatus.DONE}, None, "net: done, not timed as a whole"),
        ({"state": JobStatus.FAILED, "latency_ms": 1.32}, None, "net: failed"),
    ],
)  # fmt: skip
def test_the_headline_has_the_gain(changes: dict[str, object], report: ProgressReport | None, said: str) -> None:
    shown = headline("net", msgspec.structs.replace(JOB, **changes), report)
    assert shown.replace("\N{NO-BREAK SPACE}ms", " ms") == said


def test_numbers_stay_with_their_units() -> None:
    assert headline("net 2", msgspec.structs.replace(JOB, state=JobStatus.DONE, latency_ms=5.94), None) == (
        "net 2: 5.94\N{NO-BREAK SPACE}ms"
    )


@pytest.mark.parametrize(
    ("line", "name", "said"),
    [
        ("until 'x' cannot be read; write 8", "until", "'x' cannot be read; write 8"),
        ("--constant n=x: is no number", "constants", "n=x: is no number"),
        ("it is beyond your limits", "", "it is beyond your limits"),
        ("precision bf16: the CPU has none; leave --precision out", "precision", "bf16: the CPU has none"),
        (
            "no shape is known; fix it with --constant n=VALUE",
            "",
            "no shape is known; fix it with Constant inputs n=VALUE",
        ),
    ],
)
def test_problems_are_told_in_words_of_the_form(line: str, name: str, said: str) -> None:
    assert spoken(line) == (name, said)


def test_every_field_of_a_request_has_a_name_in_the_form() -> None:
    assert set(LABELS) == set(JobRequest.__struct_fields__)


@pytest.mark.parametrize(
    ("changes", "said", "kind"),
    [
        ({"max_rel_error": 3e-6}, "largest relative error 3e-6, within the tolerance", ""),
        (
            {"max_rel_error": 3e-6, "extreme_inputs": ("large inputs",)},
            "largest relative error 3e-6, within the tolerance; right on 1 set of extreme inputs",
            "",
        ),
        ({"max_rel_error": None, "max_abs_error": 0.0}, "no error at all, within the tolerance", ""),
        (
            {"max_rel_error": 0.3, "within_tolerance": False},
            "largest relative error 3e-1, NOT within the tolerance",
            "bad",
        ),
        (
            {"max_rel_error": None, "max_abs_error": None, "within_tolerance": None},
            "its outputs were not compared",
            "warn",
        ),
    ],
)
def test_an_error_is_told_in_words(changes: dict[str, object], said: str, kind: str) -> None:
    assert describe_error(example_report(**changes)) == (said, kind)


def test_narrow_parts_have_an_error_of_the_whole() -> None:
    report = report_of_layers("net", 1.0, norm_error=0.0039, held_back=8)
    assert describe_precision(report) == (
        "bf16 in 3 of 12 operators; error of the outputs 0.0039 of their norm of 0.01 allowed, "
        "on 8 sets of inputs held back"
    )
    assert describe_precision(example_report()) == "as the model"
    assert "as a whole" in describe_error(report)[0]


def test_a_request_is_told_in_words() -> None:
    wanted = JobRequest(until="onnxruntime*0.8", minutes=5.0, shapes={"x": ((1, 4), (2, 4))}, constants={"n": 3})
    assert describe_request(wanted) == "until 0.8 of onnxruntime, 5 minutes at most, x is 1x4 or 2x4, n is fixed"
    assert describe_request(JobRequest()) == "as fast as it gets"
    wanted = JobRequest(precision="int8", max_error=0.02, calibrate=(3, 4), other_shapes="onnxruntime")
    assert describe_request(wanted) == (
        "precision int8 with an error of at most 0.02, quantised with 2 sets of inputs, other shapes run in onnxruntime"
    )
    assert describe_request(JobRequest(weights=4)) == "large weights in 4 bits"
    assert describe_request(JobRequest(keep_denormals=True)) == "denormal numbers are kept"
    assert describe_request(JobRequest(minutes=1.0, trials=1)) == "1 minute at most, 1 program at most"
    wanted = JobRequest(rtol=0.01, atol=0.0, inputs=(3,))
    assert describe_request(wanted) == (
        "outputs within 0.01 relative and 0 absolute, outputs compared on 1 set of inputs"
    )


@pytest.mark.parametrize(
    ("hybrid", "said"),
    [
        (None, "as compiled kernels, without onnxruntime"),
        (
            Hybrid((), {"LSTM": 2}, {}, ()),
            "entirely in onnxruntime (2 LSTM): no part can be compiled, or none was faster compiled",
        ),
        (
            Hybrid((REGION, REGION), {"Scan": 1}, {}, ()),
            "2 regions as compiled kernels, the rest in onnxruntime (1 Scan)",
        ),
        (Hybrid((REGION,), {}, {}, (), True), "one region as compiled kernels; onnxruntime runs other shapes"),
    ],
)
def test_where_it_runs_is_told_in_words(hybrid: Hybrid | None, said: str) -> None:
    assert describe_where(hybrid) == said


@pytest.mark.parametrize(("until", "most"), [(None, None), ("2", 2.0), ("onnxruntime*0.5", 0.87), ("torch", None)])
def test_the_target_is_a_latency(until: str | None, most: float | None) -> None:
    job = msgspec.structs.replace(JOB, wanted=JobRequest(until=until))
    found = target_ms(job, report_of_layers("net", 1.3))
    assert found == (None if most is None else pytest.approx(most))


def test_c_programs_are_offered_what_they_can_run() -> None:
    assert [each.key for each in snippets("Net-2", False)] == ["python", "wheel", "c", "onnx"]
    assert [each.key for each in snippets("net", True)] == ["python", "wheel", "onnx"]
    assert "net_2-*.whl" in snippets("Net-2", False)[1].lines
    for name, package in (("3dnet", "model_3dnet"), ("模型", "model"), ("numpy", "model_numpy")):
        assert f"import {package};" in snippets(name, False)[1].lines
