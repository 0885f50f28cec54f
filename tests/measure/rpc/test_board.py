"""Candidates on a board behind a stock RPC server of this machine."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from kintune.core.device import DeviceDescription, Peak
from kintune.core.measurement_protocol import MeasurementProtocol
from kintune.core.messages import ItemFailed
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import Built, ProfileContext, ProfileItem
from kintune.errors import DeviceError, TargetError
from kintune.measure.rpc.address import RpcAddress, parse_address
from kintune.workers.device_worker import open_board
from tests.support.poison import Poison, poisoned
from tests.support.stock_rpc import stock_rpc

pytestmark = pytest.mark.tvm

MODULE = "kintune.workers.device_worker"
PROTOCOL = MeasurementProtocol(threads=1, repeats=3, max_seconds=0.05)


@pytest.fixture(scope="module")
def start_device(start_worker: Callable[..., Any], board: str, native: str) -> Callable[..., Any]:
    def start(*arguments: str) -> Any:
        return start_worker(MODULE, "--rpc", board, "--target", native, "--threads", "1", *arguments)

    return start


def begin(worker: Any, healthy: Built) -> Callable[[Built], Outcome]:
    """Enter a stage; what is returned times one candidate in it."""
    worker.begin("profile", msgspec.msgpack.encode(ProfileContext(PROTOCOL, {"dense": healthy})))

    def outcome(built: Built) -> Outcome:
        return msgspec.msgpack.decode(worker.done(msgspec.msgpack.encode(ProfileItem("dense", built))), type=Outcome)

    return outcome


def test_candidates_that_a_board_survives_are_classed(start_device: Callable[..., Any], healthy: Built) -> None:
    worker = start_device()
    outcome = begin(worker, healthy)
    for poison, status, cause_class in (
        (Poison.NAN, Status.WRONG_RESULT, "not finite"),
        (Poison.NOTHING, Status.WRONG_RESULT, "not finite"),
        (Poison.WRONG_NUMBERS, Status.WRONG_RESULT, "wrong numbers"),
        (Poison.OUT_OF_BOUNDS, Status.WRONG_RESULT, "wrote out of bounds"),
        (Poison.SPOILED_INPUT, Status.WRONG_RESULT, "wrote to an input"),
    ):
        found = outcome(poisoned(poison, healthy.operands))
        assert (found.status, found.cause_class) == (status, cause_class), poison
        again = outcome(healthy)
        assert again.status is Status.OK, again.cause
        assert len(again.times_us) == PROTOCOL.repeats
    assert outcome(poisoned(Poison.ERROR, healthy.operands)).status is Status.RUN_FAILED
    assert outcome(Built("text", b"not a library", healthy.operands)).status is Status.RUN_FAILED
    assert outcome(healthy).ok
    assert worker.close() == 0


def test_a_worker_whose_session_a_candidate_has_killed_ends_itself(
    start_stock: Callable[..., int], start_worker: Callable[..., Any], native: str, healthy: Built
) -> None:
    from kintune.measure.run import CORRUPTED

    address = f"127.0.0.1:{start_stock('rpc_server')}"
    worker = start_worker(MODULE, "--rpc", address, "--target", native, "--threads", "1")
    assert begin(worker, healthy)(healthy).ok
    item = ProfileItem("dense", poisoned(Poison.SEGFAULT, healthy.operands))
    assert worker.ask(msgspec.msgpack.encode(item)) is None
    assert worker.process.wait() == CORRUPTED


def test_it_says_what_its_target_says_and_measures_its_peak(start_device: Callable[..., Any], native: str) -> None:
    worker = start_device("--pulse")
    about = msgspec.msgpack.decode(worker.hello.about, type=DeviceDescription)
    assert about.device_type.target == native
    assert about.device_type.model == about.machine.cpu == json.loads(native)["mcpu"]
    assert about.device_type.protocol == "2-cold-all-but-first"  # no time of it is one of a worker of ours
    assert 1 < about.pulse_us < 1e6
    worker.begin("peak", b"")
    peak = msgspec.msgpack.decode(worker.done(b""), type=Peak)
    assert peak.gflops > 1
    assert peak.read_gbytes_per_s > 0
    assert worker.close() == 0


def test_a_board_that_is_not_what_it_was_times_nothing(start_device: Callable[..., Any], healthy: Built) -> None:
    worker = start_device("--pulse-us", "0.001")
    worker.begin("profile", msgspec.msgpack.encode(ProfileContext(PROTOCOL, {"dense": healthy})))
    answer = worker.ask(msgspec.msgpack.encode(ProfileItem("dense", healthy)))
    assert isinstance(answer, ItemFailed)
    assert answer.unwell
    assert worker.close() == 0


def test_a_worker_whose_server_goes_says_that_its_device_is_unwell(
    start_worker: Callable[..., Any], native: str, healthy: Built
) -> None:
    with stock_rpc("rpc_server") as port:
        worker = start_worker(MODULE, "--rpc", f"127.0.0.1:{port}", "--target", native, "--threads", "1")
        assert begin(worker, healthy)(healthy).ok
    for _ in range(2):
        worker.begin("profile", msgspec.msgpack.encode(ProfileContext(PROTOCOL, {"dense": healthy})))
        answer = worker.ask(msgspec.msgpack.encode(ProfileItem("dense", healthy)))
        assert isinstance(answer, ItemFailed)
        assert answer.unwell
    assert "cannot be used" in answer.cause
    assert worker.close() == 0


def test_a_session_ends_before_the_server_ends_it(board: str, native: str, healthy: Built) -> None:
    from kintune.measure.rpc.board import RpcBoard
    from kintune.measure.rpc.session import SESSION_S

    now = [0.0]
    device = RpcBoard(parse_address(board), native, 1, lambda: now[0])
    kept = []
    for now[0] in (0.0, 0.4 * SESSION_S, 0.6 * SESSION_S):
        device.check()
        device.begin(ProfileContext(PROTOCOL, {"dense": healthy}))
        assert device.profile(ProfileItem("dense", healthy)).ok
        kept.append(device._runner)
    assert kept[0] is kept[1] is not kept[2]
    device.release()


def test_a_server_is_left_to_whoever_comes_next(board: str, native: str) -> None:
    from kintune.measure.rpc.board import RpcBoard

    first, second = RpcBoard(parse_address(board), native, 1), RpcBoard(parse_address(board), native, 1)
    for _ in range(2):
        for each in (first, second):
            assert each.reference_us() > 1
            each.release()


def test_a_network_of_ours_runs_on_a_board(board: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.core.stage_results import BOARD_FILE
    from kintune.runtime.inputs import draw_inputs
    from kintune.validate.board_executable import BoardExecutable
    from tests.support.tiny_network import make_tiny_network

    monkeypatch.setenv("TVM_NUM_THREADS", "1")
    made = make_tiny_network(tmp_path)
    here = made.executable
    here.save(tmp_path / "tiny.kt")
    made.vm_executable.save(tmp_path / f"tiny.kt{BOARD_FILE}")
    there = BoardExecutable(board)
    there.prepare(str(tmp_path / "tiny.kt"), 1, draw_inputs(here.inputs, 3))
    for seed in (3, 4):
        inputs = draw_inputs(here.inputs, seed)
        there.feed(inputs)
        seconds, outputs = there.run_timed()
        assert 0 < seconds < 10
        for output, expected in zip(outputs, here.run(inputs).values(), strict=True):
            np.testing.assert_array_equal(output, expected)


def test_a_tracker_is_a_source_of_boards(start_stock: Callable[..., int], native: str) -> None:
    from kintune.measure.rpc.board import RpcBoard

    tracker = f"127.0.0.1:{start_stock('rpc_tracker')}"
    start_stock("rpc_server", "--tracker", tracker, "--key", "pi4", "--custom-addr", "127.0.0.1")
    board = RpcBoard(parse_address(f"{tracker}/pi4"), native, 1)
    assert board.reference_us() > 1
    board.release()


def test_a_server_that_a_tracker_has_elsewhere_is_not_talked_to(start_stock: Callable[..., int]) -> None:
    from kintune.measure.rpc.session import RpcSession

    tracker = f"127.0.0.1:{start_stock('rpc_tracker')}"
    start_stock("rpc_server", "--tracker", tracker, "--key", "far", "--custom-addr", "192.0.2.7")
    with pytest.raises(TargetError, match=r"the server 192\.0\.2\.7 of tracker .* is not on this machine's loopback"):
        RpcSession(parse_address(f"{tracker}/far"), 1)


def test_who_is_not_there_is_refused_in_one_line(start_worker: Callable[..., Any], native: str) -> None:
    worker = start_worker(MODULE, "--rpc", "127.0.0.1:9", "--target", native, "--threads", "1")
    assert isinstance(worker.first, ItemFailed)
    assert worker.first.refused
    assert "the RPC server at 127.0.0.1:9 cannot be used: " in worker.first.cause


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.measure.rpc.session import RpcSession

    monkeypatch.setattr("kintune.measure.rpc.session._PATIENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        with pytest.raises(DeviceError, match=f"the RPC server at 127.0.0.1:{port} cannot be used: timed out"):
            RpcSession(RpcAddress("127.0.0.1", port), 1)
        with pytest.raises(DeviceError, match=f"the RPC server at 127.0.0.1:{port}/a-key cannot be used: timed out"):
            RpcSession(RpcAddress("127.0.0.1", port, "a-key"), 1)
    with pytest.raises(DeviceError, match=f"the RPC server at 127.0.0.1:{port} cannot be used: .*refused"):
        RpcSession(RpcAddress("127.0.0.1", port), 1)


def test_a_server_of_something_else(start_stock: Callable[..., int]) -> None:
    from kintune.measure.rpc.session import RpcSession

    with pytest.raises(DeviceError, match="the peer is not an RPC server"):
        RpcSession(RpcAddress("127.0.0.1", start_stock("rpc_tracker")), 1)


@pytest.mark.parametrize(("target", "threads"), [("native", 1), ("llvm", 0), ("cuda -arch=sm_90", 1)])
def test_a_board_cannot_be_asked_what_it_is(target: str, threads: int) -> None:
    with pytest.raises(TargetError, match="name the board's CPU as --target, and how many --threads it has"):
        open_board("127.0.0.1:9090", target, threads)
