from __future__ import annotations

from pathlib import Path

import pytest

from kintune.core.device import NarrowSpeed
from kintune.records import Store
from kintune.tuning.narrow import avoided_extensions, known_speeds

VECTORS = NarrowSpeed("vpdpbusd", "int8", times_fp32=4.0)


@pytest.mark.parametrize(
    ("speeds", "avoided"),
    [
        ((), ()),
        ((VECTORS,), ()),
        ((NarrowSpeed("AMX", "int8", times_fp32=9.0), VECTORS), ()),
        ((NarrowSpeed("AMX", "int8", times_fp32=3.0), VECTORS), ("amxint8",)),
        ((NarrowSpeed("AMX", "int8", "does not compile"), VECTORS), ("amxint8",)),
        ((NarrowSpeed("AMX", "bf16", times_fp32=0.5), VECTORS), ()),
    ],
)
def test_tiles_of_bytes_are_avoided_where_they_gain_nothing(
    speeds: tuple[NarrowSpeed, ...], avoided: tuple[str, ...]
) -> None:
    assert avoided_extensions(speeds) == avoided


def test_nothing_is_known_before_it_was_measured(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "records.sqlite")) as store:
        assert known_speeds(store, "0" * 32) is None
