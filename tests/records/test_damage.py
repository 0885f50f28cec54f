"""What happens to records is done to copies of a file here, at many places: cut short, or one bit turned over.

Whatever is read afterwards is what was written; what cannot be read any more is reported.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec
import pytest
from sqlalchemy import Connection, delete, text, update

from kintune.core.outcome import Outcome, Status
from kintune.errors import DamagedRecord, RecordsError, StorageError
from kintune.records import Damage, Store
from kintune.records.schema import blobs, device_types, events, measurements, runs
from kintune.records.sqlite import SQLiteFile
from kintune.testing.records import COMPILER, DEVICE, add_workload, event, measurement, subgraph

Row: TypeAlias = tuple[str, bytes]

NAME = "records.sqlite"
NAMES = ("conv", "dense", "softmax")
RUNS = ("first", "second")
TIME = "2026-01-31T12:00:00.000+00:00"


def fill(store: Store) -> None:
    """Runs with events, and measurements, some of them in one transaction, as a tuning leaves them."""
    workloads = [add_workload(store, name) for name in NAMES]
    for number, run in enumerate(RUNS):
        store.runs.create(run, key=run, model_name="resnet", spec=b"spec" * 50)
        for seq in range(12):
            index = 12 * number + seq
            with store.transaction():
                store.events.append(run, event(seq, random.Random(index).randbytes(300 * seq), index=index))
                measured = measurement(workloads[seq % 3], index, 5.0 + seq, 6.0 + seq, run_id=run)
                store.measurements.add(measured)
                if seq % 5 == 0:
                    store.measurements.confirm(DEVICE.digest, COMPILER, measured.candidate, Outcome(Status.OK, (7.0,)))


def contents(store: Store, reported: list[object]) -> set[Row]:
    """All that can be read; what is damaged goes to `reported`."""

    def rows(kind: str, read: Callable[[], Iterable[object]]) -> Iterator[Row]:
        try:
            found = read()
        except (RecordsError, StorageError) as error:
            reported.append(error)
            return
        for value in found:
            yield kind, msgspec.json.encode(value)

    found: set[Row] = set()
    found.update(rows("device", lambda: store.devices.list(reported.append)))
    found.update(rows("workload", lambda: store.workloads.list(reported.append)))
    found.update(rows("run", lambda: store.runs.list(reported.append)))
    found.update(rows("measurement", lambda: store.measurements.find(on_damage=reported.append)))
    for run in RUNS:
        found.update(rows("event", partial(store.events.history, run)))
    for workload in (subgraph(name).workload for name in NAMES):
        found.update(rows("sketch", partial(store.workloads.sketches, [workload])))
        found.update(rows("module", lambda workload=workload: [store.workloads.module(workload)]))
    return found


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of records that were closed: one file, and its mark."""
    folder = tmp_path_factory.mktemp("closed")
    with Store.open(folder / NAME, clock=lambda: TIME) as store:
        fill(store)
    return folder


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of records whose process ended without closing: most rows are in the log."""
    live, folder = tmp_path_factory.mktemp("live"), tmp_path_factory.mktemp("crashed")
    with Store.open(live / NAME, clock=lambda: TIME) as store:
        fill(store)
        for file in (NAME, f"{NAME}-wal", f"{NAME}-mark"):
            shutil.copy(live / file, folder / file)
    return folder


@pytest.fixture(scope="module")
def truth(closed: Path) -> set[Row]:
    reported: list[object] = []
    with Store.open(closed / NAME, create=False) as store:
        assert store.check() == []
        found = contents(store, reported)
    assert reported == []
    assert len(found) == 1 + 3 + 2 + 24 + 24 + 3 + 3
    return found


def judge(path: Path, truth: set[Row]) -> str:
    """Open what is left and compare it with the truth: "refused", "reported" or "whole"; all else fails."""
    try:
        store = Store.open(path, create=False)
    except (RecordsError, StorageError) as error:
        return "refused" if str(path) in str(error) else f"refused without a name: {error}"
    with store:
        reported: list[object] = [store.notice] if store.notice else []
        found = contents(store, reported)
        assert found <= truth
        if len(found) < len(truth):
            assert reported
        return "reported" if reported else "whole"


def damaged_copies(source: Path, target: Path, file: str, damage: str, count: int) -> Iterator[Path]:
    """Copies of the folder in which `file` was damaged, each at another place, the more often the nearer to its end."""
    size = (source / file).stat().st_size
    draw = random.Random(f"{file} {damage}")
    for _ in range(count):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        place = size - 1 - int(size * draw.random() ** 2)
        with (target / file).open("r+b") as handle:
            if damage == "cut":
                handle.truncate(place)
            else:
                handle.seek(place)
                byte = handle.read(1)[0]
                handle.seek(place)
                handle.write(bytes([byte ^ 1 << draw.randrange(8)]))
        yield target / NAME


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_damaged_file_is_refused_or_its_damage_reported(
    closed: Path, tmp_path: Path, truth: set[Row], damage: str
) -> None:
    copies = damaged_copies(closed, tmp_path / "copy", NAME, damage, 200)
    verdicts = {judge(path, truth) for path in copies}
    assert verdicts <= {"refused", "reported", "whole"}
    assert "refused" in verdicts
    if damage == "cut":
        assert verdicts == {"refused"}
    else:
        assert "reported" in verdicts


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_damaged_log_loses_nothing_silently(crashed: Path, tmp_path: Path, truth: set[Row], damage: str) -> None:
    copies = damaged_copies(crashed, tmp_path / "copy", f"{NAME}-wal", damage, 200)
    verdicts = {judge(path, truth) for path in copies}
    assert verdicts <= {"refused", "reported", "whole"}
    assert "reported" in verdicts


def test_what_is_written_while_one_opens_is_not_taken_for_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.sqlite"
    with Store.open(path) as writer:
        add_workload(writer, "first")
        count = SQLiteFile._count

        def count_late(self: SQLiteFile, connection: Connection) -> int:
            found = count(self, connection)
            monkeypatch.setattr(SQLiteFile, "_count", count)
            add_workload(writer, "meanwhile")
            return found

        monkeypatch.setattr(SQLiteFile, "_count", count_late)
        with Store.open(path) as reader:
            assert reader.notice is None
            assert len(reader.workloads.list()) == 2


def test_lost_transactions_are_said_once_and_then_replaced(crashed: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy" / NAME
    shutil.copytree(crashed, path.parent)
    path.with_name(f"{NAME}-wal").unlink()
    with pytest.raises(RecordsError, match=r"the last (\d+) of \1 transactions are gone"):
        Store.open(path, create=False)
    with Store.open(path) as store:
        assert store.notice is not None
        fill(store)
        assert store.check() == []
    with Store.open(path) as store:
        assert store.notice is None


@pytest.mark.parametrize("whole", ["mark", "log and mark"])
def test_records_without_their_mark_are_as_good(
    closed: Path, crashed: Path, tmp_path: Path, truth: set[Row], whole: str
) -> None:
    path = tmp_path / "copy" / NAME
    shutil.copytree(closed if whole == "mark" else crashed, path.parent)
    path.with_name(f"{NAME}-mark").unlink()
    assert judge(path, truth) == "whole"


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(":memory:") as store:
        fill(store)
        yield store


def test_a_damaged_measurement_is_named_or_left_out(store: Store) -> None:
    with store.transaction() as connection:
        connection.execute(update(measurements).where(measurements.c.id == 7).values(features=b"changed"))
    with pytest.raises(DamagedRecord, match=r"measurements 7: .*`kintune records check`") as caught:
        store.measurements.find()
    assert (caught.value.table, caught.value.id) == ("measurements", "7")
    left_out: list[Damage] = []
    assert len(store.measurements.find(on_damage=left_out.append)) == 23
    assert left_out == store.check() == [Damage("measurements", "7", "its content does not match its checksum")]


def test_a_damaged_measurement_cannot_be_confirmed(store: Store) -> None:
    measured = store.measurements.find()[6]
    with store.transaction() as connection:
        connection.execute(update(measurements).where(measurements.c.id == measured.id).values(cause="changed"))
    with pytest.raises(DamagedRecord):
        store.measurements.confirm(DEVICE.digest, COMPILER, measured.candidate, Outcome(Status.OK, (1.0,)))


def test_the_best_is_the_next_one_when_the_best_is_damaged(store: Store) -> None:
    workload = subgraph("conv").workload
    best = store.measurements.best(workload, DEVICE.digest, COMPILER)
    assert best is not None
    with store.transaction() as connection:
        connection.execute(update(measurements).where(measurements.c.id == best.id).values(believed_us=0.1))
    left_out: list[Damage] = []
    next_best = store.measurements.best(workload, DEVICE.digest, COMPILER, on_damage=left_out.append)
    assert [damage.id for damage in left_out] == [str(best.id)]
    assert next_best is not None
    assert next_best.believed_us >= best.believed_us


def test_a_damaged_event_ends_the_history_with_its_name(store: Store) -> None:
    with store.transaction() as connection:
        connection.execute(update(events).where(events.c.run_id == "first", events.c.seq == 4).values(at=99.0))
    with pytest.raises(DamagedRecord, match="events first/4"):
        store.events.history("first")
    assert len(store.events.history("second")) == 12


def test_a_missing_event_is_missed(store: Store) -> None:
    with store.transaction() as connection:
        connection.execute(delete(events).where(events.c.run_id == "second", events.c.seq == 4))
    with pytest.raises(DamagedRecord, match="events second/4: it is missing"):
        store.events.history("second")
    assert store.check() == [Damage("events", "second/4", "it is missing")]


@pytest.mark.parametrize("column", ["bytes", "codec"])
def test_a_damaged_blob_is_named(store: Store, column: str) -> None:
    digest = store.blobs.put(b"data" * 1000)
    changed = {"bytes": b"other"} if column == "bytes" else {"codec": "raw"}
    with store.transaction() as connection:
        connection.execute(update(blobs).where(blobs.c.digest == digest).values(**changed))
    with pytest.raises(DamagedRecord, match=f"blobs {digest}"):
        store.blobs.get(digest)
    assert [damage.id for damage in store.check()] == [digest]


def test_a_damaged_run_is_never_gone_on_with(store: Store) -> None:
    with store.transaction() as connection:
        connection.execute(update(runs).where(runs.c.run_id == "first").values(spec=b"other"))
    for look in (lambda: store.runs.get("first"), lambda: store.runs.find_unfinished("first"), store.runs.list):
        with pytest.raises(DamagedRecord, match="runs first"):
            look()


def test_what_sqlite_says_of_the_damage_may_be_no_text(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    Store.open(path).close()
    path.write_bytes(path.read_bytes().replace(b"PRIMARY KEY", b"\xff" * 11, 1))
    for verify in (True, False):
        with pytest.raises(RecordsError, match="the database is damaged") as caught:
            Store.open(path, create=False, verify=verify)
        assert "\n" not in str(caught.value)


def test_text_that_is_no_text_any_more_is_damage_not_a_crash(store: Store) -> None:
    with store.transaction() as connection:
        connection.execute(text("UPDATE device_types SET json = CAST(x'ff80' AS TEXT)"))
    with pytest.raises(DamagedRecord, match="device_types"):
        store.devices.list()
    assert [damage.table for damage in store.check()] == [device_types.name]
