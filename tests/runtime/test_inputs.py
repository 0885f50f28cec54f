from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from kintune.core.model import IndexCheck, Tensor
from kintune.errors import InputError
from kintune.runtime.inputs import arrange_inputs, check_indices, draw_inputs, load_inputs, write_arrays

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")

TENSORS = [Tensor(f"a {dtype}", (3, 1, 50), dtype) for dtype in DTYPES] + [Tensor("scalar", (), "float32")]


def test_drawn_inputs_are_as_the_model_says() -> None:
    drawn = draw_inputs(TENSORS, seed=3)
    assert [(name, a.shape, a.dtype.name) for name, a in drawn.items()] == [(t.name, t.shape, t.dtype) for t in TENSORS]
    assert set(drawn["a int64"].ravel().tolist()) == {0, 1}
    assert 0.5 < drawn["a float32"].std() < 1.5


KINDS = (
    Tensor("ids", (4, 32), "int64", values="ids", below=1000),
    Tensor("ids of a byte", (4, 32), "uint8", values="ids", below=1000),
    Tensor("indices", (4, 32), "int32", bounds=(-7, 6)),
    Tensor("bytes", (4096,), "uint8", values="bytes"),
    Tensor("signed", (4096,), "int8", values="bytes"),
    Tensor("counts", (100,), "int32", values="counts"),
    Tensor("mask", (3, 40), "int64", values="mask"),
    Tensor("lengths", (3,), "int64", values="lengths"),
    Tensor("image", (1, 3, 16, 16), "float16", values="image"),
)


@pytest.mark.parametrize("seed", range(5))
def test_values_are_of_the_kind_that_the_model_wants(seed: int) -> None:
    drawn = draw_inputs(KINDS, seed)
    least = {name: array.min() for name, array in drawn.items()}
    greatest = {name: array.max() for name, array in drawn.items()}
    assert least["ids"] >= 0
    assert 500 < greatest["ids"] < 1000
    assert greatest["ids of a byte"] <= 255
    assert least["indices"] >= 0
    assert greatest["indices"] <= 6
    assert (least["bytes"], greatest["bytes"]) == (0, 255)
    assert (least["signed"], greatest["signed"]) == (-128, 127)
    assert (least["counts"], greatest["counts"]) == (0, 7)
    assert drawn["lengths"].tolist() == [32, 32, 32]
    assert least["image"] >= 0
    assert greatest["image"] <= 1
    assert drawn["image"].std() > 0.2


def test_a_mask_is_ones_with_a_tail_of_zeros() -> None:
    (mask,) = draw_inputs([Tensor("mask", (50, 40), "int64", values="mask")]).values()
    assert (np.diff(mask, axis=1) <= 0).all()
    assert mask[0].all()
    assert (mask[:, :30] == 1).all()
    assert 0 in mask
    (row,) = draw_inputs([Tensor("mask", (1, 40), "bool", values="mask")]).values()
    assert row.tolist() == [[True] * 30 + [False] * 10]


def test_an_index_out_of_its_bounds_is_refused() -> None:
    tensor = Tensor("i", (2,), "int64", bounds=(-4, 3))
    arrange_inputs([tensor], [np.array([-4, 3])])
    for wrong in (-5, 4):
        with pytest.raises(InputError, match=f"input 'i' holds {wrong} at .1., .* between -4 and 3"):
            arrange_inputs([tensor], [np.array([0, wrong])])


def test_strings_are_drawn_and_checked() -> None:
    words = Tensor("words", (2, 3), "string")
    drawn = draw_inputs([words, Tensor("word", (), "string")], seed=1)
    assert (drawn["words"].dtype, drawn["words"].shape, drawn["word"].shape) == (object, (2, 3), ())
    assert all(isinstance(word, str) and word for word in drawn["words"].flat)
    for given in (drawn["words"], drawn["words"].astype(str), drawn["words"].tolist()):
        (array,) = arrange_inputs([words], [given])
        assert (array.dtype, array.tolist()) == (object, drawn["words"].tolist())
    for wrong in (np.zeros((2, 3)), np.full((2, 3), b"a"), np.array([["a", "b", 3]] * 2, object)):
        with pytest.raises(InputError, match=r"input 'words' is .*, strings are needed"):
            arrange_inputs([words], [wrong])
    with pytest.raises(InputError, match=r"has shape \(1,\), \(2, 3\) is needed"):
        arrange_inputs([words], [np.array(["a"])])


