"""Records for toy jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kintune.records import Store
from tests.support.toy_records import ToyRecords


@pytest.fixture
def records(tmp_path: Path) -> Iterator[ToyRecords]:
    with Store.open(tmp_path / "records.sqlite") as store:
        yield ToyRecords(store)
