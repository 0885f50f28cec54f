"""Models that are opened only where they were signed with a trusted key."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

import kintune
import kintune_runtime
from kintune.runtime.signing import sign_file
from kintune_runtime import InputError
from kintune_runtime.signature import MAGIC, PLACE, SIZE
from tests.kintune_runtime.test_stress import INCLUDE, NATIVE
from tests.support.toy_hybrid import X, expected, write_toy_hybrid
from tests.support.toy_model import write_model

W = np.arange(1000, dtype=np.float32)
OPEN: list[Callable[..., Any]] = [kintune_runtime.open, kintune.open]
ALTERED = "was altered since it was signed, or signed with another key than the trusted one"
UNSIGNED = "is not signed; `kintune sign` signs it"


def pem_of(key: Any) -> bytes:
    content: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return content


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with private keys and public ones: `own`, `other`, and one of another kind."""
    folder = tmp_path_factory.mktemp("keys")
    for name, key in (("own", Ed25519PrivateKey.generate()), ("other", Ed25519PrivateKey.generate())):
        (folder / f"{name}.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        (folder / f"{name}.pub").write_bytes(pem_of(key))
        (folder / f"{name}.raw").write_bytes(key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))
    (folder / "exchange.pub").write_bytes(pem_of(X25519PrivateKey.generate()))
    return folder


@pytest.fixture
def signed(tmp_path: Path, keys: Path) -> Path:
    path = write_model(tmp_path / "model.kt")
    sign_file(path, keys / "own.pem")
    return path


@pytest.mark.parametrize("open_model", OPEN)
def test_what_the_trusted_key_has_signed_is_opened(
    tmp_path: Path, keys: Path, signed: Path, open_model: Callable[..., Any]
) -> None:
    public = keys / "own.pub"
    hybrid = write_toy_hybrid(tmp_path)
    sign_file(hybrid, keys / "own.pem")
    for trusted in (public, str(public), public.read_bytes(), (keys / "own.raw").read_bytes()):
        for source in (signed, signed.read_bytes(), io.BytesIO(signed.read_bytes())):
            np.testing.assert_array_equal(open_model(source, trusted=trusted).run(X)["out"], X + W + W)
        np.testing.assert_array_equal(open_model(hybrid, trusted=trusted).run(X)["out"], expected(X))
    np.testing.assert_array_equal(open_model(signed).run(X)["out"], X + W + W)


@pytest.mark.parametrize("open_model", OPEN)
def test_what_was_checked_is_what_runs(
    tmp_path: Path, keys: Path, signed: Path, open_model: Callable[..., Any]
) -> None:
    model = open_model(signed, trusted=keys / "own.pub")
    signed.write_bytes(write_model(tmp_path / "other.kt", weights=[W + 1]).read_bytes())
    np.testing.assert_array_equal(model.run(X)["out"], X + W + W)


