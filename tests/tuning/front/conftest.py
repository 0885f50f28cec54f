from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kintune.records import Store
from tests.support.toy_journals import ToyJournals


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[ToyJournals]:
    """Journals over records of their own."""
    with Store.open(tmp_path / "records.sqlite") as store:
        yield ToyJournals(store)
