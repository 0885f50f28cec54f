from pathlib import Path

import pytest

from kintune.hardware.cpu import extensions, host_extensions


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
