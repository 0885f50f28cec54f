from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kintune.records import Store
from tests.support.toy_desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Journals over records of their own."""
    with Store.open(tmp_path / "records.sqlite") as store:
        yield Desk(store)
