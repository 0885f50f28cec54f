from __future__ import annotations

import msgspec
import pytest

from kintune.core.report import CombinationReport, Latencies, RegionReport, StopReason, SubgraphReport
from kintune.core.stage_results import KnowledgeUse
from kintune.terminal.summary import summarize
from tests.support.reports import example_report


def test_a_faster_runtime_is_the_first_thing_said() -> None:
    slower = Latencies.of({"untuned": [30.0], "tuned": [15.5], "onnxruntime": [12.7], "openvino": [11.0]})
    lines = summarize(example_report(latency_ms=slower))
    assert lines[0] == "resnet18: 15.5 ms, slower than openvino: 1.41x its 11.0 ms."
    assert [line.split()[0] for line in lines[1:5]] == ["tuned", "openvino", "onnxruntime", "untuned"]


def test_the_gain_comes_first_when_nobody_is_faster() -> None:
    assert summarize(example_report())[0] == "resnet18: 15.0 ms, 1.08x as fast as onnxruntime (16.2 ms)."
    level = Latencies.of({"untuned": [30.0], "tuned": [15.0], "onnxruntime": [15.1]})
    assert summarize(example_report(latency_ms=level))[0] == ("resnet18: 15.0 ms, level with onnxruntime (15.1 ms).")


def test_without_other_runtimes_the_gain_over_untuned_is_said() -> None:
    alone = Latencies.of({"untuned": [30.0], "tuned": [15.0]})
    assert summarize(example_report(latency_ms=alone))[0] == "resnet18: 15.0 ms, 2.00x as fast as untuned (30.0 ms)."


def test_notes_come_after_what_was_won() -> None:
    lines = summarize(example_report(notes=("layouts were left as they are",)))
    assert lines[1] == "layouts were left as they are"


def test_wrong_outputs_are_said_before_the_gain() -> None:
    lines = summarize(example_report(within_tolerance=False))
    assert "by MORE than the tolerance" in lines[0]
    assert any("MORE than the tolerance of 0.001 absolute + 0.001 relative" in line for line in lines)


def test_the_extreme_inputs_on_which_it_is_right_are_named() -> None:
    report = example_report(extreme_inputs=("inputs that are all zeros", "large inputs"))
    line = "They are right on 2 further sets of inputs: inputs that are all zeros; large inputs."
    assert line in summarize(report)


def test_a_result_that_gained_nothing_says_so() -> None:
    assert summarize(example_report(latency_ms=Latencies.of({"untuned": [15.0], "tuned": [15.0]})))[0].endswith(
        "nothing was gained over the untuned network (15.0 ms)."
    )


def test_what_could_not_be_measured_is_not_claimed() -> None:
    lines = summarize(example_report(latency_ms=Latencies(), max_abs_error=None, max_rel_error=None))
    assert lines[0] == "resnet18: tuned; it was not timed as a whole."
    assert "Its outputs were not compared with a reference." in lines
    assert summarize(example_report(latency_ms=Latencies.of({"tuned": [15.0]})))[0] == "resnet18: 15.0 ms tuned."


def test_failures_are_counted_by_cause_over_all_subgraphs() -> None:
    lines = summarize(example_report())
    start = lines.index("7 candidates failed; this is normal if it is a minority:")
    assert [line.split() for line in lines[start + 1 : start + 3]] == [
        ["4", "run", "failed"],
        ["3", "build", "timed", "out"],
    ]


def test_many_causes_are_cut_short() -> None:
    many = SubgraphReport("a", 1, 1.0, "dense", 9, None, {f"cause {i}": 9 - i for i in range(9)})
    assert "  and 3 more causes; the log lists all" in summarize(example_report(subgraphs=(many,)))


def test_a_runtime_that_was_not_compared_says_why() -> None:
    assert any(line.split()[:3] == ["torch", "not", "compared:"] for line in summarize(example_report()))


def test_onnxruntime_with_its_option_for_denormal_numbers_has_its_line() -> None:
    times = {"tuned": [1.0] * 3, "onnxruntime": [4.0] * 3, "onnxruntime_flushing": [2.0] * 3}
    lines = summarize(example_report(latency_ms=Latencies.of(times)))
    assert "onnxruntime_flushing" in lines[0]
    ours, theirs = (line for line in lines if line.startswith(("  tuned ", "  onnxruntime_flushing ")))
    assert ours.index("ms") == theirs.index("ms")
    assert "  (onnxruntime_flushing has session.set_denormal_as_zero, an option of onnxruntime)" in lines


def test_the_summary_ends_with_where_the_file_is_and_what_comes_next() -> None:
    lines = summarize(example_report())
    assert "The executable is /models/resnet18.kt" in lines
    assert "The log is /models/resnet18.log" in lines
    assert lines[-2] == "Next: kintune evaluate /models/resnet18.kt"
    assert "same command again" in lines[-1]
    assert summarize(example_report(reason=StopReason.CONVERGED, log=None))[-1].startswith("Next:")


