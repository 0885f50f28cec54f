from __future__ import annotations

import os
from pathlib import Path

import pytest

from kintune.core.device import Cache
from kintune.hardware.cpu import data_caches, extensions, host_extensions, inspect_machine, last_level_bytes

CPUINFO = """\
processor\t: 0
model name\t: Example CPU 9000
flags\t\t: fpu sse4_2 avx2 fma mmx amx_bf16

processor\t: 1
model name\t: Another CPU
flags\t\t: avx512f
"""


def write_cache(root: Path, index: int, **entries: str) -> None:
    folder = root / "sys/devices/system/cpu/cpu0/cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, text in entries.items():
        (folder / name).write_text(f"{text}\n")


def test_the_first_processor_speaks_for_all(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(CPUINFO)
    machine = inspect_machine(tmp_path)
    assert machine.cpu == "Example CPU 9000"
    assert machine.features == ("sse4_2", "fma", "avx2", "amx_bf16")


def test_caches_are_read_with_their_units(tmp_path: Path) -> None:
    write_cache(tmp_path, 0, level="1", type="Data", size="48K")
    write_cache(tmp_path, 1, level="3", type="Unified", size="2M")
    write_cache(tmp_path, 2, level="?", type="Unified", size="2M")
    write_cache(tmp_path, 3, level="4", type="Unified")
    assert inspect_machine(tmp_path).caches == (Cache(1, "data", 48 * 1024), Cache(3, "unified", 2 * 1024**2))


def test_a_machine_that_tells_nothing_still_has_cores(tmp_path: Path) -> None:
    machine = inspect_machine(tmp_path)
    assert (machine.caches, machine.features) == ((), ())
    assert 1 <= machine.threads <= min(machine.physical_cores, machine.usable_cores)
    assert machine.memory > 0


def test_data_caches_are_told_by_level(tmp_path: Path) -> None:
    write_cache(tmp_path, 0, level="1", type="Data", size="48K")
    write_cache(tmp_path, 1, level="1", type="Instruction", size="32K")
    write_cache(tmp_path, 2, level="3", type="Unified", size="2M")
    assert data_caches(inspect_machine(tmp_path)) == (48 * 1024, 0, 2 * 1024**2)


def test_both_spellings_give_the_same_names() -> None:
    compiler = ["sse3", "sse4.1", "avx512vnni", "avx512bf16", "amx-bf16", "avxvnni", "fast-gather", "cmov", "64bit"]
    kernel = ["pni", "sse4_1", "avx512_vnni", "avx512_bf16", "amx_bf16", "avx_vnni", "cmov", "lm"]
    assert extensions(compiler) == extensions(kernel)
    assert extensions(kernel) == ("amxbf16", "avx512bf16", "avx512vnni", "avxvnni", "sse3", "sse41")


def test_both_spellings_of_arm_give_the_same_names() -> None:
    assert extensions(["neon", "fullfp16", "dotprod", "i8mm"]) == extensions(["asimd", "asimdhp", "asimddp", "i8mm"])


@pytest.mark.parametrize("key", ["flags\t\t", "Features\t"])
def test_the_host_has_what_all_its_processors_have(tmp_path: Path, key: str) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor: 0\n{key}: avx2 avx512f sve\n\nprocessor: 1\n{key}: avx2 sve\nvmx flags: avx512f\n")
    assert host_extensions(cpuinfo) == ("avx2", "sve")


def test_a_kernel_that_does_not_say_is_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("model name: something\n")
    assert host_extensions(tmp_path / "cpuinfo") is None
    assert host_extensions(tmp_path / "missing") is None


def write_processor(root: Path, number: int, siblings: str, last_level: str = "", sharers: str = "") -> None:
    folder = root / f"sys/devices/system/cpu/cpu{number}"
    (folder / "topology").mkdir(parents=True)
    (folder / "topology/thread_siblings_list").write_text(f"{siblings}\n")
    for index, (level, size, shared) in enumerate((("2", "512K", str(number)), ("3", last_level, sharers))):
        if size:
            (folder / f"cache/index{index}").mkdir(parents=True)
            for name, text in (("level", level), ("size", size), ("shared_cpu_list", shared)):
                (folder / f"cache/index{index}" / name).write_text(f"{text}\n")


def test_threads_of_one_core_count_once(tmp_path: Path) -> None:
    for number in os.sched_getaffinity(0):
        write_processor(tmp_path, number, "0-63")
    assert inspect_machine(tmp_path).threads == 1


def test_the_caches_of_the_last_level_are_added_up(tmp_path: Path) -> None:
    for number in range(6):
        group = number // 2
        write_processor(tmp_path, number, str(number), "32M", f"{2 * group}-{2 * group + 1}")
    assert last_level_bytes(range(6), tmp_path) == 3 * 32 << 20
    assert last_level_bytes((0, 1, 4), tmp_path) == 2 * 32 << 20
    assert last_level_bytes((7,), tmp_path) == 0
    write_processor(tmp_path, 7, "7")
    assert last_level_bytes((0, 7), tmp_path) == (32 << 20) + (512 << 10)
