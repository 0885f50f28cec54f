from __future__ import annotations

from pathlib import Path

import pytest

from kintune.hardware.arm_names import arm_name
from kintune.hardware.cpu import inspect_machine


def core(designer: str, part: str) -> dict[str, str]:
    return {"processor": "0", "CPU implementer": designer, "CPU part": part}


@pytest.mark.parametrize(
    ("cores", "name"),
    [
        ([core("0x41", "0xd0b")] * 4, "Cortex-A76"),
        ([core("0x41", "0xd05"), core("0x41", "0xd05"), core("0x41", "0xd0b")], "Cortex-A55, Cortex-A76"),
        ([core("0xc0", "0xac3")], "Ampere-1"),
        ([core("0x41", "0xfff")], "part 0xfff of designer 0x41"),
        ([core("0x61", "0xd0b")], "part 0xd0b of designer 0x61"),
        ([core("?", "0xd0b")], ""),
        ([{"Hardware": "BCM2835"}], ""),
        ([], ""),
    ],
)
def test_numbers_are_named(cores: list[dict[str, str]], name: str) -> None:
    assert arm_name(cores) == name


def test_the_board_is_named_beside_it(tmp_path: Path) -> None:
    """The device tree ends its texts with a zero."""
    (tmp_path / "proc/device-tree").mkdir(parents=True)
    (tmp_path / "proc/device-tree/model").write_bytes(b"Raspberry Pi 5 Model B Rev 1.0\0")
    (tmp_path / "proc/cpuinfo").write_text(
        "processor\t: 0\nFeatures\t: fp asimd asimddp\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n\n"
        "Revision\t: c04170\nModel\t\t: Raspberry Pi 5 Model B Rev 1.0\n"
    )
    machine = inspect_machine(tmp_path)
    assert machine.cpu == "Cortex-A76 (Raspberry Pi 5 Model B Rev 1.0)"
    assert machine.features == ("asimd", "asimddp")


def test_a_board_without_numbers_of_its_processor_has_no_name() -> None:
    assert arm_name([{}], "Some board") == ""