def test_strings_are_written_with_a_fixed_width(tmp_path: Path) -> None:
    write_arrays(tmp_path / "s.npz", {"words": np.array(["a", "\xe4bc"], object), "none": np.zeros(0, object)})
    assert load_inputs(tmp_path / "s.npz")["words"].tolist() == ["a", "\xe4bc"]
    with pytest.raises(InputError, match="'x' is no array of numbers or strings"):
        write_arrays(tmp_path / "s.npz", {"x": np.array([{}], object)})


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
    np.savez_compressed(tmp_path / "zlib.npz", a=np.arange(100))
    packed = (tmp_path / "zlib.npz").read_bytes()
    start = 30 + int.from_bytes(packed[26:28], "little") + int.from_bytes(packed[28:30], "little")
    (tmp_path / "zlib.npz").write_bytes(packed[:start] + b"\xff" * 8 + packed[start + 8 :])
    entry = packed.index(b"PK\x01\x02")
    changed = {"secret.npz": (6, 8, 1), "method.npz": (8, 10, 99)}  # of both headers: encrypted, an unknown method
    for name, (here, there, value) in changed.items():
        content = bytearray(packed)
        content[here] = content[entry + there] = value
        (tmp_path / name).write_bytes(content)
    for name in (*changed, "zlib.npz"):
        with pytest.raises(InputError, match=rf"{name}: not an \.npz file"):
            load_inputs(tmp_path / name)
    for name in ("text.npz", "empty.npz", "single.npy", "objects.npz", "cut.npz", "missing.npz"):
        with pytest.raises(InputError, match=name) as caught:
            load_inputs(tmp_path / name)
        assert "\n" not in str(caught.value)
        assert "pickle" not in str(caught.value)  # numpy would advise to load it unsafely


def test_arrays_that_numpy_cannot_read_are_refused_in_one_line(tmp_path: Path) -> None:
    vast = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 1000), }"
    for name, header in (("vast.npz", vast), ("bracket.npz", b"(" * 80), ("type.npz", vast.replace(b"<f4", b"<f4,"))):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    os.mkfifo(tmp_path / "pipe.npz")
    for name in ("vast.npz", "bracket.npz", "type.npz", "pipe.npz"):
        with pytest.raises(InputError, match=rf"{name}: (not an \.npz file|there is not enough memory)") as caught:
            load_inputs(tmp_path / name)
        assert "\n" not in str(caught.value)


ROWS = IndexCheck("Gather 'rows'", 0, (5,), 1, True)

PLACES = IndexCheck("GatherND 'places'", 1, (3, 7), 0, False)


def test_indices_inside_pass() -> None:
    check_indices([ROWS, PLACES], [np.array([-5, 4, 0]), np.array([[2, 6], [0, 0]])])
    check_indices([ROWS], [np.zeros((0, 3), np.int64)])


@pytest.mark.parametrize(("value", "dtype"), [(5, "int64"), (-6, "int32"), (200, "uint8")])
def test_an_index_of_one_axis(value: int, dtype: str) -> None:
    with pytest.raises(InputError, match=f"Gather 'rows': .* index {value}, .* axis 1 with 5 elements"):
        check_indices([ROWS], [np.array([[0, 1], [value, 2]], dtype)])


@pytest.mark.parametrize(
    ("place", "said"), [((3, 0), "index 3, .* axis 0 with 3"), ((0, -1), "index -1, .* axis 1 with 7")]
)
def test_an_index_of_several_axes(place: tuple[int, int], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_indices([PLACES], [np.zeros(1), np.array([[2, 6], place])])
