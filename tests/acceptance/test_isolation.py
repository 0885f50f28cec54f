"""Machine code that means harm, run where candidates run: it stays inside, is named, and nobody else notices."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from kintune.core.measurement_protocol import MeasurementProtocol
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import Built, KernelArgument, ProfileContext, ProfileItem
from kintune.wire.child import ResourceLimits
from kintune.wire.confinement import HIDE_VARIABLE, Confinement, layers
from kintune.wire.worker_client import WorkerDied, WorkerProcess
from tests.support.attacks import ATTACKS, Attack, End, Targets, attacking
from tests.support.poison import compile_kernel

pytestmark = [pytest.mark.tvm, pytest.mark.needs("isolation")]

_PROTOCOL = MeasurementProtocol(threads=1, repeats=3, max_seconds=0.05)
_OPERANDS = (KernelArgument((32,), "float32", "output"),)
_MEMORY_MB = 6 * 1024


class _Device:
    """A confined device worker, started anew when an attack has ended it."""

    def __init__(self, confinement: Confinement, honest: Built, log: Path) -> None:
        self._confinement, self._honest, self._log = confinement, honest, log
        self._worker: WorkerProcess | None = None

    def outcome(self, built: Built) -> Outcome:
        """The outcome of a candidate; raises `WorkerDied` when the process is gone."""
        if self._worker is None:
            environment = {"TVM_NUM_THREADS": "1", "KINTUNE_TOKEN": "secret"}
            limits = ResourceLimits(address_space_mb=_MEMORY_MB).to_environment()
            self._worker = WorkerProcess(
                "", "kintune.workers.device_worker", ("--threads", "1"), log=self._log,
                environment={**environment, **limits}, confinement=self._confinement,
            )  # fmt: skip
            self._worker.greet()
            context = ProfileContext(_PROTOCOL, {"constant": self._honest})
            self._worker.begin("profile", msgspec.msgpack.encode(context))
        item = msgspec.msgpack.encode(ProfileItem("constant", built))
        try:
            return msgspec.msgpack.decode(self._worker.order(item, 60.0), type=Outcome)
        except WorkerDied:
            self.close()
            raise

    def said(self, built: Built) -> str:
        """What is said of a candidate that does not run well: the cause of its failure, or how the process ended."""
        try:
            outcome = self.outcome(built)
        except WorkerDied as died:
            return str(died)
        assert outcome.status is Status.RUN_FAILED
        return outcome.cause

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None


@pytest.fixture(scope="module")
def honest() -> Built:
    return Built("honest", compile_kernel("fill(out, 3.0f);"), _OPERANDS)


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Targets]:
    """Files that belong to others, and a server that listens."""
    folder = tmp_path_factory.mktemp("others")
    names = {name: folder / name for name in ("other_job", "store", "records", "model")}
    for path in names.values():
        path.write_text("secret")
    shared = Path("/dev/shm", f"kintune-test-{os.getpid()}")
    shared.write_text("secret")
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        speaker = stack.enter_context(socket.socket(socket.AF_UNIX))
        speaker.bind(str(folder / "socket"))
        speaker.listen()
        stack.callback(shared.unlink)
        yield Targets(**names, shared=shared, socket=folder / "socket", port=server.getsockname()[1])
    assert all(path.read_text() == "secret" for path in names.values())
    assert {path.name for path in folder.iterdir()} == {"socket", *names}


@pytest.fixture(scope="module", params=["all layers", pytest.param("without namespaces", marks=pytest.mark.slow)])
def device(
    request: pytest.FixtureRequest, targets: Targets, honest: Built, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[_Device]:
    """A confined device worker that sees the model; in a container that forbids namespaces, Landlock must suffice."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "all layers":
            patch.setenv(HIDE_VARIABLE, "namespaces")
        layers.cache_clear()
        confinement = Confinement(read=(str(targets.model),), processes=200, file_mb=64, temporary_mb=256)
        device = _Device(confinement, honest, tmp_path_factory.mktemp("log") / "log")
        yield device
        device.close()
    layers.cache_clear()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name.replace(" ", "-"))
def test_attacks_stay_inside_and_are_named(device: _Device, targets: Targets, honest: Built, attack: Attack) -> None:
    on = [layer.name for layer in layers() if layer.is_on]
    if attack.needs and attack.needs not in on:
        pytest.skip(f"only {attack.needs} stop this, which are not on here")
    built = Built(attack.name, attacking(attack, targets), _OPERANDS)
    said = device.said(built)
    match attack.end:
        case End.REFUSED:
            assert "RuntimeError: refused: " in said
        case End.KILLED:
            assert "killed by SIGSYS: it made a system call" in said
    assert device.outcome(honest).ok


@pytest.mark.parametrize("hidden", ["", "namespaces"])
def test_a_model_with_weights_beside_it_is_compiled_in_isolation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    import kintune as kt

    monkeypatch.setenv(HIDE_VARIABLE, hidden)
    weight = numpy_helper.from_array(np.eye(32, dtype=np.float32) * 2, "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", 1, [4, 32])], [helper.make_tensor_value_info("y", 1, [4, 32])], [weight],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "net.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    output, records = tmp_path / "net.kt", tmp_path / "records"
    command = [sys.executable, "-m", "kintune", "compile", tmp_path / "net.onnx", "--isolate", "--threads", "1"]
    subprocess.run([*command, "--records", records, "--output", output, "--log", tmp_path / "log"], check=True)
    x = np.ones((4, 32), np.float32)
    np.testing.assert_allclose(kt.open(output).run({"x": x})["y"], 2 * x)
    assert output.stat().st_uid == os.geteuid()
    assert not (tmp_path / ".net.kt.isolated").exists()
