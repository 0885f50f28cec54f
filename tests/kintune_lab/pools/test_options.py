from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from kintune.errors import InputError
from kintune_lab.experiment.experiment import Cell, CellProgress
from kintune_lab.experiment.option import OptionError
from kintune_lab.pools.options import POOL_OPTIONS, Pace, check_pool, obtain
from kintune_lab.pools.pool import Pool, save_pool


def test_the_first_step_says_nothing_of_the_time_left_and_later_ones_go_by_those_before() -> None:
    now, shown = 100.0, list[CellProgress]()
    pace = Pace("search", 4, shown.append, lambda: now)
    pace.begin(0)
    now = 102.0
    pace.begin(1)
    now = 110.0
    pace.begin(3)
    assert shown == [
        CellProgress("search 1 of 4", 0.0, None),
        CellProgress("search 2 of 4", 0.25, 6.0),
        CellProgress("search 4 of 4", 0.75, 10.0 / 3.0),
    ]


def test_a_pool_is_that_of_the_models_content(pool: Pool, tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
    save_pool(path, replace(pool, origin=msgspec.structs.replace(pool.origin, content="one")))
    values = {**{name: option.default for name, option in POOL_OPTIONS.items()}, "model": "synthetic"}
    asked = Cell("replay", 1, {**values, "pool": str(path), "samples": 16}, {}, contents={"synthetic": "one"})
    check_pool(asked)
    assert obtain(asked, tmp_path, lambda _: None).least == 16
    changed = msgspec.structs.replace(asked, contents={"synthetic": "other"})
    with pytest.raises(OptionError, match="before it changed"):
        check_pool(changed)
    with pytest.raises(InputError, match="before it changed"):
        obtain(changed, tmp_path, lambda _: None)
