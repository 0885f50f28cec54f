from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from kintune.errors import ModelError
from kintune.models.graph_file import open_graph

SIZE = 64 * 512 * 4
SECRET = b"never to be read".ljust(SIZE, b"!")


def test_weights_beside_the_file_are_mapped(samples: Any) -> None:
    path = samples.write_external("w.data", offset=4096, length=SIZE)
    values = np.arange(64 * 512, dtype="<f4").reshape(64, 512)
    (path.parent / "w.data").write_bytes(b"\0" * 4096 + values.tobytes())
    read = open_graph(path, own=True).weights["w"]
    np.testing.assert_array_equal(read, values)
    base: Any = read
    while not isinstance(base, np.memmap):
        base = base.base
    assert not read.flags.writeable


def test_other_files_are_read_of_the_users_own_models_alone(samples: Any) -> None:
    path = samples.write_external("w.data")
    (path.parent / "w.data").write_bytes(SECRET)
    with pytest.raises(ModelError, match=r"weight 'w': lies in another file, which is not read"):
        open_graph(path)
    assert open_graph(path, own=True).weights["w"].shape == (64, 512)


@pytest.mark.parametrize("kind", ["INT2", "UINT2", "INT4", "UINT4", "FLOAT4E2M1"])
@pytest.mark.parametrize("nested", [False, True])
def test_types_that_share_bytes_are_unpacked(samples: Any, kind: str, nested: bool) -> None:
    packed = TensorProto(name="w", data_type=TensorProto.DataType.Value(kind), dims=[3, 3])
    content = b"\x1b\xe4\x02" if kind.endswith("INT2") else b"\x10\x32\xa4\xfe\x07"
    packed.raw_data = content
    wanted = numpy_helper.to_array(packed)
    packed.ClearField("raw_data")
    packed.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.data"), ("offset", "1"), ("length", str(len(content)))):
        packed.external_data.add(key=key, value=value)
    ports = [("x", TensorProto.FLOAT, [1])], [("y", TensorProto.FLOAT, [1])]
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    if nested:
        nodes.append(helper.make_node("Constant", [], ["c"], value=packed))
    model = samples.make_model(nodes, *ports, opset=25)
    model.ir_version = 13
    if not nested:
        model.graph.initializer.append(packed)
    path = samples.write(model)
    (path.parent / "w.data").write_bytes(b"\0" + content)
    file = open_graph(path, own=True)
    found = numpy_helper.to_array(file.graph.graph.node[1].attribute[0].t) if nested else file.weights["w"]
    assert found.dtype == wanted.dtype
    assert found.tolist() == wanted.tolist()
    (path.parent / "w.data").write_bytes(content)
    with pytest.raises(ModelError, match="the file is incomplete"):
        open_graph(path, own=True)


def cached(samples: Any, location: str, target: str) -> Path:
    """A model as a Hugging Face cache keeps it: `snapshots` holds links, `blobs` the content."""
    repository: Path = samples.directory / "models--somebody--something"
    snapshot = repository / "snapshots" / "0123" / "onnx"
    for folder in (snapshot, repository / "blobs", repository / "refs"):
        folder.mkdir(parents=True)
    samples.write_external(location).rename(repository / "blobs" / "aaaa")
    (snapshot / "model.onnx").symlink_to("../../../blobs/aaaa")
    (repository / "blobs" / "bbbb").write_bytes(b"\0" * SIZE)
    (repository / "refs" / "main").write_bytes(SECRET)
    (repository / "blobs" / "link").symlink_to("../refs/main")
    (snapshot / location).symlink_to(target.format(repository=repository))
    return snapshot / "model.onnx"


@pytest.mark.parametrize("target", ["../../../blobs/bbbb", "{repository}/blobs/bbbb"])
def test_the_users_own_files_may_lie_behind_links_of_their_cache(samples: Any, target: str) -> None:
    path = cached(samples, "model.onnx_data", target)
    assert not open_graph(path, own=True).weights["w"].any()
    with pytest.raises(ModelError, match="lies in another file"):
        open_graph(path)


@pytest.mark.parametrize(
    "target",
    ["../../../refs/main", "../../../blobs/../refs/main", "../../../blobs/link", "../../blobs/bbbb", "/etc/hostname",
     "{repository}/refs/main", "../../../blobs/", "../../../blobs/..", "../../../blobs/missing", "model.onnx"],
)  # fmt: skip
def test_links_that_lead_elsewhere_are_not_followed(samples: Any, target: str) -> None:
    path = cached(samples, "model.onnx_data", target)
    with pytest.raises(ModelError, match=r"links are not followed|is missing"):
        open_graph(path, own=True)


