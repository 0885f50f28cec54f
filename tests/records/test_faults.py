"""What happens to processes that write records is done to real ones here: killed, out of space, and two at a time."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import IO, Any

import pytest

from kintune.errors import RecordsError, StorageFull
from kintune.records import Store
from kintune.records.database import Database
from kintune.records.location import database_system_at
from kintune.testing.records import add_workload, event, measurement

WRITER = str(Path(__file__).with_name("writer.py"))


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, WRITER, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def kill_after(said: IO[str], pid: int, patience: int) -> list[int]:
    """Kill the process once it has acknowledged `patience` events; all events it acknowledged until it was dead."""
    acknowledged: list[int] = []
    if patience == 0:
        os.kill(pid, signal.SIGKILL)
    for line in iter(said.readline, "dead\n"):
        acknowledged.append(int(line.removeprefix("ack ")))
        if len(acknowledged) == patience:
            os.kill(pid, signal.SIGKILL)
    return acknowledged


def test_what_was_acknowledged_survives_kill_9_exactly_once(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    draw = random.Random(0)
    Store.open(path).close()
    acknowledged: list[int] = []
    with start(path, "kill") as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for _ in range(20):
            print("go", file=writer.stdin, flush=True)
            pid = int(writer.stdout.readline().removeprefix("pid "))
            acknowledged += kill_after(writer.stdout, pid, draw.randrange(6))
            with Store.open(path, create=False) as store:
                assert store.notice is None
                seqs = [each.seq for each in store.events.history("run")]
                assert seqs[: len(acknowledged)] == acknowledged
                assert len(seqs) - len(acknowledged) <= 1  # committed, and killed before it could be said
                assert len(store.measurements.find()) == len(seqs)
                assert store.check() == []
                acknowledged = seqs
        writer.stdin.close()
    assert len(acknowledged) > 20


def test_a_full_disk_at_any_write_pauses_and_nothing_more(tmp_path: Path) -> None:
    limits = [*range(0, 1 << 17, 4096 * 2 + 1000), *range(1 << 17, 1 << 19, 4096 * 5 + 24)]
    with start(tmp_path / "records.sqlite", "full", ",".join(map(str, limits))) as writer:
        said, _ = writer.communicate()
    assert writer.returncode == 0
    failed = said.split()
    assert len(failed) == len(limits)
    assert set(failed) >= {"open", "0", "1", "2", "3", "4", "5", "never"}


def test_no_more_pages_is_a_full_disk_and_can_be_gone_on_from(tmp_path: Path) -> None:
    with Store.open(tmp_path / "records.sqlite") as store:
        workload = add_workload(store)
        store.runs.create("run", key="key", model_name="model")
        for seq in range(6):
            payload = random.Random(seq).randbytes(9000)
            for room in count():
                allow(store, pages=room)
                try:
                    with store.transaction():
                        store.events.append("run", event(seq, payload))
                        store.measurements.add(measurement(workload, seq, 1.0, run_id="run"))
                    break
                except StorageFull:
                    assert store.events.count("run") == len(store.measurements.find()) == seq
            assert room > 1
        assert store.check() == []


def allow(store: Store, *, pages: int) -> None:
    """Let the file grow by so many pages and no further."""
    with store.snapshot() as connection:
        now = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count={now + pages}")


def test_two_writers_side_by_side_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with start(path, "add", "one", 40) as one, start(path, "add", "two", 40) as two:
        assert (one.wait(), two.wait()) == (0, 0)
    with Store.open(path) as store:
        assert [store.events.count(run) for run in ("one", "two")] == [40, 40]
        assert len(store.measurements.find()) == 40  # the same candidates: measured once
        assert store.check() == []
        assert store.notice is None


def test_writers_that_begin_new_records_together_agree(tmp_path: Path) -> None:
    path = tmp_path / "new" / "records.sqlite"
    writers = [start(path, "add", f"run-{number}", 1) for number in range(3)]
    for writer in writers:
        with writer:
            assert writer.wait() == 0
    with Store.open(path) as store:
        assert len(store.runs.list()) == 3


def test_a_connection_that_is_gone_is_found_out_before_it_is_used(tmp_path: Path) -> None:
    gone: Any = sqlite3.connect(":memory:")
    gone.close()
    with closing(
        Database(database_system_at(str(tmp_path / "records.sqlite"), 1.0), create=True, verify=True)
    ) as database:
        assert database.engine.dialect._do_ping_w_event(gone) is False  # and no error: it is replaced


def test_closing_gives_all_files_back(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        Store.open(path).close()
    (tmp_path / "other").mkdir()
    with pytest.raises(RecordsError):
        Store.open(tmp_path / "other")
    assert len(os.listdir("/proc/self/fd")) == before
