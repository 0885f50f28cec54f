from __future__ import annotations

from kintune.hardware.locks import default_lock_directory
from kintune.tuning.front.run_lock import RunLock


def files() -> list[str]:
    return sorted(path.name for path in default_lock_directory().glob("run-*"))


def test_one_process_has_one_lock_on_a_run() -> None:
    lock, other = RunLock.take("4711"), RunLock.take("4712")
    assert lock is not None
    assert RunLock.take("4711") is lock is not other
    assert files() == ["run-4711.lock", "run-4712.lock"]
    lock.release()
    lock.release()
    assert files() == ["run-4712.lock"]
    again = RunLock.take("4711")
    assert again is not lock
    lock.release()  # it holds nothing any more
    assert files() == ["run-4711.lock", "run-4712.lock"]
    del again, other
    assert files() == []
