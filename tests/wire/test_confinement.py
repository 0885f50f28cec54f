"""The command of a confined process, on any machine; and real ones, where the layers are."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kintune.errors import OrderError
from kintune.wire import confinement
from kintune.wire.confinement import (
    CONFINEMENT_VARIABLE,
    HIDE_VARIABLE,
    ConfinedStart,
    Confinement,
    ConfinementLayer,
    InsideOrder,
    layers,
    require_isolation,
    start_of,
)
from kintune.wire.worker_client import WorkerDied, WorkerProcess, WorkerRefused

COMMAND = [sys.executable, "-m", "some.module", "--fd", "7"]
NAMES = ("namespaces", "own user", "Landlock", "system calls")


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The layers that this machine seems to have; tests change it."""
    names = set(NAMES)

    def found() -> tuple[ConfinementLayer, ...]:
        return tuple(ConfinementLayer(name, "", name in names, "not there", f"install {name}") for name in NAMES)

    monkeypatch.setattr(confinement, "layers", found)
    monkeypatch.setattr(confinement, "_bubblewrap_program", lambda: "/usr/bin/bwrap")
    monkeypatch.setattr(confinement, "_process_view", lambda: ("--unshare-pid", "--proc", "/proc"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return names


def order_of(start: ConfinedStart) -> InsideOrder:
    return msgspec.json.decode(start.environment[CONFINEMENT_VARIABLE], type=InsideOrder)


def pairs(argv: list[str], option: str) -> list[tuple[str, str]]:
    """The two arguments of each such option."""
    return [(argv[at + 1], argv[at + 2]) for at, each in enumerate(argv) if each == option]


def test_without_a_confinement_nothing_changes() -> None:
    start = start_of(None, COMMAND, {"KINTUNE_TOKEN": "secret"})
    assert (start.argv, start.environment) == (COMMAND, {"KINTUNE_TOKEN": "secret"})
    assert start.end_code(137) == 137


def test_a_confined_process_sees_its_files_and_the_systems(on: set[str], tmp_path: Path) -> None:
    model, work = str(tmp_path / "model.onnx"), str(tmp_path / "work")
    (tmp_path / "work").mkdir()
    start = start_of(Confinement(read=(model,), write=(work,)), COMMAND, dict(os.environ))
    outer, inner = start.argv[: start.argv.index("--")], start.argv[start.argv.index("--") + 1 :]
    assert outer[0] == "/usr/bin/bwrap"
    assert {"--unshare-net", "--unshare-pid", "--unshare-ipc", "--die-with-parent"} <= set(outer)
    assert pairs(outer, "--ro-bind-try") == [("/sys", "/sys"), (model, model)]
    assert pairs(outer, "--bind") == [(work, work)]
    bound = [source for source, _ in pairs(outer, "--ro-bind")]
    assert "/usr" in bound
    assert not {"/", "/etc", "/home", "/root", "/var", str(tmp_path)} & set(bound)
    assert inner == [sys.executable, "-m", "kintune.wire.confined", *COMMAND[2:]]


def test_a_process_that_may_use_the_network_keeps_it(on: set[str]) -> None:
    argv = start_of(Confinement(network=True), COMMAND, {}).argv
    assert "--unshare-net" not in argv
    assert "--unshare-pid" in argv


def test_a_confined_process_gets_no_secrets(on: set[str]) -> None:
    given = {"PATH": "/usr/bin", "OMP_NUM_THREADS": "2", "KINTUNE_TOKEN": "a", "KINTUNE_DATABASE": "b", "AWS_KEY": "c"}
    got = start_of(Confinement(), COMMAND, given).environment
    path = "/usr/bin:/usr/local/bin:/usr/bin:/bin"
    assert {name: got[name] for name in given if name in got} == {"PATH": path, "OMP_NUM_THREADS": "2"}
    assert got["TMPDIR"] == got["HOME"] == "/tmp"


@pytest.mark.parametrize("place", ["/usr/bin/env", "env", "elsewhere/cc", "elsewhere/link", "missing"])
def test_a_compiler_that_is_not_seen_inside_is_not_named(
    on: set[str], tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "cc").write_text("#!/bin/sh\n")
    (tmp_path / "elsewhere" / "cc").chmod(0o755)
    (tmp_path / "elsewhere" / "link").symlink_to("/usr/bin/env")
    named = str(tmp_path / place) if place.startswith("elsewhere") else place
    start = start_of(Confinement(), COMMAND, {"CC": named, "LANG": "C"})
    assert start.environment.get("CC") == (named if place.endswith("env") else None)
    assert start.environment["LANG"] == "C"


def test_as_root_each_process_is_a_user_of_its_own(on: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    users = {order_of(start_of(Confinement(), COMMAND, {})).user for _ in range(20)}
    assert len(users) == 20
    assert min(users) >= 1 << 30
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert order_of(start_of(Confinement(), COMMAND, {})).user == 0


def test_without_namespaces_a_process_gets_a_folder_of_its_own(on: set[str]) -> None:
    on.remove("namespaces")
    start = start_of(Confinement(), COMMAND, {})
    assert start.argv[:3] == [sys.executable, "-m", "kintune.wire.confined"]
    folder = Path(start.environment["TMPDIR"])
    assert folder.is_dir()
    assert order_of(start).devices == ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
    start.clean()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("missing", "line"),
    [
        ({"system calls"}, "system calls: not there, install system calls"),
        ({"namespaces", "Landlock"}, "Landlock: not there, install Landlock"),
        ({"namespaces"}, None),
        ({"Landlock", "own user"}, None),
    ],
)
def test_what_is_missing_is_named(on: set[str], missing: set[str], line: str | None) -> None:
    on -= missing
    if line is None:
        require_isolation()
    else:
        with pytest.raises(OrderError, match=line):
            start_of(Confinement(), COMMAND, {})


def test_signals_are_told_from_exit_codes(on: set[str]) -> None:
    start = start_of(Confinement(), COMMAND, {})
    assert [start.end_code(code) for code in (0, 1, 86, 128 + 9, 128 + 31, -9)] == [0, 1, 86, -9, -31, -9]
    on.remove("namespaces")
    bare = start_of(Confinement(), COMMAND, {})
    assert bare.end_code(137) == 137
    bare.clean()


def test_workers_only_read_what_their_job_writes() -> None:
    job = Confinement(read=("/a",), write=("/b",))
    assert (job.reading_only().read, job.reading_only().write) == (("/a", "/b"), ())


MODULE = """
import ctypes, os, pathlib, signal, socket, subprocess, sys
from kintune.wire import worker_loop as worker

class Handler:
    def begin(self, kind, context):
        self.kind = kind

    def item(self, payload):
        text = payload.decode()
        match self.kind:
            case "read":
                return pathlib.Path(text).read_bytes()
            case "write":
                return str(pathlib.Path(text).write_text("written")).encode()
            case "socket":
                return str(socket.socket()).encode()
            case "child":
                return subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, check=True).stdout
            case "who":
                return f"{os.getuid() == os.geteuid()} {os.environ.get('KINTUNE_TOKEN')}".encode()
            case "temporary":
                import tempfile
                with tempfile.NamedTemporaryFile() as file:
                    return str(file.write(b"some")).encode()
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "trace":
                ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)
        return b"nothing happened"

worker.main("small", lambda arguments: (b"about", Handler()))
"""


@pytest.fixture(params=["all layers", "without namespaces"])
def worker(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerProcess]:
    """A small confined worker that reads `mine` and writes into `work`."""
    if request.param != "all layers":
        monkeypatch.setenv(HIDE_VARIABLE, "namespaces")
    layers.cache_clear()
    modules, work = tmp_path / "modules", tmp_path / "work"
    for folder in (modules, work):
        folder.mkdir()
    (modules / "small_confined.py").write_text(MODULE)
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "others").write_text("others")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(modules), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.setenv("KINTUNE_TOKEN", "secret")
    allowed = Confinement(read=(str(tmp_path / "mine"),), write=(str(work),))
    with WorkerProcess("", "small_confined", log=tmp_path / "log", confinement=allowed) as process:
        process.greet()
        yield process
    layers.cache_clear()


@pytest.mark.needs("isolation")
def test_a_confined_worker_does_its_work_and_nothing_else(worker: WorkerProcess, tmp_path: Path) -> None:
    assert worker.ask("read", payload=bytes(tmp_path / "mine")) == b"mine"
    assert worker.ask("write", payload=bytes(tmp_path / "work" / "result")) == b"7"
    assert (tmp_path / "work" / "result").read_text() == "written"
    assert worker.ask("child") == b"42\n"
    assert worker.ask("temporary") == b"4"
    assert worker.ask("who") == b"True None"
    for kind, path in (
        ("read", "/etc/passwd"),
        ("read", tmp_path / "others"),
        ("read", f"/proc/{os.getpid()}/environ"),
        ("write", tmp_path / "mine"),
        ("write", f"/var/tmp/kintune-new-{os.getpid()}"),
        ("write", "/etc/new"),
        ("socket", ""),
    ):
        with pytest.raises(WorkerRefused):
            worker.ask(kind, payload=str(path).encode())
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.needs("isolation")
@pytest.mark.parametrize(
    ("kind", "how"), [("kill", "killed by SIGKILL"), ("trace", "killed by SIGSYS: it made a system")]
)
def test_the_end_of_a_confined_worker_is_told(worker: WorkerProcess, kind: str, how: str) -> None:
    with pytest.raises(WorkerDied, match=how):
        worker.ask(kind)
