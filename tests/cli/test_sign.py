from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.support.toy_model import write_model

if TYPE_CHECKING:
    from tests.support.command import Kintune


@pytest.fixture(autouse=True)
def _prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    key = Ed25519PrivateKey.generate()
    Path("key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    Path("public.pem").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    write_model(tmp_path / "model.kt")
    Path("a.whl").write_bytes(b"a wheel")


def test_files_are_signed_and_verified(kintune: Kintune, tmp_path: Path) -> None:
    said = kintune("sign", "model.kt", "a.whl", "--key", "key.pem")
    wheel = tmp_path / "a.whl"
    assert said.out == f"{tmp_path / 'model.kt'} is signed\n{wheel} is signed: {wheel}.sig\n"
    document = json.loads(kintune("verify", "model.kt", "a.whl", "--key", "public.pem", "--json", "-").out)
    assert [Path(each["signature"]).name for each in document["files"]] == ["model.kt", "a.whl.sig"]
    assert {len(each["sha256"]) for each in document["files"]} == {64}


def test_what_is_not_as_it_was_signed_ends_with_code_2(kintune: Kintune) -> None:
    said = kintune("verify", "model.kt", "--key", "public.pem")
    assert (said.code, said.out) == (2, "")
    assert said.err == "kintune: error: model.kt: is not signed; `kintune sign` signs it\n"
    kintune("sign", "model.kt", "--key", "key.pem")
    content = bytearray(Path("model.kt").read_bytes())
    content[6000] ^= 1
    Path("model.kt").write_bytes(content)
    said = kintune("verify", "a.whl", "model.kt", "--key", "public.pem")
    assert said.code == 2
    assert len(said.err.splitlines()) == 1


def test_run_takes_a_trusted_key(kintune: Kintune, tmp_path: Path) -> None:
    import numpy as np

    np.savez("x.npz", x=np.ones(1000, np.float32))
    run = ("run", "model.kt", "--input", "x.npz", "--trusted", "public.pem")
    said = kintune(*run)
    assert said.code == 2
    assert "model.kt: is not signed" in said.err
    assert kintune("evaluate", "model.kt", "--repeats", "2", "--trusted", "public.pem").code == 2
    kintune("sign", "model.kt", "--key", "key.pem")
    assert kintune(*run).code == 0
    assert kintune("evaluate", "model.kt", "--repeats", "2", "--trusted", "public.pem").code == 0
