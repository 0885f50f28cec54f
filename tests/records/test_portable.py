from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kintune.core.candidate import Axis, Candidate, Choice, Location, NamedChoice, Sketch, Tile, digest_of
from kintune.core.outcome import Outcome, Status
from kintune.errors import DamagedRecord, RecordsError, StorageError
from kintune.records import ImportSummary, Measurement, RunState, Store, export_records, import_records, portable
from kintune.records.portable import ImportChecks
from kintune.records.schema import measurements
from kintune.testing.records import COMPILER, DEVICE, add_workload, measurement
from tests.support.hostile import changed_document


@pytest.fixture
def store() -> Iterator[Store]:
    """Two workloads, a run, a failure, an untuned program, a confirmed time."""
    with Store.open(":memory:") as store:
        conv, dense = add_workload(store, "conv"), add_workload(store, "dense")
        store.runs.create("run", key="key", model_name="model")
        store.measurements.add(measurement(conv, 1, 3.0, 0.1 + 0.2, run_id="run"))
        store.measurements.add(measurement(conv, 2, status=Status.RUN_FAILED, cause="SIGSEGV é"))
        store.measurements.add(msgspec.structs.replace(measurement(dense, 0, 9.0), candidate=Candidate.untuned(dense)))
        store.measurements.confirm(DEVICE.digest, COMPILER, measurement(conv, 1).candidate, Outcome(Status.OK, (4.0,)))
        yield store


@pytest.fixture
def other() -> Iterator[Store]:
    with Store.open(":memory:") as other:
        yield other


def told(store: Store) -> list[object]:
    return [msgspec.structs.replace(each, id=0, run_id=None) for each in store.measurements.find()]