def test_a_command_to_copy_takes_names_with_blanks() -> None:
    report = example_report(output="/models/my net.kt")
    assert "Next: kintune evaluate '/models/my net.kt'" in summarize(report)
    assert summarize(report, job="j1")[-1] == "Next: kintune job download j1 --output '/models/my net.kt'"


def test_files_of_a_job_that_were_deleted_are_not_offered_for_download() -> None:
    said = summarize(example_report(), job="j1", files_removed=86400.0)
    assert said[-2] == "The files of job j1 were deleted on 1970-01-02."
    assert said[-1].startswith("Next: kintune submit MODEL.onnx --compile-only, ")
    assert not any("download" in line for line in said)


def test_what_the_search_started_from_is_one_line() -> None:
    def said(*use: int) -> list[str]:
        return [line for line in summarize(example_report(knowledge=KnowledgeUse(*use))) if " of similar" in line]

    assert said() == []
    assert said(12, 2, 9) == ["Started from 12 programs and 2 models of similar workloads; 9 trials came from them."]
    assert said(1) == ["Started from 1 program of similar workloads."]
    assert said(0, 1, 0, 2) == [
        "Started from 1 model of similar workloads.",
        "2 records of similar workloads are unusable; run 'kintune records check'.",
    ]


@pytest.mark.parametrize(("trials", "disturbed", "said"), [(15, 15, False), (100, 24, False), (100, 25, True)])
def test_many_disturbed_measurements_are_said_with_what_to_do(trials: int, disturbed: int, said: bool) -> None:
    lines = summarize(example_report(trials=trials, disturbed=disturbed))
    (place, *_) = [*(n for n, line in enumerate(lines) if line.startswith("Other programs use the cores")), None]
    assert (place is not None) == said
    if place is not None:
        assert f"{disturbed} of {trials} candidates" in lines[place]
        assert "--threads" in lines[place + 1]


def test_every_reason_to_stop_can_be_said() -> None:
    said = {
        next(line for line in summarize(example_report(reason=reason)) if "measured" in line) for reason in StopReason
    }
    assert len(said) == len(StopReason)


def test_each_combination_of_shapes_has_its_line() -> None:
    def one(length: int, **times: float) -> CombinationReport:
        latency = Latencies.of({name: [time] for name, time in times.items()})
        return CombinationReport({"ids": (1, length), "mask": (1, length)}, 1.0, latency, 1e-6, 1e-6, True)

    combinations = (one(32, untuned=9.0, tuned=3.0, onnxruntime=4.0), one(64, untuned=21.0, tuned=7.0, onnxruntime=5.0))
    together = Latencies.of({"untuned": [30.0], "tuned": [10.0], "onnxruntime": [9.0]})
    lines = summarize(example_report(latency_ms=together, combinations=combinations))
    assert lines[:2] == [
        "resnet18, one run with each of 2 combinations of shapes: 10.0 ms, slower than onnxruntime: 1.11x its 9.00 ms.",
        "  with ids=1x64, mask=1x64: 7.00 ms, slower than onnxruntime: 1.40x its 5.00 ms.",
    ]
    assert "  with ids=1x32, mask=1x32: 3.00 ms tuned, 4.00 ms onnxruntime, 9.00 ms untuned" in lines
    unmeasured = (one(32), one(64))
    assert not any("ids=" in line for line in summarize(example_report(combinations=unmeasured)))


def test_regions_say_in_what_they_compute() -> None:
    names = [RegionReport(f"kintune/region{n}", n + 1, {"bf16": 2, "fp32": 1}) for n in range(6)]
    report = msgspec.structs.replace(example_report(), regions=(RegionReport("wide", 3, {"fp32": 4}), *names))
    said = [line for line in summarize(report) if "region" in line]
    assert said[0] == "Of the subgraphs of kintune/region0 (1 node), 2 in bf16 and 1 in fp32."
    assert len(said) == 5
    assert said[-1] == "2 more regions like these."


def test_a_compilation_within_an_error_budget_has_measured_its_error() -> None:
    report = msgspec.structs.replace(example_report(), reason=StopReason.COMPILED)
    assert "without measuring anything" in summarize(report)[0]
    narrow = msgspec.structs.replace(report.options, search=False, precision="bf16")
    assert "its error measured" in summarize(msgspec.structs.replace(report, options=narrow))[0]


@pytest.mark.parametrize(
    ("reused", "said"),
    [
        (0, "None of its programs was measured before: all are made by a rule, or are the compiler's default."),
        (128, "128 measured programs known before; the others are made by a rule."),
    ],
)
def test_a_compiled_network_says_where_its_programs_come_from(reused: int, said: str) -> None:
    compiled = example_report(reason=StopReason.COMPILED, latency_ms=Latencies(), reused_records=reused)
    lines = summarize(compiled)
    assert lines[0] == "resnet18: compiled, without measuring anything; its stages took 12:34."
    assert said in lines
    assert not any(" programs" in line for line in summarize(msgspec.structs.replace(compiled, subgraphs=())))