def altered(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


@pytest.mark.parametrize("open_model", OPEN)
def test_what_was_altered_is_refused(keys: Path, signed: Path, open_model: Callable[..., Any]) -> None:
    content, public = signed.read_bytes(), keys / "own.pub"
    places = [0, 40, PLACE - 1, PLACE + len(MAGIC), PLACE + SIZE - 1, PLACE + SIZE, 4095, 5000, len(content) // 2]
    for place in [*places, len(content) - 1]:
        signed.write_bytes(altered(content, place))
        with pytest.raises(InputError, match=f"^{signed}: ({ALTERED}|{UNSIGNED})$"):
            open_model(signed, trusted=public)
    for changed in (content[:-1], content + b"\0", content[: len(content) // 2]):
        with pytest.raises(InputError, match=rf"^\(memory\): {ALTERED}$"):
            open_model(changed, trusted=public)
    with pytest.raises(InputError, match=rf"^\(memory\): {UNSIGNED}$"):
        open_model(altered(content, PLACE), trusted=public)
    for unsigned in (b"", b"short", content[:PLACE] + bytes(SIZE) + content[PLACE + SIZE :]):
        with pytest.raises(InputError, match=rf"^\(memory\): {UNSIGNED}$"):
            open_model(unsigned, trusted=public)
    signed.write_bytes(content)
    with pytest.raises(InputError, match=f"^{signed}: {ALTERED}$"):
        open_model(signed, trusted=keys / "other.pub")


@pytest.mark.parametrize("open_model", OPEN)
def test_a_key_that_is_none_is_refused_first(keys: Path, tmp_path: Path, open_model: Callable[..., Any]) -> None:
    path = tmp_path / "nowhere.kt"
    for trusted, said in (
        (tmp_path / "none.pem", "none.pem: No such file"),
        (keys / "own.pem", r"own\.pem: no public key in PEM"),
        (b"x" * 31, "the public key: no public key in PEM"),
        (keys / "exchange.pub", r"exchange\.pub: no key of Ed25519"),
    ):
        with pytest.raises(InputError, match=said):
            open_model(path, trusted=trusted)


def test_no_code_of_a_refused_file_runs(tmp_path: Path, keys: Path) -> None:
    """Its library writes a file when it is loaded."""
    mark = tmp_path / "loaded"
    source = (
        f'#include <stdio.h>\n__attribute__((constructor)) static void ran(void) {{ fclose(fopen("{mark}", "w")); }}'
    )
    (tmp_path / "kernels.c").write_text(source + "\nint __tvm_ffi_add(void) { return 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "kernels.c", "-o", "kernels.so"], cwd=tmp_path, check=True)
    path = write_model(tmp_path / "model.kt", library=(tmp_path / "kernels.so").read_bytes())
    for open_model in OPEN:
        with pytest.raises(InputError, match=UNSIGNED):
            open_model(path, trusted=keys / "own.pub")
    assert str(path) not in Path("/proc/self/maps").read_text()
    assert not mark.exists()
    sign_file(path, keys / "own.pem")
    kintune_runtime.open(path, trusted=keys / "own.pub")
    assert mark.exists()


def test_without_the_package_it_says_what_to_install(signed: Path, keys: Path) -> None:
    code = f"""if True:
        import sys
        sys.modules["cryptography"] = None
        import kintune_runtime
        try:
            kintune_runtime.open({str(signed)!r}, trusted={str(keys / "own.pub")!r})
        except kintune_runtime.InputError as error:
            print(error)
        print(kintune_runtime.open({str(signed)!r}).inputs[0].name)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first.startswith("signatures need the package cryptography")
    assert first.endswith(": pip install cryptography")
    assert second == "x"


def test_a_program_in_c_checks_by_the_systems_library(tmp_path: Path, keys: Path, signed: Path) -> None:
    program = tmp_path / "signed"
    sources = [Path(__file__).with_name("signed.c"), *(each for each in NATIVE.glob("*.c") if "onnx" not in each.name)]
    command = ["cc", "-std=gnu11", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror", "-I", INCLUDE, "-o", program]
    subprocess.run([*map(str, (*command, *sources)), "-ldl"], check=True)

    def said(path: Path, key: str, *more: str) -> list[str]:
        key = (keys / f"{key}.raw").read_bytes().hex()
        done = subprocess.run([str(program), str(path), key, *more], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    if "there is no libcrypto" in said(signed, "own")[0]:
        pytest.skip("this system has no libcrypto")
    assert said(signed, "own") == ["0 1 ", "0 1 "]
    assert said(signed, "other") == [f"9 0 {signed}: {ALTERED}", f"9 0 (memory): {ALTERED}"]
    lacking = "its signature cannot be checked: there is no libcrypto"
    assert said(signed, "own", "hidden") == [f"4 0 {signed}: {lacking}", f"4 0 (memory): {lacking}"]
    content = signed.read_bytes()
    for place in (40, PLACE + 70, PLACE + SIZE, len(content) - 1):
        signed.write_bytes(altered(content, place))
        assert said(signed, "own")[0] == f"9 0 {signed}: {ALTERED}"
    for changed in (altered(content, PLACE), content[:PLACE] + bytes(SIZE) + content[PLACE + SIZE :], content[:100]):
        signed.write_bytes(changed)
        assert said(signed, "own")[0] == f"9 0 {signed}: {UNSIGNED}"
    os.truncate(signed, 10)
    assert said(signed, "own")[0].startswith("3 0 ")