def test_what_was_exported_is_imported_elsewhere(store: Store, other: Store, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl.gz"
    assert export_records(store, path) == 3
    assert import_records(other, path) == ImportSummary(added=3, known=0)
    assert told(other) == told(store)
    assert other.workloads.list() == store.workloads.list()
    workloads = [workload.digest for workload in store.workloads.list()]
    assert other.workloads.sketches(workloads) == store.workloads.sketches(workloads)
    assert other.check() == []
    assert import_records(other, path) == ImportSummary(added=0, known=3)
    assert list(tmp_path.iterdir()) == [path]
    export_records(other, tmp_path / "again.gz")
    assert (tmp_path / "again.gz").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_measurements_are_added_many_at_once(
    store: Store, other: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(portable, "_AT_ONCE", at_once)
    path = tmp_path / "records.jsonl.gz"
    export_records(store, path)
    assert import_records(other, path) == ImportSummary(added=3, known=0)
    assert told(other) == told(store)


_values = st.floats(width=32, allow_nan=False, allow_infinity=False)

_times = st.lists(st.floats(min_value=1e-6, max_value=1e9), min_size=1, max_size=3).map(tuple)

_measured = st.tuples(
    st.integers(min_value=0, max_value=63),
    st.one_of(
        _times.map(lambda times: Outcome(Status.OK, times)),
        st.text().map(lambda c: Outcome(Status.RUN_FAILED, cause=c)),
    ),
    st.one_of(st.just(()), st.lists(_values, min_size=3, max_size=3)),
    st.one_of(st.none(), _values),
    st.one_of(st.none(), _times.map(lambda times: Outcome(Status.OK, times))),
)


@given(st.lists(_measured, max_size=6))
@settings(max_examples=30, deadline=None)
def test_everything_that_models_are_trained_on_travels(tmp_path_factory: pytest.TempPathFactory, found: list) -> None:
    """Features, times and scores to the last bit, and two exports of the same records are the same bytes."""
    first, second = (tmp_path_factory.mktemp("travel") / "records.jsonl.gz" for _ in range(2))
    with Store.open(":memory:") as here, Store.open(":memory:") as there:
        workload = add_workload(here)
        for index, outcome, features, predicted, confirmed in found:
            one = msgspec.structs.replace(
                measurement(workload, index),
                outcome=outcome,
                features=np.array(features, dtype="<f4").tobytes(),
                feature_version="1" if features else "",
                predicted=predicted,
                confirmed=confirmed,
            )
            here.measurements.add(one)
        export_records(here, first)
        import_records(there, first)
        assert told(there) == told(here)
        assert there.measurements.width("1") == here.measurements.width("1")
        export_records(there, second)
        assert second.read_bytes() == first.read_bytes()


@pytest.mark.parametrize(
    ("axis", "right", "wrong"),
    [
        (Tile(64, 2), [(8, 8), (64, 1)], [(-8, -8), (8, 4), (64,), (4, 4, 4), (0, 64), (64, 0)]),
        (Tile(64, 3), [(4, 4, 4)], [(-8, -8, 1), (8, -8, -1)]),
        (Choice((0, 16), (0.5, 0.5)), [(0,), (1,)], [(-1,), (2,), (), (0, 0)]),
        (Location(3), [(-2,), (-1,), (0,), (9,)], [(-3,), (), (0, 0)]),
    ],
)
def test_a_decision_answers_its_axis_or_not(
    axis: Axis, right: list[tuple[int, ...]], wrong: list[tuple[int, ...]]
) -> None:
    assert all(portable._answers(axis, decision) for decision in right)
    assert not any(portable._answers(axis, decision) for decision in wrong)


@pytest.mark.parametrize("decision", [(6, 4), (99, 99), (6,), (6, 4, 1)])
def test_named_values_need_not_be_listed_by_the_sketch(
    decision: tuple[int, ...], store: Store, other: Store, tmp_path: Path
) -> None:
    """Another version may offer others."""
    path, workload = tmp_path / "records.jsonl.gz", store.workloads.list()[0].digest
    sketch = Sketch(workload, digest_of(b"named"), b"trace", (NamedChoice(("rows", "vectors"), ((6, 4),)),))
    store.workloads.add_sketch(sketch)
    candidate = Candidate(workload, sketch.digest, (decision,))
    store.measurements.add(msgspec.structs.replace(measurement(workload, 1, 3.0), candidate=candidate))
    export_records(store, path)
    if len(decision) == 2:
        import_records(other, path)
        assert told(other) == told(store)
        assert sketch in other.workloads.sketches([workload])
    else:
        with pytest.raises(RecordsError, match="decision 0 does not answer its axis"):
            import_records(other, path)


def test_files_of_the_format_before_are_read(store: Store, other: Store, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl.gz"
    export_records(store, path)
    rewritten(path, put("kintune-records-v1", 0, "format"))
    assert import_records(other, path) == ImportSummary(added=3, known=0)


def test_measurements_of_earlier_programs_are_counted(store: Store, other: Store, tmp_path: Path) -> None:
    path, workload = tmp_path / "records.jsonl.gz", store.workloads.list()[0].digest
    trace = b'{"insts":[],"sampled":[],"program":"tiled.1:8x16"}'
    sketch = Sketch(workload, digest_of(trace), trace, (Choice((0, 1), (0.5, 0.5)),))
    store.workloads.add_sketch(sketch)
    candidate = Candidate(workload, sketch.digest, ((1,),))
    store.measurements.add(msgspec.structs.replace(measurement(workload, 1, 3.0), candidate=candidate))
    export_records(store, path)
    assert import_records(other, path) == ImportSummary(added=4, known=0, earlier=1)
    assert import_records(other, path) == ImportSummary(added=0, known=4, earlier=1)


def test_each_measurement_of_earlier_programs_counts(store: Store, other: Store, tmp_path: Path) -> None:
    path, workload = tmp_path / "records.jsonl.gz", store.workloads.list()[0].digest
    trace = b'{"insts":[],"sampled":[],"program":"tiled.1:8x16"}'
    sketch = Sketch(workload, digest_of(trace), trace, (Choice((0, 1), (0.5, 0.5)),))
    store.workloads.add_sketch(sketch)
    for number in (0, 1):
        candidate = Candidate(workload, sketch.digest, ((number,),))
        store.measurements.add(msgspec.structs.replace(measurement(workload, 1, 3.0), candidate=candidate))
    store.measurements.add(measurement(workload, 5, 3.0))
    export_records(store, path)
    assert import_records(other, path) == ImportSummary(added=6, known=0, earlier=2)
    assert not any(isinstance(each, portable._Header) for each in portable.exported_contents(path))


def test_a_file_says_nothing_of_where_its_measurements_lay(store: Store, other: Store, tmp_path: Path) -> None:
    workload = add_workload(other, "another")
    other.measurements.add(measurement(workload, 1, 3.0))
    first, again = (tmp_path / name for name in ("first.gz", "again.gz"))
    export_records(store, first)
    import_records(other, first)
    export_records(other, again, workloads={each.digest for each in store.workloads.list()})
    assert first.read_bytes() == again.read_bytes()


def test_a_run_that_a_file_names_is_not_one_of_these_records(store: Store, other: Store, tmp_path: Path) -> None:
    contents = [
        portable.MeasurementContent(msgspec.structs.replace(each.measurement, run_id="run", id=7))
        if isinstance(each, portable.MeasurementContent)
        else each
        for each in portable.contents_of(store)
    ]
    path = tmp_path / "records.jsonl.gz"
    with gzip.open(path, "wb") as file:
        portable._write(file, contents)  # type: ignore[arg-type]
    assert import_records(other, path).added == 3
    assert told(other) == told(store)
    assert {each.run_id for each in other.measurements.find()} == {None}


def test_an_export_to_nowhere_says_why(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "no folder" / "records.gz"
    with pytest.raises(StorageError) as raised:
        export_records(store, target)
    assert str(raised.value) == f"{target}: cannot be written (No such file or directory)"


def test_the_time_of_an_export_is_not_in_it(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / "one.gz", tmp_path / "other.gz"]
    for path, now in zip(paths, (1e6, 2e9), strict=True):
        monkeypatch.setattr("time.time", lambda now=now: now)
        export_records(store, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_run_or_some_workloads_are_exported_alone(store: Store, other: Store, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl.gz"
    assert export_records(store, path, run_id="run") == 1
    assert import_records(other, path).added == 1
    (dense,) = (workload.digest for workload in store.workloads.list() if workload.name == "dense")
    assert export_records(store, path, workloads=[dense]) == 1
    assert import_records(other, path).added == 1
    assert export_records(store, path, workloads=[]) == 0
    assert import_records(other, path) == ImportSummary(0, 0)


def test_failures_of_a_run_that_failed_as_a_whole_stay(store: Store, other: Store, tmp_path: Path) -> None:
    """They say nothing of their candidates, and elsewhere nobody would know."""
    workload = add_workload(store, "conv")
    store.runs.create("broken", key="broken", model_name="model")
    store.runs.update("broken", state=RunState.FAILED)
    store.measurements.add(measurement(workload, 7, status=Status.BUILD_FAILED, cause="no linker", run_id="broken"))
    store.measurements.add(measurement(workload, 8, 2.0, run_id="broken"))
    path = tmp_path / "records.jsonl.gz"
    assert export_records(store, path) == 4
    import_records(other, path)
    assert {m.candidate.decisions for m in told(other)} == {
        m.candidate.decisions for m in told(store) if m.outcome.cause != "no linker"
    }


def test_what_is_known_here_stays(store: Store, other: Store, tmp_path: Path) -> None:
    export_records(store, tmp_path / "records.jsonl.gz")
    own = measurement(add_workload(other, "conv"), 1, 100.0)
    other.measurements.add(own)
    assert import_records(other, tmp_path / "records.jsonl.gz") == ImportSummary(added=2, known=1)
    assert other.measurements.find()[0].outcome == own.outcome


def test_damage_is_not_exported(store: Store, tmp_path: Path) -> None:
    with store.transaction() as connection:
        connection.execute(measurements.update().where(measurements.c.id == 2).values(cause="changed"))
    with pytest.raises(DamagedRecord, match="measurements 2"):
        export_records(store, tmp_path / "records.jsonl.gz")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_or_read_is_named(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"missing/records\.jsonl\.gz: cannot be written"):
        export_records(store, tmp_path / "missing" / "records.jsonl.gz")
    with pytest.raises(RecordsError, match=r"missing\.jsonl\.gz: cannot be read"):
        import_records(store, tmp_path / "missing.jsonl.gz")


def test_a_link_is_followed_and_a_pipe_is_left_alone(store: Store, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    link, real, pipe = tmp_path / "link.kr", tmp_path / "store" / "real.kr", tmp_path / "pipe"
    link.symlink_to(real)
    export_records(store, link)
    assert link.is_symlink()
    assert real.is_file()
    os.mkfifo(pipe)
    with pytest.raises(StorageError, match="a device or a pipe"):
        export_records(store, pipe)
    assert pipe.is_fifo()


def test_any_damaged_byte_refuses_the_whole_file(store: Store, other: Store, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl.gz"
    export_records(store, path)
    whole = path.read_bytes()
    for place in range(10, len(whole), 7):  # the first ten bytes are gzip's own: time and operating system
        for damaged in (whole[:place], whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :]):
            if unpacked(damaged) == unpacked(whole):
                continue  # bits that fill the last byte of the compressed data mean nothing
            path.write_bytes(damaged)
            with pytest.raises(RecordsError, match=r"records\.jsonl\.gz"):
                import_records(other, path)
    assert other.counts().workloads == 0


def unpacked(data: bytes) -> bytes | None:
    """What was compressed; None if that cannot be told."""
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error):
        return None


def rewritten(path: Path, change: Callable[[list[dict]], None]) -> None:
    """The file with changed records, sealed anew, as somebody who means harm would."""
    with gzip.open(path) as file:
        records = [json.loads(line)["record"] for line in file]
    change(records)
    with gzip.open(path, "wb") as file:
        for record in records:
            raw = json.dumps(record, separators=(",", ":")).encode()
            file.write(b'{"seal":"%s","record":%s}\n' % (digest_of(raw).encode(), raw))


def put(value: object, record: int, *keys: str | int) -> Callable[[list[dict]], None]:
    """Put `value` at a place of a record."""

    def change(records: list[dict]) -> None:
        *to, last = keys
        place = records[record]
        for key in to:
            place = place[key]
        place[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("kintune-records-v3", 0, "format"), "its format is kintune-records-v3, this Kintune reads"),
        (put(9, -1, "records"), "8 of 9 records are left"),
        (lambda records: records.pop(), "cut short after"),
        (lambda records: records.pop(0), "record 0 is out of place"),
        (lambda records: records.append(records[1]), "is out of place"),
        (lambda records: records.pop(1), "its device type .* is missing"),
        (lambda records: records.pop(2), "its workload .* is missing"),
        (put("no digest", 2, "digest"), "record 2 makes no sense: 'no digest' is no digest"),
        (put([-3.0], 6, "measurement", "outcome", "times_us"), "record 6 makes no sense: -3.0 us is no time"),
        (put([], 6, "measurement", "outcome", "times_us"), "it is ok with 0 times"),
        (put([0.0], 6, "measurement", "confirmed", "times_us"), "0.0 us is no time"),
        (put([[3, 3], [1]], 6, "measurement", "candidate", "decisions"), "decision 0 does not answer its axis"),
        (put([[8, 8], [64]], 6, "measurement", "candidate", "decisions"), "decision 1 does not answer its axis"),
        (put([[8, 8]], 6, "measurement", "candidate", "decisions"), "it has 1 decisions for 2 axes"),
        (put("0" * 32, 6, "measurement", "candidate", "sketch"), "its sketch 0+ is missing"),
        (put("", 6, "measurement", "compiler"), "it names no compiler"),
        (put("AAAA", 6, "measurement", "features"), "its 3 bytes of features are no 32-bit floats"),
        (put("", 6, "measurement", "feature_version"), "64 bytes of features are no 32-bit floats of a named version"),
        (put("AADAfw==", 6, "measurement", "features"), "record 6 makes no sense: its features are not all finite"),
        (put("AACAPw==", 7, "measurement", "features"), "it has 1 features, others of version '1' have 16"),
        (put("text", 6, "measurement", "outcome"), "record 6 is not one of kintune-records-v2"),
        (
            put(1 << 70, 3, "sketch", "axes", 0, "parts"),
            "a record has a number of more than 64 bits",
        ),
    ],
)
def test_what_makes_no_sense_refuses_the_whole_file(
    store: Store, other: Store, tmp_path: Path, change: Callable[[list[dict]], None], said: str
) -> None:
    path = tmp_path / "records.jsonl.gz"
    export_records(store, path)
    rewritten(path, change)
    with pytest.raises(RecordsError, match=said):
        import_records(other, path)
    assert other.counts().workloads == other.counts().device_types == 0


@given(seed=st.integers(0, (1 << 32) - 1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_change_with_a_right_seal_is_taken_or_refused_in_one_line(
    store: Store, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder = tmp_path_factory.mktemp("changed")
    path = folder / "records.jsonl.gz"
    export_records(store, path)

    def change(records: list[dict]) -> None:
        records[:] = changed_document(Random(seed), records)

    rewritten(path, change)
    with Store.open(folder / "other.sqlite") as other:
        try:
            import_records(other, path)
        except RecordsError as error:
            assert str(error).isprintable()  # noqa: PT017
            assert other.counts().workloads == other.counts().device_types == 0


def test_a_line_nested_too_deep_is_none(store: Store, other: Store, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl.gz"
    export_records(store, path)
    first, *rest = gzip.decompress(path.read_bytes()).splitlines()
    deep = b'{"seal":"","record":' + b"[" * 5000 + b"]" * 5000 + b"}"
    path.write_bytes(gzip.compress(b"\n".join([first, deep, *rest])))
    with pytest.raises(RecordsError, match=r"record 1 is (not one of kintune-records-v2|damaged)"):
        import_records(other, path)


def test_features_must_be_as_wide_as_those_known_here(store: Store, other: Store, tmp_path: Path) -> None:
    """Else no model could be trained on both."""
    path = tmp_path / "records.jsonl.gz"
    export_records(store, path)
    dense = add_workload(other, "dense")
    for index in range(2):
        narrow = msgspec.structs.replace(measurement(dense, index, 1.0), features=bytes(8 + 4 * index))
        other.measurements.add(narrow)
    assert (other.measurements.width("1"), other.measurements.width("2")) == (2, None)
    with pytest.raises(
        RecordsError, match=r"record 6 makes no sense: it has 16 features, others of version '1' have 2"
    ):
        import_records(other, path)
    assert other.counts().measurements == 2


def test_a_foreign_file_is_refused(other: Store, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl.gz"
    for content in (b"", b"{}\n", gzip.compress(b""), gzip.compress(b'{"a": 1}\n'), gzip.compress(b"\xff\xfe\n")):
        path.write_bytes(content)
        with pytest.raises(RecordsError, match=r"records\.jsonl\.gz"):
            import_records(other, path)


WORKLOAD = "a" * 32

SKETCH = Sketch(WORKLOAD, "b" * 32, b"trace", (Location(12),))

INLINED, ROOT = -2, -1


@pytest.fixture
def rules() -> ImportChecks:
    rules = ImportChecks({"1": 16}.get)
    assert [rules.device_type(DEVICE), rules.workload(WORKLOAD), rules.sketch(SKETCH)] == ["", "", ""]
    return rules


def at(place: int) -> Measurement:
    return msgspec.structs.replace(
        measurement(WORKLOAD, 0, 1.0), candidate=Candidate(WORKLOAD, SKETCH.digest, ((place,),))
    )


@pytest.mark.parametrize("place", [INLINED, ROOT, 0, 11])
def test_a_producer_may_be_anywhere(rules: ImportChecks, place: int) -> None:
    assert rules.measurement(at(place)) == ""


def test_there_is_no_place_beyond_inlined(rules: ImportChecks) -> None:
    assert rules.measurement(at(-3)) == "its decision 0 does not answer its axis"


def test_features_are_as_many_as_known_ones_of_their_version(rules: ImportChecks) -> None:
    narrow = msgspec.structs.replace(at(0), features=bytes(8))
    assert rules.measurement(narrow) == "it has 2 features, others of version '1' have 16"
    assert rules.measurement(msgspec.structs.replace(narrow, feature_version="2")) == ""
    assert "of version '2' have 2" in rules.measurement(msgspec.structs.replace(at(0), feature_version="2"))


def test_the_width_of_a_version_is_counted_once() -> None:
    asked = []

    def width_of(version: str) -> int:
        asked.append(version)
        return 16

    rules = ImportChecks(width_of)
    assert [rules.device_type(DEVICE), rules.workload(WORKLOAD), rules.sketch(SKETCH)] == ["", "", ""]
    assert [rules.measurement(at(place)) for place in (0, 1, 2)] == [""] * 3
    assert asked == ["1"]


def test_a_measurement_without_features_is_one(rules: ImportChecks) -> None:
    assert rules.measurement(msgspec.structs.replace(at(0), features=b"", feature_version="")) == ""
