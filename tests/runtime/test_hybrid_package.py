"""The file of what runs partly in onnxruntime."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest

import kintune_runtime
from kintune.errors import InputError, OrderError
from kintune.runtime import hybrid_package
from kintune.runtime.hybrid_package import GRAPH, HybridPackage, write_hybrid
from kintune.runtime.manifest import read_manifest
from kintune.runtime.package import PAGE, Package
from tests.support.toy_hybrid import W, X, host_graph, hybrid_manifest, write_toy_hybrid
from tests.support.toy_model import write_model


def test_what_is_written_is_read(tmp_path: Path) -> None:
    manifest, region = hybrid_manifest(), write_model(tmp_path / "region.kt")
    path = tmp_path / "hybrid.kt"
    write_hybrid(path, manifest, host_graph(manifest), [region, region.read_bytes()])
    assert read_manifest(path) == manifest
    opened = HybridPackage.open(path)
    assert opened.manifest == manifest
    assert opened.graph == host_graph(manifest)
    assert opened.region(0) == opened.region(1) == region.read_bytes()


def test_members_are_stored_at_pages_and_the_manifest_is_first(tmp_path: Path) -> None:
    path = write_toy_hybrid(tmp_path)
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["manifest.json", GRAPH, "region0.kt", "region1.kt"]
        for name in archive.namelist():
            assert content.index(archive.read(name)[:PAGE]) % PAGE == 0
    again = tmp_path / "again"
    again.mkdir()
    assert write_toy_hybrid(again).read_bytes() == content


def test_a_region_is_a_file_by_itself(tmp_path: Path) -> None:
    region = tmp_path / "region.kt"
    region.write_bytes(HybridPackage.open(write_toy_hybrid(tmp_path)).region(1))
    np.testing.assert_array_equal(kintune_runtime.open(region).run(X)["out"], X + W + W)


def test_an_ordinary_file_and_this_one_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"toy\.kt: does not run in onnxruntime"):
        HybridPackage.open(write_model(tmp_path / "toy.kt"))
    with pytest.raises(InputError, match=r"hybrid\.kt: runs partly in onnxruntime \(1 CumSum\)"):
        Package.open(write_toy_hybrid(tmp_path))


def test_a_graph_past_two_gigabytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hybrid_package, "_LARGEST_GRAPH", 10)
    with pytest.raises(InputError, match="ONNX file without files beside it holds at most"):
        write_toy_hybrid(tmp_path)
    assert not (tmp_path / "hybrid.kt").exists()


def test_what_does_not_fit_its_manifest_is_an_error_of_the_caller(tmp_path: Path) -> None:
    manifest = hybrid_manifest()
    with pytest.raises(OrderError, match="1 files of regions are given, and one of 2"):
        write_hybrid(tmp_path / "hybrid.kt", manifest, b"", [b""])
    with pytest.raises(OrderError, match="no manifest of regions"):
        write_hybrid(tmp_path / "hybrid.kt", msgspec.structs.replace(manifest, hybrid=None), b"", [])


def test_nothing_is_left_where_a_region_is_missing(tmp_path: Path) -> None:
    manifest = hybrid_manifest()
    with pytest.raises(InputError, match=r"none\.kt: cannot be read"):
        write_hybrid(tmp_path / "hybrid.kt", manifest, b"graph", [b"region", tmp_path / "none.kt"])
    assert os.listdir(tmp_path) == []


def test_damage_is_found(tmp_path: Path) -> None:
    content = write_toy_hybrid(tmp_path).read_bytes()
    path = tmp_path / "changed.kt"
    for member in (b"\x22\x06CumSum", b"KTPLAN", W.tobytes()):
        changed = bytearray(content)
        changed[changed.index(member) + 3] ^= 1
        path.write_bytes(changed)
        with pytest.raises(InputError, match="damaged"):
            HybridPackage.open(path)
    for length in range(0, len(content), 4999):
        path.write_bytes(content[:length])
        with pytest.raises(InputError):
            HybridPackage.open(path)
