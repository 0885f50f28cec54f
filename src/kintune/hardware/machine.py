"""What this machine is: cores, caches, instruction sets, memory, as Linux tells it."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import psutil

from kintune.core.machine import Cache, Machine

__all__ = ["data_caches", "inspect_machine"]

_FEATURES = (
    "sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "asimd", "asimdhp", "asimddp", "sve", "sve2", "bf16", "i8mm",
)  # fmt: skip
"""Instruction set extensions that decide how fast a model runs, in the kernel's spelling."""


def inspect_machine(root: Path = Path("/")) -> Machine:
    """Describe this machine; `root` is where `proc` and `sys` lie."""
    logical = psutil.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or logical
    usable = len(os.sched_getaffinity(0))
    cpuinfo = _cpuinfo(root / "proc/cpuinfo")
    flags = set((cpuinfo.get("flags") or cpuinfo.get("Features") or "").split())
    return Machine(
        cpu=cpuinfo.get("model name") or platform.processor() or "unknown",
        architecture=platform.machine(),
        physical_cores=physical,
        logical_cores=logical,
        usable_cores=usable,
        threads=max(1, min(physical, usable)),
        memory=psutil.virtual_memory().total,
        caches=_caches(root / "sys/devices/system/cpu/cpu0/cache"),
        features=tuple(feature for feature in _FEATURES if feature in flags),
    )


def data_caches(machine: Machine) -> tuple[int, int, int]:
    """Bytes of data that the caches of levels 1 to 3 hold; 0 where that is not known."""
    sizes = {cache.level: cache.size for cache in machine.caches if cache.kind != "instruction"}
    return sizes.get(1, 0), sizes.get(2, 0), sizes.get(3, 0)


def _cpuinfo(path: Path) -> dict[str, str]:
    """The first processor's entries; empty where there is no such file."""
    entries: dict[str, str] = {}
    try:
        text = path.read_text()
    except OSError:
        return entries
    for line in text.split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition(":")
        entries[key.strip()] = value.strip()
    return entries


def _caches(folder: Path) -> tuple[Cache, ...]:
    """The caches listed in `folder`; those that do not say what they are, are left out."""
    caches = []
    for entry in sorted(folder.glob("index*")):
        try:
            level = int((entry / "level").read_text())
            kind = (entry / "type").read_text().strip().lower()
            size = _bytes((entry / "size").read_text().strip())
        except (OSError, ValueError):
            continue
        caches.append(Cache(level, kind, size))
    return tuple(caches)


def _bytes(text: str) -> int:
    """Read a size as the kernel writes it: `48K`, `2M`, or plain bytes."""
    units = {"K": 1024, "M": 1024**2, "G": 1024**3}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)
