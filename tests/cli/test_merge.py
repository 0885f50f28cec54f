from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kintune_runtime import Evaluation
from tests.support.toy_hybrid import write_toy_hybrid
from tests.support.toy_model import write_model

if TYPE_CHECKING:
    from tests.support.command import Kintune

HERE = platform.machine()


@pytest.fixture(autouse=True)
def _prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "a.kt", isa=["avx1024"], threads=1, cpu="A CPU")
    write_model(tmp_path / "b.kt", threads=2)


def test_it_says_what_the_file_has(kintune: Kintune, tmp_path: Path) -> None:
    said = kintune("merge", "a.kt", "b.kt", "--output", "fat.kt")
    assert said.code == 0
    first, second, last = said.out.splitlines()
    assert first == f"variant 0: {HERE} (A CPU), 1 thread, avx1024"
    assert second == f"variant 1: {HERE}, 2 threads, no extensions"
    assert last.startswith(f"The result is {tmp_path / 'fat.kt'}: ")
    assert last.endswith("; 4.00 kB of weights are stored once")


def test_the_document_has_the_variants(kintune: Kintune, tmp_path: Path) -> None:
    document = json.loads(kintune("merge", "a.kt", "b.kt", "--output", "fat.kt", "--json", "-").out)
    assert document == {
        "schema_version": 1,
        "output": str(tmp_path / "fat.kt"),
        "model": "toy",
        "variants": [
            {"number": 0, "machine": HERE, "cpu": "A CPU", "isa": ["avx1024"], "threads": 1},
            {"number": 1, "machine": HERE, "cpu": "", "isa": [], "threads": 2},
        ],
        "nbytes": (tmp_path / "fat.kt").stat().st_size,
        "input_nbytes": [(tmp_path / name).stat().st_size for name in ("a.kt", "b.kt")],
        "shared_nbytes": 4000,
    }


def test_evaluate_says_which_variant_it_has_timed(kintune: Kintune, monkeypatch: pytest.MonkeyPatch) -> None:
    steady = Evaluation.of([1.0, 1.0])  # a line on times that vary would come between, on a machine in use
    monkeypatch.setattr(Evaluation, "of", lambda *_: steady)
    kintune("merge", "a.kt", "b.kt", "--output", "fat.kt")
    said = kintune("evaluate", "fat.kt", "--repeats", 2)
    assert said.out.splitlines()[2:] == [
        "variant 1 of these was timed:",
        f"variant 0: {HERE} (A CPU), 1 thread, avx1024",
        f"variant 1: {HERE}, 2 threads, no extensions",
    ]
    document = json.loads(kintune("evaluate", "fat.kt", "--repeats", 2, "--json", "-").out)
    assert (document["variant"], [each["cpu"] for each in document["variants"]]) == (1, ["A CPU", ""])
    assert len(kintune("evaluate", "b.kt", "--repeats", 2).out.splitlines()) == 2
    for number, reason in ((0, "lacks: avx1024"), (2, "has no variant 2")):
        said = kintune("evaluate", "fat.kt", "--variant", number)
        assert (said.code, said.err.count("\n")) == (2, 1)
        assert reason in said.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a.kt"], "needs two files or more"),
        (["a.kt", "none.kt"], "none.kt does not exist"),
        (["a.kt", "a.kt"], "are for the same CPU"),
        (["a.kt", __file__], "not a Kintune executable"),
    ],
)
def test_wrong_files_are_one_line(kintune: Kintune, arguments: list[str], said: str) -> None:
    told = kintune("merge", *arguments, "--output", "fat.kt")
    assert (told.code, told.out, told.err.count("\n")) == (2, "", 1)
    assert said in told.err
    assert not Path("fat.kt").exists()


def test_files_and_an_output_are_required(kintune: Kintune) -> None:
    assert kintune("merge", "--output", "fat.kt").code == 2
    assert "--output" in kintune("merge", "a.kt", "b.kt").err


def test_what_runs_partly_in_onnxruntime_is_not_merged(kintune: Kintune, tmp_path: Path) -> None:
    said = kintune("merge", "a.kt", write_toy_hybrid(tmp_path), "--output", "fat.kt")
    assert (said.code, len(said.err.splitlines())) == (2, 1)
    assert "hybrid.kt: runs partly in onnxruntime (1 CumSum): a file for several CPUs cannot have that" in said.err
    assert not (tmp_path / "fat.kt").exists()