def test_a_folder_that_is_a_link_is_not_followed_in_a_cache_either(samples: Any) -> None:
    path = cached(samples, "model.onnx_data", "../../../blobs/bbbb")
    (path.parent / "below").symlink_to("../../../refs")
    model = samples.write_external("below/main")
    (path.parents[3] / "blobs" / "aaaa").write_bytes(model.read_bytes())
    with pytest.raises(ModelError, match="links are not followed"):
        open_graph(path, own=True)


def test_outside_a_cache_no_link_is_followed(samples: Any) -> None:
    path = samples.write_external("w.data")
    (path.parent / "real").write_bytes(b"\0" * SIZE)
    (path.parent / "w.data").symlink_to("real")
    with pytest.raises(ModelError, match="links are not followed"):
        open_graph(path, own=True)


def test_weights_may_lie_in_a_folder_below(samples: Any) -> None:
    path = samples.write_external("./weights/w.data")
    (path.parent / "weights").mkdir()
    (path.parent / "weights" / "w.data").write_bytes(b"\0" * SIZE)
    assert open_graph(path, own=True).weights["w"].shape == (64, 512)


@pytest.mark.parametrize(
    "location",
    [
        "../secret",
        "weights/../../secret",
        "weights/..",
        "..",
        ".",
        "",
        "{outside}",
        "//{outside}",
        "..\\secret",
        "C:\\secret",
        "C:secret",
        "\\\\host\\share",
        "w\0.data",
    ],
)
def test_paths_that_leave_the_directory_are_never_opened(
    samples: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    path = samples.write_external(location.format(outside=secret))
    opened: list[Any] = []
    monkeypatch.setattr(os, "open", lambda name, *_, **__: opened.append(name))
    with pytest.raises(ModelError, match="is not beside the model"):
        open_graph(path, own=True)
    assert opened == []


@pytest.mark.parametrize("link", ["w.data", "folder"])
def test_links_are_not_followed(samples: Any, tmp_path: Path, link: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "w.data").write_bytes(SECRET)
    if link == "folder":
        path = samples.write_external("folder/w.data")
        (path.parent / "folder").symlink_to(outside, target_is_directory=True)
    else:
        path = samples.write_external("w.data")
        (path.parent / "w.data").symlink_to(outside / "w.data")
    with pytest.raises(ModelError, match="links are not followed"):
        open_graph(path, own=True)


def test_a_link_is_refused_even_when_it_stays_inside(samples: Any) -> None:
    path = samples.write_external("w.data")
    (path.parent / "real.data").write_bytes(b"\0" * SIZE)
    (path.parent / "w.data").symlink_to("real.data")
    with pytest.raises(ModelError, match="links are not followed"):
        open_graph(path, own=True)


def test_pipes_and_folders_are_no_data_files(samples: Any) -> None:
    path = samples.write_external("w.data")
    os.mkfifo(path.parent / "w.data")
    with pytest.raises(ModelError, match="not a regular file"):
        open_graph(path, own=True)
    (path.parent / "w.data").unlink()
    (path.parent / "w.data").mkdir()
    with pytest.raises(ModelError, match="not a regular file"):
        open_graph(path, own=True)


def test_a_missing_data_file_is_named(samples: Any) -> None:
    with pytest.raises(ModelError, match=r"weight 'w': its data file w\.data is missing beside the model"):
        open_graph(samples.write_external("w.data"), own=True)


@pytest.mark.parametrize("size", [0, 1, SIZE - 1])
def test_a_data_file_that_is_too_short_is_refused(samples: Any, size: int) -> None:
    path = samples.write_external("w.data")
    (path.parent / "w.data").write_bytes(b"\0" * size)
    with pytest.raises(ModelError, match="the file is incomplete"):
        open_graph(path, own=True)


@pytest.mark.parametrize(("offset", "length"), [(4, SIZE), (10**18, SIZE), (0, SIZE - 4), (0, SIZE + 4), (0, 0)])
def test_offsets_and_lengths_that_do_not_fit_are_refused(samples: Any, offset: int, length: int) -> None:
    path = samples.write_external("w.data", offset, length)
    (path.parent / "w.data").write_bytes(b"\0" * SIZE)
    with pytest.raises(ModelError, match="weight 'w'"):
        open_graph(path, own=True)


@pytest.mark.parametrize("offset", ["-4", "four", "", "1e3", "9" * 30, "٣"])
def test_offsets_that_are_no_numbers_are_refused(samples: Any, offset: str) -> None:
    path = samples.write_external("w.data", offset)  # type: ignore[arg-type]
    (path.parent / "w.data").write_bytes(b"\0" * SIZE)
    with pytest.raises(ModelError, match="the offset of its external data is not a number"):
        open_graph(path, own=True)
