import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kintune.errors import DeviceError, OrderError
from kintune.hardware.locks import (
    LOCK_DIRECTORY_VARIABLE,
    DeviceLock,
    cores_lock,
    default_lock_directory,
    holder_of,
)

HOLDER = """
import sys
from pathlib import Path
from kintune.hardware.locks import cores_lock
with cores_lock([int(core) for core in sys.argv[2].split(",")], directory=Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def another_process(directory: Path, cores: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory), cores], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdin is not None
    with process.stdin, process.stdout:
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()
            process.wait()


def test_a_free_lock_is_taken_and_given_back(tmp_path: Path) -> None:
    lock = DeviceLock("gpu/0", tmp_path)
    for _ in range(2):
        lock.acquire()
        assert lock.held
        lock.release()
        assert not lock.held
    lock.release()


def test_who_holds_a_core_is_told_without_waiting(tmp_path: Path) -> None:
    assert holder_of([0, 1], tmp_path) is None
    with another_process(tmp_path, "1") as holder:
        assert (holder_of([0, 1], tmp_path) or "").startswith(f"{holder.pid} ")
        assert holder_of([0], tmp_path) is None
    assert holder_of([0, 1], tmp_path) is None


def test_the_second_waits_and_says_for_whom(tmp_path: Path) -> None:
    with another_process(tmp_path, "0,1") as holder:
        waited_for: list[str] = []

        def let_go(text: str) -> None:
            waited_for.append(text)
            assert holder.stdin is not None
            holder.stdin.write("\n")
            holder.stdin.flush()

        with cores_lock([1, 2], let_go, tmp_path):
            pass
        assert waited_for == [f"{holder.pid} -c {tmp_path} 0,1"]


def test_a_killed_holder_leaves_nothing_behind(tmp_path: Path) -> None:
    with another_process(tmp_path, "0") as holder:
        with cores_lock([0], lambda _: holder.send_signal(signal.SIGKILL), tmp_path):
            pass
        assert holder.wait() == -signal.SIGKILL


def test_ctrl_c_ends_the_wait(tmp_path: Path) -> None:
    lock = DeviceLock("core-0", tmp_path)
    with another_process(tmp_path, "0"):
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                lock.acquire(lambda _: signal.setitimer(signal.ITIMER_REAL, 0.05) and None)
        finally:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        assert not lock.held


def test_a_process_does_not_wait_for_itself(tmp_path: Path) -> None:
    with cores_lock([0], directory=tmp_path):
        with pytest.raises(OrderError, match="holds the lock on 'core-0' already"):
            DeviceLock("core-0", tmp_path).acquire()
        lock = DeviceLock("core-1", tmp_path)
        with lock.holding(), pytest.raises(OrderError, match="release it first"):
            lock.acquire()


def test_a_holder_of_the_same_process_id_in_another_container_is_waited_for(tmp_path: Path) -> None:
    with another_process(tmp_path, "0") as holder:
        (tmp_path / "core-0.lock").write_text(f"{os.getpid()} kintune tune")
        with cores_lock([0], lambda _: holder.send_signal(signal.SIGKILL), tmp_path):
            pass


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_on_the_new_one(tmp_path: Path) -> None:
    path, told = tmp_path / "core-0.lock", []
    with another_process(tmp_path, "0") as holder:

        def clean_up(text: str) -> None:
            told.append(text)
            path.unlink()
            holder.send_signal(signal.SIGKILL)

        lock = DeviceLock("core-0", tmp_path)
        with lock.holding(clean_up):
            assert len(told) == 1
            assert path.read_text().startswith(f"{os.getpid()} ")
            with pytest.raises(OrderError):
                DeviceLock("core-0", tmp_path).acquire()


def test_a_lock_may_be_taken_only_if_it_is_free(tmp_path: Path) -> None:
    lock = DeviceLock("core-0", tmp_path)
    with another_process(tmp_path, "0"):
        assert not lock.try_acquire()
        assert not lock.held
    assert lock.try_acquire()
    lock.release(remove=True)
    assert not list(tmp_path.iterdir())


def test_a_failure_half_way_gives_back_what_was_taken(tmp_path: Path) -> None:
    with DeviceLock("core-1", tmp_path).holding(), pytest.raises(OrderError), cores_lock([0, 1], directory=tmp_path):
        pass
    with cores_lock([0, 1], directory=tmp_path):
        pass


def test_a_lock_that_cannot_be_made_names_the_place_and_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DeviceError, match=rf"file.*{LOCK_DIRECTORY_VARIABLE}"):
        DeviceLock("gpu0", tmp_path / "file").acquire()


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "gpu0.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DeviceError):
        DeviceLock("gpu0", tmp_path).acquire()
    assert not (tmp_path / "elsewhere").exists()


def test_the_directory_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(LOCK_DIRECTORY_VARIABLE, str(tmp_path))
    assert default_lock_directory() == tmp_path
    monkeypatch.delenv(LOCK_DIRECTORY_VARIABLE)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/of-this-session")
    assert default_lock_directory().name == f"kintune-locks-{os.getuid()}"
    assert "of-this-session" not in str(default_lock_directory())
