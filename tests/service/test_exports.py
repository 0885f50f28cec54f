from __future__ import annotations

import asyncio
import os
import threading
import zipfile
from pathlib import Path

import pytest

from kintune.errors import InputError, StorageError
from kintune.service import exports as exports_module
from kintune.service.access import Forbidden, Quota, Scope, Visitor
from kintune.service.exports import ExportKind, Exports
from tests.support.toy_model import write_model

ANNA = Visitor(1, "anna", Scope.READ, 1)


@pytest.fixture
def exports(tmp_path: Path) -> Exports:
    return Exports(tmp_path / "exports")


def left(exports: Exports) -> list[str]:
    """What lies in the folder."""
    return sorted(each.name for each in exports._folder.iterdir())


@pytest.mark.parametrize(
    ("kind", "name", "inside"),
    [
        (ExportKind.C, "net-c.zip", "net-c/libkintune.so"),
        (ExportKind.ONNX, "net-onnx.zip", "net-onnx/net.onnx"),
    ],
)
def test_an_export_is_one_archive(tmp_path: Path, exports: Exports, kind: ExportKind, name: str, inside: str) -> None:
    made = asyncio.run(exports.get(ANNA, write_model(tmp_path / "abc"), kind, "net"))
    assert made.name == name
    with zipfile.ZipFile(made) as archive:
        assert inside in archive.namelist()
    assert left(exports) == [f"kept-1-abc-{kind.value}-net"]


def test_a_wheel_is_a_wheel(tmp_path: Path, exports: Exports) -> None:
    assert asyncio.run(exports.get(ANNA, write_model(tmp_path / "abc"), ExportKind.WHEEL, "net")).suffix == ".whl"


def test_where_a_result_lies_is_not_told(tmp_path: Path, exports: Exports) -> None:
    (tmp_path / "abc").write_bytes(b"no executable")
    for name, error in (("abc", InputError), ("gone", StorageError)):
        with pytest.raises(error) as caught:
            asyncio.run(exports.get(ANNA, tmp_path / name, ExportKind.C, "net"))
        assert str(tmp_path) not in str(caught.value)
    assert left(exports) == []


class Makes:
    """Makes exports when it is let; notes how many at once."""

    def __init__(self) -> None:
        self.lock, self.may = threading.Lock(), threading.Event()
        self.begun, self.at_once, self.most = list[str](), 0, 0

    def __call__(self, executable: Path, kind: ExportKind, name: str, place: Path) -> Path:
        with self.lock:
            self.begun.append(f"{executable.name} {kind.value} {name}")
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            if len(self.begun) == 2:
                self.may.set()
        assert self.may.wait(60)
        with self.lock:
            self.at_once -= 1
        (place / "made").write_bytes(b"x")
        return place / "made"


@pytest.fixture
def makes(monkeypatch: pytest.MonkeyPatch) -> Makes:
    made = Makes()
    monkeypatch.setattr(exports_module, "_write", made)
    return made


def test_two_exports_are_made_at_once_each_for_all_who_ask(exports: Exports, makes: Makes) -> None:
    async def ask() -> list[Path]:
        asked = [Path(digest) for digest in ("a", "b", "c", "a")]
        return await asyncio.gather(*(exports.get(ANNA, path, ExportKind.C, "net") for path in asked))

    found = asyncio.run(ask())
    assert found[0] == found[3]
    assert sorted(makes.begun) == ["a c net", "b c net", "c c net"]
    assert makes.most == 2


def test_an_export_is_kept_for_an_hour_after_it_was_asked_for(exports: Exports, makes: Makes) -> None:
    makes.may.set()

    def get() -> Path:
        return asyncio.run(exports.get(ANNA, Path("a"), ExportKind.C, "net"))

    place = get().parent
    os.utime(place, (1000.0, 1000.0))
    exports.sweep(1000.0 + 3599.0)
    assert get().is_file()
    assert place.stat().st_mtime > 1000.0 + 3601.0
    assert len(makes.begun) == 1
    os.utime(place, (1000.0, 1000.0))
    exports.sweep(1000.0 + 3601.0)
    assert left(exports) == []
    assert get().is_file()
    assert len(makes.begun) == 2


def test_results_of_one_digest_have_the_names_of_their_models(exports: Exports, makes: Makes) -> None:
    makes.may.set()
    for name in ("net", "other"):
        asyncio.run(exports.get(ANNA, Path("a"), ExportKind.C, name))
    assert makes.begun == ["a c net", "a c other"]


def test_exports_of_a_user_take_no_more_than_his_uploads_may(exports: Exports, makes: Makes) -> None:
    makes.may.set()
    anna, boris = (Visitor(user, "", Scope.READ, 1, Quota(storage_mb=0)) for user in (1, 11))

    def get(visitor: Visitor, digest: str) -> Path:
        return asyncio.run(exports.get(visitor, Path(digest), ExportKind.C, "net"))

    first = get(anna, "a")
    with pytest.raises(Forbidden, match=r"take 0\.0 of the 0 MB"):
        get(anna, "b")
    assert get(anna, "a") == first
    assert get(boris, "b").is_file()
    os.utime(first.parent, (1000.0, 1000.0))
    exports.sweep(1000.0 + 3601.0)
    assert get(anna, "b").is_file()


def test_what_a_process_that_was_killed_has_left_goes_once_it_is_old(tmp_path: Path) -> None:
    for name, at in (("export-old", 10.0), ("export-new", 100.0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.kt").write_bytes(b"x")
        os.utime(tmp_path / name, (at, at))
    Exports(tmp_path).sweep(50.0 + 86400.0)
    assert [left.name for left in tmp_path.iterdir()] == ["export-new"]
    Exports(tmp_path / "none").sweep(50.0)
