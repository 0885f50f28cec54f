from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kintune.core.candidate import Candidate
from kintune.core.outcome import Outcome, Status
from kintune_lab.tuners.measurement import build_failure, run_outcome


def test_seconds_become_microseconds() -> None:
    result = SimpleNamespace(error_msg=None, run_secs=[1e-6, SimpleNamespace(value=3e-6)])
    assert run_outcome(result).median_us == 2.0


def test_what_did_not_run_says_why() -> None:
    error = "LocalRunner: An exception occurred\nTraceback\n  File x\nValueError: no such device\n"
    assert run_outcome(SimpleNamespace(error_msg=error, run_secs=None)) == Outcome(
        Status.RUN_FAILED, cause="ValueError: no such device"
    )
    error = "LocalRunner: Timeout, killed after 30 seconds\n"
    assert run_outcome(SimpleNamespace(error_msg=error, run_secs=None)).status is Status.RUN_TIMED_OUT
    assert run_outcome(SimpleNamespace(error_msg=None, run_secs=[])).status is Status.RUN_FAILED


def test_what_was_not_built_says_why() -> None:
    assert build_failure("LocalBuilder: Timeout, killed after 30.0 seconds").status is Status.BUILD_TIMED_OUT
    assert build_failure("LocalBuilder: An exception occurred\nTVMError: bad") == Outcome(
        Status.BUILD_FAILED, cause="TVMError: bad"
    )


@pytest.mark.tvm
def test_a_replacement_of_a_worker_that_timed_out_is_used_in_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kintune.models.ref import parse_ref
    from kintune_lab.tuners import measurement
    from kintune_lab.tuners.setup import prepare_setup
    from kintune_lab.tuners.turns import StageTimer
    from tests.support.tiny_network import make_tiny_network

    setup = prepare_setup(parse_ref(str(make_tiny_network(tmp_path).onnx)), 1)
    untuned = Candidate.untuned(setup.ready().subgraphs[0].workload)
    measurements = measurement.OwnMeasurements(setup, {}, tmp_path / "workers.log", StageTimer())

    def measured() -> Status:
        (outcome,) = measurements.measure([untuned], lambda candidate: setup.lowered.workloads[0].module, {})
        return outcome.status

    try:
        assert measured() is Status.OK
        with monkeypatch.context() as impatient:
            impatient.setattr(measurement, "patience_s", lambda seconds, limit_s: 1e-3)
            assert measured() is Status.BUILD_TIMED_OUT
        assert measured() is Status.OK
    finally:
        measurements.close()
