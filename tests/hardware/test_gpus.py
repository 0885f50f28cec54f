from __future__ import annotations

from pathlib import Path

import pytest

from kintune.hardware import gpus
from kintune.hardware.gpus import Gpu, architecture_here, list_gpus

H100 = Gpu(0, "NVIDIA H100", "sm_90", 81559, "580.1", "GPU-aaaa-1", shared=True)
RTX = Gpu(1, "NVIDIA RTX 3090", "sm_86", 24576, "580.1", "GPU-bbbb-2", shared=False)
BOTH = """0, GPU-aaaa-1, NVIDIA H100, 9.0, 81559, 580.1, Default, Disabled
1, GPU-bbbb-2, NVIDIA RTX 3090, 8.6, 24576, 580.1, Exclusive_Process, [N/A]
"""


def driver_says(programs: Path, text: str, code: int = 0) -> None:
    program = programs / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{text}'\nexit {code}\n")
    program.chmod(0o755)


def test_the_drivers_program_lists_them(programs: Path) -> None:
    driver_says(programs, BOTH)
    assert list_gpus() == (H100, RTX)
    assert architecture_here() == "sm_90"


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        ("1", [RTX]),
        ("1,0", [RTX, H100]),
        ("0,7,1", [H100]),
        ("GPU-bbbb", [RTX]),
        ("GPU-", []),
        ("MIG-aaaa-1", []),
        ("7", []),
        ("", []),
    ],
)
def test_there_is_what_this_process_may_use_in_its_order(
    programs: Path, monkeypatch: pytest.MonkeyPatch, visible: str, found: list[Gpu]
) -> None:
    driver_says(programs, BOTH)
    monkeypatch.setenv(gpus.VISIBLE_VARIABLE, visible)
    assert list(list_gpus()) == found
    assert architecture_here() == (found[0].architecture if found else None)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("NVIDIA-SMI has failed because it could not communicate with the driver\n", 9),
        ("0, GPU-c, broken, [N/A], 81559, 580.1, Default, [N/A]\n", 0),
        ("0, GPU-e, in parts, 9.0, 81559, 580.1, Default, Enabled\n", 0),
    ],
)
def test_what_does_not_answer_is_not_there(programs: Path, text: str, code: int) -> None:
    driver_says(programs, text, code)
    assert list_gpus() == ()
    assert architecture_here() is None


def test_one_that_shares_the_hosts_memory_is_there(programs: Path) -> None:
    driver_says(programs, "0, GPU-d, NVIDIA GB10, 12.1, [N/A], 580.1, Default, [N/A]\n")
    assert list_gpus() == (Gpu(0, "NVIDIA GB10", "sm_121", 0, "580.1", "GPU-d"),)


@pytest.mark.usefixtures("programs")
def test_without_a_driver_there_are_none() -> None:
    assert list_gpus() == ()
