from __future__ import annotations

from pathlib import Path

import pytest

from kintune.workers.fleet.content_cache import FileContent
from kintune.workers.fleet.ray_objects import RayObjects


class FakeRay:
    """An object store that keeps all, unless it is full."""

    def __init__(self) -> None:
        self.put_here: list[bytes] = []
        self.full = False

    def put(self, data: bytes) -> bytes:
        if self.full:
            raise RuntimeError("no room\nfor more")
        self.put_here.append(data)
        return data


def test_a_file_is_put_once_until_others_take_its_place(tmp_path: Path) -> None:
    ray = FakeRay()
    objects = RayObjects(ray, most_bytes=6)
    files = {name: FileContent(4, name) for name in ("one", "two")}
    for name in files:
        (tmp_path / name).write_text(name)
    for name in ("one", "one", "two", "one"):
        assert objects.put(str(tmp_path / name), files[name]) == [name.encode()]
    assert ray.put_here == [b"one", b"two", b"one"]
    objects.forget(files["one"])
    objects.put(str(tmp_path / "one"), files["one"])
    assert ray.put_here == [b"one", b"two", b"one", b"one"]


def test_an_empty_file_has_a_part_too(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert RayObjects(FakeRay()).put(str(tmp_path / "empty"), FileContent(0, "e")) == [b""]


def test_one_line_says_that_the_store_is_full(tmp_path: Path) -> None:
    ray = FakeRay()
    ray.full = True
    (tmp_path / "one").touch()
    with pytest.raises(OSError, match=r"^Ray's object store does not take it: no room$"):
        RayObjects(ray).put(str(tmp_path / "one"), FileContent(0, "e"))


def test_what_was_in_a_store_that_is_gone_is_put_again(tmp_path: Path) -> None:
    ray = FakeRay()
    objects = RayObjects(ray)
    (tmp_path / "one").write_text("one")
    for _ in range(2):
        objects.put(str(tmp_path / "one"), FileContent(3, "one"))
        objects.clear()
    assert ray.put_here == [b"one", b"one"]
