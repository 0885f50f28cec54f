from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kintune.records import Store
from kintune.records.schema import METADATA
from kintune.testing.records import RecordsConformance

POSTGRES = "KINTUNE_TEST_POSTGRES"


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
        with Store.open(os.environ[POSTGRES]) as store:
            try:
                yield store
            finally:
                METADATA.drop_all(store._database.engine)
