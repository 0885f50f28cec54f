from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kintune.records import Store
from kintune.testing.records import RecordsConformance
from tests.support.postgres import empty_schema


class TestMemory(RecordsConformance):
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        with Store.open(":memory:") as store:
            yield store


class TestFile(RecordsConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        with Store.open(tmp_path / "records.sqlite") as store:
            yield store


@pytest.mark.needs("postgresql")
class TestPostgres(RecordsConformance):
    @pytest.fixture
    def store(self) -> Iterator[Store]:
        with empty_schema() as url, Store.open(url) as store:
            yield store
