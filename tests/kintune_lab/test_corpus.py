"""Measurements of many runs in a Parquet file a CPU."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from kintune.core.candidate import Candidate
from kintune.core.outcome import Outcome, Status
from kintune.errors import RecordsError
from kintune.records import Store
from kintune.records.portable import (
    Content,
    MeasurementContent,
    SketchContent,
    WorkloadContent,
    add_contents,
    contents_of,
)
from kintune.testing.records import COMPILER, DEVICE, add_workload, measurement
from kintune_lab.corpus import add_to_corpus, read_corpus

pytestmark = pytest.mark.needs("pyarrow")


def contents(*seeds: int) -> list[Content]:
    """Two workloads: these programs of one with a failure and a confirmed time, and an untuned program of the other."""
    with Store.open(":memory:") as store:
        conv, dense = add_workload(store, "conv"), add_workload(store, "dense")
        for seed in seeds:
            store.measurements.add(measurement(conv, seed, 3.0 + seed, 0.1 + 0.2))
        store.measurements.add(measurement(conv, 0, status=Status.RUN_FAILED, cause="SIGSEGV é"))
        store.measurements.add(msgspec.structs.replace(measurement(dense, 0, 9.0), candidate=Candidate.untuned(dense)))
        if seeds:
            candidate = measurement(conv, seeds[0]).candidate
            store.measurements.confirm(DEVICE.digest, COMPILER, candidate, Outcome(Status.OK, (4.0,)))
        return [undated(each) for each in contents_of(store)]


def undated(content: Content) -> Content:
    if not isinstance(content, MeasurementContent):
        return content
    return MeasurementContent(msgspec.structs.replace(content.measurement, created="2026-11-30"))


def encoded(found: Iterable[Content]) -> list[bytes]:
    return sorted(msgspec.json.encode(each) for each in found)


def test_what_is_added_is_read_back(tmp_path: Path) -> None:
    added = contents(1, 2)
    ((name, count),) = add_to_corpus(tmp_path / "new", "first", added).items()
    assert count == 4
    measured = {each.measurement.candidate.sketch for each in added if isinstance(each, MeasurementContent)}
    kept = [each for each in added if not isinstance(each, SketchContent) or each.sketch.digest in measured]
    assert encoded(read_corpus(tmp_path / "new" / name)) == encoded(kept)
    with Store.open(":memory:") as store:
        assert add_contents(store, read_corpus(tmp_path / "new" / name)).added == 4


def test_a_measurement_is_kept_once(tmp_path: Path) -> None:
    ((name, _),) = add_to_corpus(tmp_path, "first", contents(1, 2)).items()
    before = (tmp_path / name).read_bytes()
    assert add_to_corpus(tmp_path, "again", contents(2)) == {}
    assert (tmp_path / name).read_bytes() == before
    assert add_to_corpus(tmp_path, "second", contents(2, 3)) == {name: 1}
    assert len([each for each in read_corpus(tmp_path / name) if isinstance(each, MeasurementContent)]) == 5
    (only,) = (each for each in read_corpus(tmp_path / name, run="second") if isinstance(each, MeasurementContent))
    assert only.measurement.outcome.times_us == (6.0, 0.1 + 0.2)


def test_the_order_of_additions_does_not_change_what_is_read(tmp_path: Path) -> None:
    names = [
        next(iter(add_to_corpus(tmp_path / order, "run", contents(int(seed)))))
        for order in ("12", "21")
        for seed in order
    ]
    first, second = ((tmp_path / order / names[0]).read_bytes() for order in ("12", "21"))
    assert first == second


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cpu.parquet"
    with pytest.raises(RecordsError, match=r"cpu\.parquet: damaged, or no file of measurements"):
        list(read_corpus(path))
    path.write_bytes(b"PAR1 no, it is not")
    with pytest.raises(RecordsError, match=r"cpu\.parquet: damaged, or no file of measurements"):
        list(read_corpus(path))


def test_a_row_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    wrong = [
        msgspec.structs.replace(each, digest="x") if isinstance(each, WorkloadContent) else each for each in contents(1)
    ]
    changed = [
        msgspec.structs.replace(
            each,
            measurement=msgspec.structs.replace(
                each.measurement, candidate=msgspec.structs.replace(each.measurement.candidate, workload="x")
            ),
        )
        if isinstance(each, MeasurementContent)
        else each
        for each in wrong
    ]
    ((name, _),) = add_to_corpus(tmp_path, "run", changed).items()
    with pytest.raises(RecordsError, match="row 0 makes no sense: 'x' is no digest"):
        list(read_corpus(tmp_path / name))
