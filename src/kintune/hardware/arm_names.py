"""Names of processors of Arm, whose `/proc/cpuinfo` gives numbers in place of a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["arm_name"]

_ARM = {
    0xD03: "Cortex-A53", 0xD04: "Cortex-A35", 0xD05: "Cortex-A55", 0xD07: "Cortex-A57", 0xD08: "Cortex-A72",
    0xD09: "Cortex-A73", 0xD0A: "Cortex-A75", 0xD0B: "Cortex-A76", 0xD0C: "Neoverse-N1", 0xD0D: "Cortex-A77",
    0xD0E: "Cortex-A76AE", 0xD40: "Neoverse-V1", 0xD41: "Cortex-A78", 0xD42: "Cortex-A78AE", 0xD44: "Cortex-X1",
    0xD46: "Cortex-A510", 0xD47: "Cortex-A710", 0xD48: "Cortex-X2", 0xD49: "Neoverse-N2", 0xD4B: "Cortex-A78C",
    0xD4D: "Cortex-A715", 0xD4E: "Cortex-X3", 0xD4F: "Neoverse-V2", 0xD80: "Cortex-A520", 0xD81: "Cortex-A720",
    0xD82: "Cortex-X4", 0xD84: "Neoverse-V3", 0xD85: "Cortex-X925", 0xD87: "Cortex-A725", 0xD8E: "Neoverse-N3",
}  # fmt: skip
"""Arm's own designs by part, as Linux and LLVM list them."""

_OTHERS = {
    (0x46, 0x001): "Fujitsu A64FX",
    (0x48, 0xD01): "HiSilicon TSV110",
    (0x4E, 0x004): "NVIDIA Carmel",
    (0xC0, 0xAC3): "Ampere-1",
    (0xC0, 0xAC4): "Ampere-1A",
}

_DESIGNED_BY_ARM = 0x41


def arm_name(cores: Iterable[Mapping[str, str]], board: str = "") -> str:
    """The name of a processor by the entries of its cores in `/proc/cpuinfo`; empty where they have no numbers.

    Kinds of cores are listed in the order in which they appear.  `board` is what the device tree calls the board.
    """
    names: dict[str, None] = {}
    for core in cores:
        try:
            designer, part = int(core["CPU implementer"], 16), int(core["CPU part"], 16)
        except (KeyError, ValueError):
            continue
        known = _ARM.get(part) if designer == _DESIGNED_BY_ARM else _OTHERS.get((designer, part))
        names[known or f"part {part:#x} of designer {designer:#x}"] = None
    name = ", ".join(names)
    return f"{name} ({board})" if name and board else name
