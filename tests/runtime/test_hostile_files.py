"""Results that were changed by somebody who means harm: each is opened, or refused in one line."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kintune
import kintune_runtime
from kintune.errors import KintuneError
from kintune.runtime.hybrid_package import HybridPackage, kernel_manifests
from kintune.runtime.manifest import read_manifests
from kintune.runtime.package import Package
from kintune.runtime.stored_zip import write_members
from tests.support.hostile import changed_archive, changed_document, members_of, packed
from tests.support.toy_hybrid import write_toy_hybrid
from tests.support.toy_model import adding, write_model

SEEDS = st.integers(0, (1 << 32) - 1)

READERS: tuple[Callable[[Path], Any], ...] = (
    read_manifests,
    kernel_manifests,
    Package.open,
    HybridPackage.open,
    kintune_runtime.open,
    kintune.open,
)


class Contents:
    """The bytes of some files, which messages do not show."""

    def __init__(self, files: list[bytes]) -> None:
        self.files = files


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    """Small results: of one combination of shapes, of two, and one that runs partly in onnxruntime."""
    folder = tmp_path_factory.mktemp("results")
    plain, shapes = write_model(folder / "a.kt"), write_model(folder / "b.kt", [adding(16), adding(8)])
    return Contents([path.read_bytes() for path in (plain, shapes, write_toy_hybrid(folder))])


def opened_or_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    for read in READERS:
        try:
            found = read(path)
        except KintuneError as error:
            line = str(error)
            assert "\n" not in line, line
            assert len(line) < 1000, line
        else:
            if isinstance(found, kintune_runtime.Executable | kintune_runtime.HybridExecutable):
                found.close()


@given(seed=SEEDS, which=st.integers(0, 2))
def test_a_changed_archive(contents: Contents, tmp_path_factory: pytest.TempPathFactory, seed: int, which: int) -> None:
    content = changed_archive(Random(seed), contents.files[which])
    opened_or_refused(tmp_path_factory.getbasetemp() / "archive.kt", content)


@given(seed=SEEDS, which=st.integers(0, 2))
def test_a_changed_manifest(
    contents: Contents, tmp_path_factory: pytest.TempPathFactory, seed: int, which: int
) -> None:
    """All else of the file is right, and so are its checksums."""
    (name, manifest), *rest = members_of(contents.files[which])
    changed = json.dumps(changed_document(Random(seed), json.loads(manifest))).encode()
    file = io.BytesIO()
    write_members(file, [(name, changed), *rest])
    opened_or_refused(tmp_path_factory.getbasetemp() / "manifest.kt", file.getvalue())


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"1" * 5000, b'{"format": 1e400}', b"\xff\xfe"])
def test_a_manifest_that_no_parser_likes(contents: Contents, tmp_path: Path, text: bytes) -> None:
    (name, _), *rest = members_of(contents.files[2])
    file = io.BytesIO()
    write_members(file, [(name, text), *rest])
    opened_or_refused(tmp_path / "manifest.kt", file.getvalue())


@pytest.mark.parametrize("reader", READERS)
def test_members_that_would_unpack_to_more_are_refused(
    contents: Contents, tmp_path: Path, reader: Callable[[Path], Any]
) -> None:
    for content in contents.files:
        members = members_of(content)
        path = tmp_path / "bomb.kt"
        path.write_bytes(packed([*members[:-1], (members[-1][0], bytes(1 << 20))], zipfile.ZIP_DEFLATED))
        with pytest.raises(KintuneError, match=r"stored plainly|not a Kintune executable|truncated or damaged"):
            reader(path)
