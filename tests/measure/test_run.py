from __future__ import annotations

import gc
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kintune.core.measurement_protocol import MeasurementProtocol
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import Built, KernelArgument, ProfileContext, ProfileItem
from kintune.errors import DeviceError
from tests.support.poison import compile_kernel

pytestmark = pytest.mark.tvm

PROTOCOL = MeasurementProtocol(threads=1, repeats=2, max_seconds=0.01)


@pytest.fixture(scope="module")
def runner() -> Any:
    from kintune.hardware.cores import choose_cores
    from kintune.measure.interference import InterferenceFilter
    from kintune.measure.run import Runner

    return Runner(choose_cores(1), interference=InterferenceFilter(waited=lambda: 0.0))  # whatever else runs here


def libraries(directory: Path) -> int:
    """How many mappings of files from `directory` this process has."""
    gc.collect()
    return sum(str(directory) in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_an_artifact_leaves_neither_file_nor_mapping_behind(
    runner: Any, healthy: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kintune.runtime.artifact import load_artifact

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    module = load_artifact(healthy.artifact)
    assert list(tmp_path.iterdir()) == []
    assert libraries(tmp_path) > 0
    del module
    assert libraries(tmp_path) == 0
    runner.begin(ProfileContext(PROTOCOL, {"dense": healthy}))
    assert runner.profile(ProfileItem("dense", healthy)).ok
    assert libraries(tmp_path) == 0


def test_the_reference_runs_once_a_workload(runner: Any, tmp_path: Path) -> None:
    log = tmp_path / "runs"
    operands = (KernelArgument((8,), "float32", "output"),)
    body = f'FILE *f = fopen("{log}", "a"); fputc(120, f); fclose(f); fill(out, 1.0f);'
    reference = Built("reference", compile_kernel(body), operands)
    candidate = Built("candidate", compile_kernel("fill(out, 1.0f);"), operands)
    for _ in range(2):
        runner.begin(ProfileContext(PROTOCOL, {"logged": reference}))
        assert [runner.profile(ProfileItem("logged", candidate)).status for _ in range(3)] == [Status.OK] * 3
    assert log.read_text() == "x"


@pytest.mark.parametrize("keep", [False, True])
def test_candidates_treat_denormal_numbers_as_the_result_will(runner: Any, tmp_path: Path, keep: bool) -> None:
    log = tmp_path / "products"
    body = f'''
        volatile float tiny = 1e-40f, one = 1.0f;
        FILE *f = fopen("{log}", "a"); fputc(tiny * one != 0.0f ? 'k' : 'f', f); fclose(f); fill(out, 1.0f);'''
    built = Built("reference", compile_kernel(body), (KernelArgument((8,), "float32", "output"),))
    runner.begin(ProfileContext(PROTOCOL, {"tiny": built}, keep_denormals=keep))
    assert runner.profile(ProfileItem("tiny", built)).ok
    assert set(log.read_text()) == {"k" if keep else "f"}


def test_a_slow_reference_has_been_timed_when_it_has_run(runner: Any, tmp_path: Path) -> None:
    log = tmp_path / "runs"
    operands = (KernelArgument((8,), "float32", "output"),)
    body = f'FILE *f = fopen("{log}", "a"); fputc(120, f); fclose(f); usleep(20000); fill(out, 1.0f);'
    reference = Built("reference", compile_kernel(body), operands)
    runner.begin(ProfileContext(PROTOCOL, {"slow": reference}))
    outcome = runner.profile(ProfileItem("slow", reference))
    assert outcome.ok
    assert outcome.median_us > 20_000
    assert log.read_text() == "x"


@pytest.mark.parametrize(("slow", "runs"), [(math.inf, "x" * 3), (10.0, "x")])
def test_what_is_hopelessly_slow_runs_once(runner: Any, tmp_path: Path, slow: float, runs: str) -> None:
    log = tmp_path / "runs"
    operands = (KernelArgument((8,), "float32", "output"),)
    body = f'FILE *f = fopen("{log}", "a"); fputc(120, f); fclose(f); usleep(20000); fill(out, 1.0f);'
    sleepy = Built("slow", compile_kernel(body), operands)
    reference = Built("reference", compile_kernel("fill(out, 1.0f);"), operands)
    protocol = MeasurementProtocol(threads=1, repeats=2, max_seconds=0.5)
    runner.begin(ProfileContext(protocol, {"sleepy": reference}, best_us={"sleepy": 100.0}, slow=slow))
    assert runner.profile(ProfileItem("sleepy", sleepy)).ok
    assert log.read_text() == runs


@pytest.mark.parametrize(("slow", "times"), [(math.inf, 2), (1.3, 0)])
def test_cores_are_waited_for_where_a_single_time_decides(
    runner: Any, healthy: Built, monkeypatch: pytest.MonkeyPatch, slow: float, times: int
) -> None:
    waits: list[int] = []
    monkeypatch.setattr(runner._backend, "wait_for_locality", lambda: waits.append(1))
    runner.begin(ProfileContext(PROTOCOL, {"dense": healthy}, slow=slow))
    assert [runner.profile(ProfileItem("dense", healthy)).ok for _ in range(2)] == [True, True]
    assert len(waits) == times


def test_what_was_measured_before_says_how_fast_it_is_at_present(runner: Any, tmp_path: Path) -> None:
    log = tmp_path / "runs"
    operands = (KernelArgument((8,), "float32", "output"),)
    body = f'FILE *f = fopen("{log}", "a"); fputc(120, f); fclose(f); usleep(20000); fill(out, 1.0f);'
    known, new = (Built(name, compile_kernel(body), operands) for name in ("known", "new"))
    reference = Built("reference", compile_kernel("fill(out, 1.0f);"), operands)
    protocol = MeasurementProtocol(threads=1, repeats=5, max_seconds=0.5)
    best_us = {"sleepy": 1000.0}  # in a minute that was twenty times as fast
    runner.begin(ProfileContext(protocol, {"sleepy": reference}, best_us=best_us, slow=10.0, again=("known",)))
    for built, runs in ((known, 4), (new, 10)):  # a first run and all repeats, of which the known one has but three
        assert runner.profile(ProfileItem("sleepy", built)).ok
        assert len(log.read_text()) == runs


def test_the_fastest_of_a_stage_so_far_says_what_is_slow(runner: Any, tmp_path: Path) -> None:
    log = tmp_path / "runs"
    operands = (KernelArgument((8,), "float32", "output"),)
    body = f'FILE *f = fopen("{log}", "a"); fputc(120, f); fclose(f); usleep(20000); fill(out, 1.0f);'
    slow = Built("slow", compile_kernel(body), operands)
    fast = Built("fast", compile_kernel("fill(out, 1.0f);"), operands)
    protocol = MeasurementProtocol(threads=1, repeats=2, max_seconds=0.5)
    context = ProfileContext(protocol, {"sleepy": fast}, slow=10.0)
    runner.begin(context)
    for built, runs in ((slow, 3), (fast, 3), (slow, 4)):  # until something fast is known, a first run and two repeats
        assert runner.profile(ProfileItem("sleepy", built)).ok
        assert len(log.read_text()) == runs
    runner.begin(context)  # of another stage, nothing is known
    assert runner.profile(ProfileItem("sleepy", slow)).ok
    assert len(log.read_text()) == 7


def disturbed(log: Path, waited: Callable[[], float], milliseconds: int, is_reference: bool, most_s: float) -> Outcome:
    """What comes of a kernel that sleeps while its threads wait like this; it leaves a mark in `log` for each run."""
    from kintune.hardware.cores import choose_cores
    from kintune.measure.interference import InterferenceFilter
    from kintune.measure.run import Runner

    log.touch()
    operands = (KernelArgument((8,), "float32", "output"),)
    mark = f'FILE *f = fopen("{log}", "a"); fputc(120, f); fclose(f);'
    slow = Built("slow", compile_kernel(f"{mark} usleep({1000 * milliseconds}); fill(out, 1.0f);"), operands)
    other = Built("reference", compile_kernel("fill(out, 1.0f);"), operands)
    protocol = MeasurementProtocol(threads=1, repeats=2, max_seconds=most_s if is_reference else 0.5)
    runner = Runner(choose_cores(1), interference=InterferenceFilter(waited=waited))
    references = {"sleepy": slow if is_reference else other}
    runner.begin(ProfileContext(protocol, references, best_us={"sleepy": 100.0}, slow=10.0))
    return runner.profile(ProfileItem("sleepy", slow))


@pytest.mark.parametrize("is_reference", [False, True])
def test_a_disturbed_first_run_is_not_enough(tmp_path: Path, is_reference: bool) -> None:
    log = tmp_path / "runs"

    def waited() -> float:
        return 100.0 if log.stat().st_size == 1 else 0.0  # more during the first run, not later

    assert disturbed(log, waited, 20, is_reference, 0.01).ok
    assert log.read_text() == "xx"


@pytest.mark.parametrize("is_reference", [False, True])
def test_a_disturbed_first_run_is_enough_if_it_was_hopeless_all_the_same(tmp_path: Path, is_reference: bool) -> None:
    log = tmp_path / "runs"

    def waited() -> float:
        return 0.01 * log.stat().st_size  # ten milliseconds of each run, which takes at least 40

    assert disturbed(log, waited, 40, is_reference, 0.02).median_us >= 30_000.0
    assert log.read_text() == "x"


def test_a_packed_candidate_is_compared_with_the_plain_reference(
    runner: Any, dense: Any, native: str, healthy: Built
) -> None:
    import json

    import tvm

    from kintune.compiler.build import build_module

    schedule = tvm.s_tir.Schedule(dense)
    block = schedule.get_sblock("matmul", func_name="main")
    cached = schedule.cache_read(block, 1, "global")
    schedule.transform_layout(block, ("read", 1), lambda k, j: (j // 16, k, j % 16))
    schedule.annotate(cached, "meta_schedule.layout_rewrite_preproc", True)
    packed = build_module(tvm.target.Target(json.loads(native)), dense, schedule.mod, "packed")
    assert packed.operands[1].shape == (3, 48, 16)
    runner.begin(ProfileContext(PROTOCOL, {"dense": healthy}))
    assert runner.profile(ProfileItem("dense", packed)).status is Status.OK


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int32", "bool"])
def test_programs_of_other_types(runner: Any, native: str, dtype: str) -> None:
    """out = x, where x is what each type is filled with."""
    import json

    import tvm
    from tvm import te

    from kintune.compiler.build import build_module

    x = te.placeholder((16, 5), dtype, name="x")
    copy = te.compute((16, 5), lambda i, j: x[i, j], name="copy")
    module = tvm.IRModule({"main": te.create_prim_func([x, copy])})
    built = build_module(tvm.target.Target(json.loads(native)), module, module, dtype)
    runner.begin(ProfileContext(PROTOCOL, {dtype: built}))
    outcome = runner.profile(ProfileItem(dtype, built))
    assert (outcome.status, outcome.cause) == (Status.OK, "")


def test_threads_inherit_no_pin(runner: Any, healthy: Built) -> None:
    before = os.sched_getaffinity(0)
    runner.begin(ProfileContext(PROTOCOL, {"dense": healthy}))
    runner.profile(ProfileItem("dense", healthy))
    runner.profile(ProfileItem("dense", Built("text", b"not a library", healthy.operands)))
    assert os.sched_getaffinity(0) == before


def test_a_type_that_cannot_be_laid_out_is_a_failure_of_the_run(runner: Any, healthy: Built) -> None:
    runner.begin(ProfileContext(PROTOCOL, {}))
    outcome = runner.profile(ProfileItem("w", Built("c", healthy.artifact, (KernelArgument((2,), "int4", "output"),))))
    assert outcome == Outcome(Status.RUN_FAILED, cause="no arguments of type int4 can be laid out")


def test_protocols_that_this_device_cannot_follow(runner: Any, healthy: Built) -> None:
    with pytest.raises(DeviceError, match="9 threads, this worker has 1"):
        runner.begin(ProfileContext(MeasurementProtocol(threads=9), {}))
    with pytest.raises(DeviceError, match="'lukewarm' operands"):
        runner.begin(ProfileContext(MeasurementProtocol(threads=1, operands="lukewarm"), {}))
    with pytest.raises(DeviceError, match="no stage"):
        runner.profile(ProfileItem("dense", healthy))


def test_a_device_that_a_candidate_broke_ends_the_process(
    runner: Any, healthy: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kintune.measure.run import CORRUPTED

    def fail() -> None:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(runner._backend, "finish", fail)
    monkeypatch.setattr("kintune.measure.run.os._exit", sys.exit)
    runner.begin(ProfileContext(PROTOCOL, {"broken": healthy}))
    with pytest.raises(SystemExit, match=str(CORRUPTED)):
        runner.profile(ProfileItem("broken", healthy))
