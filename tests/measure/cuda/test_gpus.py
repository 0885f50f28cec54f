from __future__ import annotations

from pathlib import Path

import pytest

from kintune.measure.cuda import gpus
from kintune.measure.cuda.gpus import Gpu, architecture_here, is_gpu, list_gpus

H100, RTX = Gpu(0, "NVIDIA H100", "sm_90", 81559, "580.1"), Gpu(1, "NVIDIA RTX 3090", "sm_86", 24576, "580.1")


def driver_says(programs: Path, text: str, code: int = 0) -> None:
    program = programs / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{text}'\nexit {code}\n")
    program.chmod(0o755)


def test_the_drivers_program_lists_them(programs: Path) -> None:
    driver_says(programs, "0, NVIDIA H100, 9.0, 81559, 580.1\n1, NVIDIA RTX 3090, 8.6, 24576, 580.1\n")
    assert list_gpus() == (H100, RTX)
    assert architecture_here() == "sm_90"


@pytest.mark.parametrize(
    ("visible", "found"), [("1", "sm_86"), ("1,0", "sm_86"), ("0", "sm_90"), ("7", None), ("", None)]
)
def test_the_first_one_is_the_first_that_this_process_may_use(
    programs: Path, monkeypatch: pytest.MonkeyPatch, visible: str, found: str | None
) -> None:
    driver_says(programs, "0, NVIDIA H100, 9.0, 81559, 580.1\n1, NVIDIA RTX 3090, 8.6, 24576, 580.1\n")
    monkeypatch.setenv(gpus.VISIBLE_VARIABLE, visible)
    assert architecture_here() == found


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("NVIDIA-SMI has failed because it could not communicate with the driver\n", 9),
        ("0, broken, [N/A], [N/A], 1\n", 0),
    ],
)
def test_what_does_not_answer_is_not_there(programs: Path, text: str, code: int) -> None:
    driver_says(programs, text, code)
    assert list_gpus() == ()
    assert architecture_here() is None


@pytest.mark.usefixtures("programs")
def test_without_a_driver_there_are_none() -> None:
    assert list_gpus() == ()


def test_a_canonical_target_says_whether_it_is_one() -> None:
    assert is_gpu('{"kind": "cuda", "arch": "sm_90"}')
    assert not is_gpu('{"kind": "llvm"}')
    assert not is_gpu("{}")
