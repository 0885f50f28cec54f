from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kintune.core.knowledge import TrainingConditions
from kintune.records import Store
from kintune.transfer.refresh_job import RefreshJob, RefreshSpec
from kintune.wire.staging import STAGING_VARIABLE, staged_name


def test_records_that_were_brought_are_left_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes read the same file, by its content."""
    staging = tmp_path / "staging"
    staging.mkdir()
    Store.open(str(tmp_path / "records.sqlite")).close()
    brought = staging / staged_name("/front/records.sqlite")
    brought.write_bytes((tmp_path / "records.sqlite").read_bytes())
    brought.chmod(0o444)
    before = brought.read_bytes()
    monkeypatch.setenv(STAGING_VARIABLE, str(staging))
    job = RefreshJob()
    spec = RefreshSpec("/front/records.sqlite", TrainingConditions("d", "c", "f"))
    job.open("j", msgspec.msgpack.encode(spec), ())
    assert msgspec.msgpack.decode(job.item(b"")) == []
    assert brought.read_bytes() == before
    assert [path.name for path in staging.iterdir()] == [brought.name]
