"""Files as somebody who means harm would hand them in: each is taken, or refused in one line."""

from __future__ import annotations

import io
import json
import tarfile
from contextlib import closing
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kintune.errors import InputError, KintuneError
from kintune.records import Store
from kintune.runtime.inputs import load_inputs
from kintune.service.archive import back_up, restore
from kintune.service.database import open_database
from kintune.service.npz_headers import read_headers
from kintune.service.settings import ServiceSettings
from kintune.service.upload_inspection import examine
from tests.support.hostile import changed_archive, changed_bytes, changed_document
from tests.support.service_users import dynamic_onnx

SEEDS = st.integers(0, (1 << 32) - 1)


def arrays() -> bytes:
    file = io.BytesIO()
    np.savez(file, x=np.ones((2, 3), np.float32), ids=np.arange(4), words=np.array(["a", "bc"]), empty=np.ones((0, 2)))
    return file.getvalue()


def one_line(error: KintuneError) -> None:
    assert str(error).isprintable(), repr(str(error))
    assert len(str(error)) < 1000


@given(seed=SEEDS)
@settings(max_examples=300)
def test_arrays_whose_headers_are_taken_can_be_loaded(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    path = tmp_path_factory.getbasetemp() / "inputs.npz"
    path.write_bytes(changed_archive(Random(seed), arrays()))
    try:
        found = read_headers(path, 1 << 20)
    except InputError as error:
        one_line(error)
        found = None
    try:
        loaded = load_inputs(path)
    except InputError as error:
        one_line(error)
    else:
        if found is not None:
            assert {each.name: each.shape for each in found} == {name: array.shape for name, array in loaded.items()}


@given(seed=SEEDS)
@settings(max_examples=300)
def test_models_are_looked_at_whatever_is_in_them(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    path = tmp_path_factory.getbasetemp() / "model.onnx"
    path.write_bytes(changed_bytes(Random(seed), dynamic_onnx().SerializeToString()))
    assert examine(path).problem.isprintable()


@given(seed=SEEDS)
@settings(max_examples=300)
def test_models_of_any_form_are_looked_at(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    from google.protobuf import json_format  # type: ignore[import-untyped]

    document = changed_document(Random(seed), json_format.MessageToDict(dynamic_onnx()))
    try:
        model = json_format.ParseDict(document, onnx.ModelProto(), ignore_unknown_fields=True)
        content = model.SerializeToString()
    except (json_format.ParseError, TypeError, ValueError, OverflowError, AttributeError):
        return  # no message of this kind
    path = tmp_path_factory.getbasetemp() / "model.onnx"
    path.write_bytes(content)
    assert examine(path).problem.isprintable()


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("backup")
    (folder / "data").mkdir()
    settings = ServiceSettings(data=str(folder / "data"))
    open_database(settings.service_database).close()
    Store.open(settings.records).close()
    back_up(settings, folder / "all.tar")
    return folder / "all.tar"


def _entry(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", content: bytes = b"x"
) -> tuple[tarfile.TarInfo, bytes]:
    about = tarfile.TarInfo(name)
    about.type, about.linkname, about.size = kind, link, len(content) if kind == tarfile.REGTYPE else 0
    return about, content


@pytest.mark.parametrize(
    ("about", "content"),
    [
        _entry("../outside"),
        _entry("/tmp/outside"),
        _entry("content/../../outside"),
        _entry("content/" + "0" * 64),
        _entry("content/" + "0" * 64, tarfile.SYMTYPE, "/etc/passwd"),
        _entry("service.sqlite", tarfile.SYMTYPE, "/etc/passwd"),
        _entry("service.sqlite", tarfile.LNKTYPE, "../../outside"),
        _entry("records.sqlite", tarfile.FIFOTYPE),
        _entry("records.sqlite", tarfile.CHRTYPE),
        _entry("folder", tarfile.DIRTYPE),
        _entry("kintune-service.json", content=b"{}"),
    ],
)
def test_a_back_up_leads_nowhere_else(backup: Path, tmp_path: Path, about: tarfile.TarInfo, content: bytes) -> None:
    hostile = tmp_path / "hostile.tar"
    hostile.write_bytes(backup.read_bytes())
    with tarfile.open(hostile, "a") as tar:
        tar.addfile(about, io.BytesIO(content))
    try:
        restore(hostile, tmp_path / "restored")
    except KintuneError as error:
        one_line(error)
        assert not (tmp_path / "restored").exists()
    else:
        assert about.name == "kintune-service.json"  # the first one counts
    assert not (tmp_path / "outside").exists()
    assert not Path("/tmp/outside").exists()


@given(seed=SEEDS)
@settings(max_examples=30)
def test_a_changed_back_up(backup: Path, tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    place = tmp_path_factory.mktemp("changed")
    (place / "all.tar").write_bytes(changed_bytes(Random(seed), backup.read_bytes()[: 1 << 20]))
    try:
        restore(place / "all.tar", place / "restored")
    except KintuneError as error:
        one_line(error)


@given(seed=SEEDS)
@settings(max_examples=30)
def test_a_changed_manifest_of_a_back_up(backup: Path, tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    place = tmp_path_factory.mktemp("manifest")
    with tarfile.open(backup) as tar, tarfile.open(place / "all.tar", "w") as changed:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            content = file.read()
            if member.name == "kintune-service.json":
                content = json.dumps(changed_document(Random(seed), json.loads(content))).encode()
            changed.addfile(_sized(member.name, content), io.BytesIO(content))
    try:
        settings_of = restore(place / "all.tar", place / "restored")
    except KintuneError as error:
        one_line(error)
    else:
        with closing(open_database(settings_of.service_database)):
            pass


def _sized(name: str, content: bytes) -> tarfile.TarInfo:
    about = tarfile.TarInfo(name)
    about.size = len(content)
    return about
