"""What this machine is: cores, caches, instruction sets, memory, as Linux tells it."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from kintune.core.device import Cache, Machine
from kintune.hardware.arm_names import arm_name
from kintune.hardware.cores import physical_cores
from kintune.hardware.quota import cpu_quota, threads_within

__all__ = [
    "data_caches",
    "extensions",
    "host_extensions",
    "host_machine",
    "inspect_machine",
    "last_level_bytes",
    "spelled",
]


_PROCESSORS = "sys/devices/system/cpu"

_LAST_LEVEL = ("level", "size", "shared_cpu_list")

_FEATURES = (
    "sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "asimd", "asimdhp", "asimddp", "sve", "sve2", "bf16", "i8mm",
)  # fmt: skip
"""Instruction set extensions that decide how fast a model runs, in the kernel's spelling."""


def inspect_machine(root: Path = Path("/")) -> Machine:
    """Describe this machine; `root` is where `proc` and `sys` lie."""
    import psutil  # slow to import, and not needed to open an executable, which imports this module

    logical = psutil.cpu_count() or 1
    physical = psutil.cpu_count(logical=False) or logical
    usable = len(os.sched_getaffinity(0))
    cores = len(physical_cores(root=root / _PROCESSORS))
    processors = _processors(root / "proc/cpuinfo")
    cpuinfo = processors[0] if processors else {}
    quota = cpu_quota(root)
    flags = set((cpuinfo.get("flags") or cpuinfo.get("Features") or "").split())
    return Machine(
        cpu=cpuinfo.get("model name") or arm_name(processors, _board(root)) or platform.processor() or "unknown",
        architecture=platform.machine(),
        physical_cores=physical,
        logical_cores=logical,
        usable_cores=usable,
        threads=threads_within(max(1, min(physical, cores)), root),
        memory=psutil.virtual_memory().total,
        caches=_caches(root / _PROCESSORS / "cpu0/cache"),
        features=tuple(feature for feature in _FEATURES if feature in flags),
        quota_cores=None if quota is None else quota.cores,
    )


def data_caches(machine: Machine) -> tuple[int, int, int]:
    """Bytes of data that the caches of levels 1 to 3 hold; 0 where that is not known."""
    sizes = {cache.level: cache.size for cache in machine.caches if cache.kind != "instruction"}
    return sizes.get(1, 0), sizes.get(2, 0), sizes.get(3, 0)


def last_level_bytes(cores: Sequence[int], root: Path = Path("/")) -> int:
    """Bytes of all caches of the last level that these processors have together; 0 where that is not known.

    A processor may have several, each shared by some of its cores.  `root` is where `sys` lies.
    """
    sizes: dict[str, int] = {}
    for core in cores:
        found = []
        for entry in (root / _PROCESSORS / f"cpu{core}" / "cache").glob("index*"):
            with contextlib.suppress(OSError, ValueError):
                level, size, shared = ((entry / name).read_text().strip() for name in _LAST_LEVEL)
                found.append((int(level), _bytes(size), shared))
        if found:
            _, last, sharers = max(found)
            sizes[sharers] = last
    return sum(sizes.values())


def _processors(path: Path) -> list[dict[str, str]]:
    """The entries of each processor; none where there is no such file."""
    try:
        text = path.read_text()
    except OSError:
        return []
    lines = (block.splitlines() for block in text.split("\n\n") if block.strip())
    return [{key.strip(): value.strip() for key, _, value in (line.partition(":") for line in each)} for each in lines]


def _board(root: Path) -> str:
    """What the device tree calls the board; empty where there is none."""
    try:
        return (root / "proc/device-tree/model").read_text(errors="replace").strip("\0 \n")
    except OSError:
        return ""


def _caches(folder: Path) -> tuple[Cache, ...]:
    """The caches listed in `folder`, without those whose level, type or size cannot be read."""
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


_X86 = {
    *("sse3", "ssse3", "sse41", "sse42", "avx", "avx2", "fma", "f16c"),
    *("avxvnni", "avxvnniint8", "avxvnniint16", "avxifma", "avxneconvert"),
    *("avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "avx512ifma", "avx512vbmi", "avx512vbmi2"),
    *("avx512vnni", "avx512bitalg", "avx512vpopcntdq", "avx512bf16", "avx512fp16", "avx512vp2intersect"),
    *("amxtile", "amxint8", "amxbf16", "amxfp16"),
}


_ARM = {"neon", "fp16", "dotprod", "i8mm", "bf16", "sve", "sve2", "sme"}

_SYNONYMS = {  # as Linux spells them: as LLVM does
    "pni": "sse3",
    "asimd": "neon",
    "asimdhp": "fp16",
    "fullfp16": "fp16",
    "asimddp": "dotprod",
}


def extensions(names: Iterable[str]) -> tuple[str, ...]:
    """The extensions that matter among `names`, in our spelling, sorted."""
    plain = ("".join(filter(str.isalnum, name.lower())) for name in names)
    return tuple(sorted((_X86 | _ARM).intersection(_SYNONYMS.get(name, name) for name in plain)))


def spelled(names: Collection[str]) -> str:
    """The extensions of these names, as the kernel spells them, as alternatives in a message."""
    *most, last = (each for each in _FEATURES if not set(extensions([each])).isdisjoint(names))
    return f"{', '.join(most)} or {last}"


def host_machine() -> str:
    """The architecture of this machine, as `platform.machine()` says it: `x86_64`, `aarch64`."""
    return platform.machine()


def host_extensions(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, ...] | None:
    """The extensions that the kernel says every CPU of this machine has; None where it does not say."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return None
    listed = [
        set(extensions(flags.split()))
        for key, _, flags in (line.partition(":") for line in lines)
        if key.strip() in ("flags", "Features")
    ]
    return tuple(sorted(set.intersection(*listed))) if listed else None
