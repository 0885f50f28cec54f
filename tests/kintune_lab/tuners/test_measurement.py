from __future__ import annotations

from types import SimpleNamespace

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
