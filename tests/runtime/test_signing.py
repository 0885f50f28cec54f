from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

import kintune
from kintune.errors import InputError
from kintune.runtime.signing import sign_file, verify_file
from kintune_runtime.signature import MAGIC, PLACE, SIZE
from tests.support.toy_hybrid import write_toy_hybrid
from tests.support.toy_model import write_model


@pytest.fixture
def key(tmp_path: Path) -> Path:
    made = Ed25519PrivateKey.generate()
    (tmp_path / "key.pem").write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "public.pem").write_bytes(public)
    locked = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    (tmp_path / "locked.pem").write_bytes(locked)
    return tmp_path / "key.pem"


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_result_has_its_signature_inside(tmp_path: Path, key: Path, hybrid: bool) -> None:
    path = write_toy_hybrid(tmp_path) if hybrid else write_model(tmp_path / "model.kt")
    before = path.read_bytes()
    kept = os.open(path, os.O_RDONLY)
    signed = sign_file(path, key)
    after = path.read_bytes()
    assert os.pread(kept, len(before) + 1, 0) == before  # it was replaced, not written to
    assert signed.signature == path
    assert after[PLACE : PLACE + len(MAGIC)] == MAGIC
    assert (after[:PLACE], after[PLACE + SIZE :]) == (before[:PLACE], before[PLACE + SIZE :])
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    assert verify_file(path, tmp_path / "public.pem") == signed
    assert sign_file(path, key) == signed  # once more: the same
    assert path.read_bytes() == after
    copy = tmp_path / "copy.kt"
    kintune.open(path).save(copy)
    assert verify_file(copy, tmp_path / "public.pem").digest == signed.digest


@pytest.mark.parametrize("content", [b"", b"a wheel, say", bytes(5000)])
def test_another_file_has_it_beside_itself(tmp_path: Path, key: Path, content: bytes) -> None:
    path, public = tmp_path / "file.whl", tmp_path / "public.pem"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"^{path}: is not signed: there is no {path}.sig; `kintune sign` signs it$"):
        verify_file(path, public)
    signed = sign_file(path, key)
    assert path.read_bytes() == content
    assert signed.signature == Path(f"{path}.sig")
    assert verify_file(path, public) == signed
    path.write_bytes(content + b"x")
    with pytest.raises(InputError, match="was altered since it was signed"):
        verify_file(path, public)
    path.write_bytes(content)
    signed.signature.write_bytes(signed.signature.read_bytes()[:-1])
    with pytest.raises(InputError, match="is not signed"):
        verify_file(path, public)


def test_keys_that_are_none_are_refused_and_nothing_is_changed(tmp_path: Path, key: Path) -> None:
    path = write_model(tmp_path / "model.kt")
    before = path.read_bytes()
    for given, said in (
        ("none.pem", "--key .*none.pem does not exist"),
        ("public.pem", "--key .*public.pem: no private key in PEM"),
        ("locked.pem", "--key .*locked.pem is encrypted; give it as `openssl pkey -in .*` writes it"),
        ("model.kt", "no private key in PEM"),
    ):
        with pytest.raises(InputError, match=said):
            sign_file(path, tmp_path / given)
    assert path.read_bytes() == before
