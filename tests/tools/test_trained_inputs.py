"""The script that makes inputs for trained networks of what is on any machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.trained_inputs import MAKERS, write_inputs

SHAPES = {
    "nudenet": (1, 3, 320, 320),
    "ocr_recogniser": (1, 3, 48, 320),
    "orientation": (1, 3, 224, 224),
    "magika": (1, 2048),
}


@pytest.mark.parametrize("name", MAKERS)
def test_inputs_differ_and_are_the_same_again(name: str) -> None:
    _, make = MAKERS[name]
    first, again, other = (make(np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert first.shape == SHAPES[name]
    assert first.dtype == (np.int32 if name == "magika" else np.float32)
    assert np.isfinite(first).all()
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_each_network_has_a_folder_of_its_own(tmp_path: Path) -> None:
    write_inputs(tmp_path, 2)
    for name, (tensor, _) in MAKERS.items():
        files = sorted((tmp_path / name).iterdir())
        assert [file.name for file in files] == ["00.npz", "01.npz"]
        with np.load(files[0]) as arrays:
            assert list(arrays) == [tensor]
