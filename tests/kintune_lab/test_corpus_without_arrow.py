"""Files of measurements where pyarrow is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kintune.errors import EnvironmentProblem
from kintune_lab.corpus import read_corpus


def test_the_package_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match=r"need pyarrow: pip install \"kintune\[bench\]\""):
        list(read_corpus(tmp_path / "cpu.parquet"))
