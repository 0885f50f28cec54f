"""Which instruction set extensions a program needs and which this CPU has, in one spelling.

The compiler and the kernel spell them differently (`sse4.1` and `sse4_1`, `avx512vnni` and `avx512_vnni`); here all are
lower case without punctuation.  Only vector and matrix extensions are named: a CPU that has one of those has the
scalar extensions of its generation too.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from pathlib import Path

__all__ = ["extensions", "host_extensions", "host_machine"]

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
