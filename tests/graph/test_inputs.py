from pathlib import Path

import numpy as np
import pytest

from kintune.errors import InputError
from kintune.graph.inputs import draw_inputs, load_inputs
from kintune.job.payloads import Tensor

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")
TENSORS = [Tensor(f"a {dtype}", (3, 1, 50), dtype) for dtype in DTYPES] + [Tensor("scalar", (), "float32")]


def test_drawn_inputs_are_as_the_model_says() -> None:
    drawn = draw_inputs(TENSORS, seed=3)
    assert [(name, a.shape, a.dtype.name) for name, a in drawn.items()] == [(t.name, t.shape, t.dtype) for t in TENSORS]
    assert set(drawn["a int64"].ravel().tolist()) == {0, 1}
    assert 0.5 < drawn["a float32"].std() < 1.5


def test_the_seed_decides() -> None:
    one, same, other = draw_inputs(TENSORS, 1), draw_inputs(TENSORS, 1), draw_inputs(TENSORS, 2)
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not np.array_equal(one["a float32"], other["a float32"])


def test_saved_inputs_are_loaded_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.arange(3), b=np.ones((2, 2), np.float32))
    loaded = load_inputs(tmp_path / "x.npz")
    assert {name: (array.shape, array.dtype.name) for name, array in loaded.items()} == {
        "a": ((3,), "int64"),
        "b": ((2, 2), "float32"),
    }


def test_other_files_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "empty.npz").write_bytes(b"")
    np.save(tmp_path / "single.npy", np.zeros(3))
    np.savez(tmp_path / "objects.npz", a=np.array([{}], dtype=object))
    np.savez(tmp_path / "cut.npz", a=np.arange(100))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:-60])
    for name in ("text.npz", "empty.npz", "single.npy", "objects.npz", "cut.npz", "missing.npz"):
        with pytest.raises(InputError, match=name) as caught:
            load_inputs(tmp_path / name)
        assert "\n" not in str(caught.value)
