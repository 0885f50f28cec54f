"""What the runtime cannot run anywhere is not exported."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kintune.errors import InputError
from kintune.runtime.exports.source import open_source
from kintune.runtime.package import write_vm_package
from tests.support.toy_model import ADDING, manifest, write_model


def test_a_model_for_cpus_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model(tmp_path / "toy.kt")
    monkeypatch.chdir(tmp_path)
    path, package = open_source(Path("toy.kt"))
    assert path == model
    assert package.manifest.model_name == "toy"


@pytest.mark.parametrize(
    ("target", "told"), [('{"kind": "cuda"}', "tuned for a GPU"), ("{}", "made for the compiler's virtual machine")]
)
def test_a_file_without_plans_is_refused(tmp_path: Path, target: str, told: str) -> None:
    model = tmp_path / "toy.kt"
    write_vm_package(model, msgspec.structs.replace(manifest(ADDING), target=target), b"library", [])
    with pytest.raises(InputError, match=f"{told}; exports run on CPUs"):
        open_source(model)
