"""A real device worker and candidates that do their worst: each is classed, and the next healthy one is as it was."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kintune.core.device import DeviceDescription, Peak
from kintune.core.measurement_protocol import MeasurementProtocol
from kintune.core.messages import ItemFailed
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import Built, KernelArgument, ProfileContext, ProfileItem
from kintune.errors import TargetError
from kintune.wire.child import ResourceLimits
from kintune.workers.device_worker import open_device
from tests.support.poison import Poison, compile_kernel, poisoned

pytestmark = pytest.mark.tvm

MODULE = "kintune.workers.device_worker"
PROTOCOL = MeasurementProtocol(threads=1, repeats=3, max_seconds=0.05)


def profile(workload: str, built: Built) -> bytes:
    return msgspec.msgpack.encode(ProfileItem(workload, built))


class Device:
    """A device worker in a PROFILE stage whose workload is "dense"."""

    def __init__(self, worker: Any, healthy: Built) -> None:
        self.worker = worker
        self.healthy = healthy
        self.begin()

    def begin(self, **references: Built) -> None:
        context = ProfileContext(PROTOCOL, {"dense": self.healthy, **references})
        self.worker.begin("profile", msgspec.msgpack.encode(context))

    def outcome(self, built: Built, workload: str = "dense") -> Outcome:
        return msgspec.msgpack.decode(self.worker.done(profile(workload, built)), type=Outcome)

    def assert_healthy(self) -> None:
        outcome = self.outcome(self.healthy)
        assert outcome.status is Status.OK, outcome.cause
        assert len(outcome.times_us) == PROTOCOL.repeats


@pytest.fixture(scope="module")
def start_device(start_worker: Callable[..., Any], healthy: Built) -> Callable[..., Device]:
    def start(**environment: str) -> Device:
        return Device(start_worker(MODULE, "--threads", "1", **environment), healthy)

    return start


@pytest.fixture(scope="module")
def device(start_device: Callable[..., Device]) -> Device:
    """One for all tests that it should survive."""
    return start_device()


def test_candidates_that_a_process_survives_are_classed_by_it(device: Device, healthy: Built) -> None:
    device.assert_healthy()
    for poison, status, cause_class in (
        (Poison.NAN, Status.WRONG_RESULT, "not finite"),
        (Poison.NOTHING, Status.WRONG_RESULT, "not finite"),
        (Poison.ZEROS, Status.WRONG_RESULT, "wrong numbers"),
        (Poison.WRONG_NUMBERS, Status.WRONG_RESULT, "wrong numbers"),
        (Poison.OUT_OF_BOUNDS, Status.WRONG_RESULT, "wrote out of bounds"),
        (Poison.SPOILED_INPUT, Status.WRONG_RESULT, "wrote to an input"),
        (Poison.ERROR, Status.RUN_FAILED, "ValueError"),
    ):
        outcome = device.outcome(poisoned(poison, healthy.operands))
        assert (outcome.status, outcome.cause_class) == (status, cause_class), poison
        assert outcome.times_us == ()
        device.assert_healthy()
    outcome = device.outcome(Built("text", b"not a library", healthy.operands))
    assert outcome.status is Status.RUN_FAILED
    outcome = device.outcome(Built("other arguments", healthy.artifact, healthy.operands[:2]))
    assert not outcome.ok
    outcome = device.outcome(Built("never built", failure=Outcome(Status.BUILD_FAILED, cause="a reason")))
    assert outcome == Outcome(Status.BUILD_FAILED, cause="a reason")
    device.assert_healthy()


def test_a_kernel_that_is_right_once_is_found_out(device: Device) -> None:
    """Also what a race looks like, now and then."""
    operands = (KernelArgument((32,), "float32", "output"),)
    honest = Built("honest", compile_kernel("fill(out, 3.0f);"), operands)
    tricks = {
        "not finite": "static int runs; if (!runs++) fill(out, 3.0f);",
        "wrong numbers": "static int runs; fill(out, runs++ ? 4.0f : 3.0f);",
        "wrote out of bounds": "static int runs; fill(out, 3.0f); if (runs++) values(out)[-1] = 1;",
    }
    device.begin(constant=honest)
    assert device.outcome(honest, "constant").ok
    for cause_class, body in tricks.items():
        outcome = device.outcome(Built("trick", compile_kernel(body), operands), "constant")
        assert (outcome.status, outcome.cause_class) == (Status.WRONG_RESULT, cause_class)
        assert outcome.cause.endswith("(right at first)")
        assert device.outcome(honest, "constant").ok


@pytest.mark.parametrize(
    ("poison", "code"),
    [
        (Poison.SEGFAULT, -signal.SIGSEGV),
        (Poison.ABORT, -signal.SIGABRT),
        (Poison.EXIT, 0),
        (Poison.LOST_HEAP, -signal.SIGSEGV),
        (Poison.OUT_OF_MEMORY, -signal.SIGABRT),
    ],
)
def test_candidates_that_kill_the_process_kill_no_other(
    poison: Poison, code: int, start_device: Callable[..., Device], healthy: Built
) -> None:
    limits = ResourceLimits(address_space_mb=8192).to_environment()
    device = start_device(**limits)
    assert device.worker.ask(profile("dense", poisoned(poison, healthy.operands))) is None
    assert device.worker.process.wait() == code
    if poison is Poison.SEGFAULT:
        start_device(**limits).assert_healthy()


def test_a_process_whose_reference_has_changed_ends_itself(start_device: Callable[..., Device]) -> None:
    """Stands for a heap that a candidate corrupted: what was right before is not any more."""
    from kintune.measure.run import CORRUPTED

    device = start_device()
    operands = (KernelArgument((32,), "float32", "output"),)
    environment = 'const char *lost = getenv("KINTUNE_TEST_LOST"); fill(out, lost ? 4.0f : 3.0f);'
    device.begin(fragile=Built("reference", compile_kernel(environment), operands))
    corrupting = Built("bad", compile_kernel('setenv("KINTUNE_TEST_LOST", "1", 1); fill(out, 9.0f);'), operands)
    assert device.worker.ask(profile("fragile", corrupting)) is None
    assert device.worker.process.wait() == CORRUPTED


def test_without_a_reference_the_output_must_at_least_be_there(device: Device, healthy: Built) -> None:
    assert device.outcome(healthy, "unknown").ok
    assert device.outcome(poisoned(Poison.NOTHING, healthy.operands), "unknown").cause_class == "not finite"
    broken = Built("reference", failure=Outcome(Status.BUILD_FAILED, cause="a reason"))
    device.begin(broken=broken)
    outcome = device.outcome(healthy, "broken")
    assert (outcome.status, outcome.cause) == (Status.RUN_FAILED, "no reference: a reason")


def test_it_says_what_it_is_and_measures_its_peak(start_worker: Callable[..., Any], native: str) -> None:
    worker = start_worker(MODULE, "--target", "native", "--threads", "1")
    about = msgspec.msgpack.decode(worker.hello.about, type=DeviceDescription)
    assert about.device_type.target == native
    assert about.device_type.threads == about.protocol.threads == len(about.cores) == 1
    assert about.machine.physical_cores >= 1
    worker.begin("peak", b"")
    peak = msgspec.msgpack.decode(worker.done(b""), type=Peak)
    assert peak.threads == 1
    assert peak.gflops > 0
    assert peak.gbytes_per_s > 0
    assert peak.read_gbytes_per_s > 0
    worker.begin("profile", msgspec.msgpack.encode(ProfileContext(MeasurementProtocol(threads=7), {})))
    answer = worker.ask(b"")
    assert isinstance(answer, ItemFailed)
    assert "7 threads" in answer.cause
    assert worker.close() == 0


@pytest.mark.parametrize(
    ("target", "threads", "said"),
    [
        ("quantum", 0, "unknown target 'quantum'"),
        ("native", 4096, "threads=4096"),
        ('{"kind": "llvm", "mtriple": "riscv64-linux-gnu"}', 0, "cannot run its programs, it lacks riscv64"),
    ],
)
def test_a_device_that_is_not_there_is_refused(
    target: str, threads: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    with pytest.raises(TargetError, match=said) as caught:
        open_device(target, threads)
    assert "\n" not in str(caught.value)


def test_the_front_is_told_of_a_refusal(start_worker: Callable[..., Any]) -> None:
    worker = start_worker(MODULE, "--target", "quantum")
    assert isinstance(worker.first, ItemFailed)
    assert worker.first.refused
    assert "unknown target 'quantum'" in worker.first.cause
    assert worker.process.wait() == 0


def test_whoever_hangs_at_real_time_priority_can_be_ended(start_worker: Callable[..., Any], healthy: Built) -> None:
    worker = start_worker(MODULE, "--threads", "1", "--urgent")
    device = Device(worker, healthy)
    device.assert_healthy()
    worker.send(profile("dense", poisoned(Poison.HANG, healthy.operands)))
    with pytest.raises(subprocess.TimeoutExpired):
        worker.process.wait(1)
    worker.process.kill()
    assert worker.process.wait(10) == -signal.SIGKILL
