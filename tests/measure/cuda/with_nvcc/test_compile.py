from __future__ import annotations

import struct

import pytest

from kintune.errors import BuildError
from kintune.hardware.toolchain import compile_cubin

KERNEL = 'extern "C" __global__ void add(float* a) { a[threadIdx.x] += 1.0f; }'
CUDA_MACHINE = 190  # EM_CUDA, in the header of an ELF file


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_a_source_becomes_machine_code_of_a_gpu(architecture: str) -> None:
    cubin = compile_cubin(KERNEL, architecture)
    assert cubin.startswith(b"\x7fELF")
    assert struct.unpack_from("<H", cubin, 18) == (CUDA_MACHINE,)
    assert architecture.encode() in cubin


@pytest.mark.parametrize(
    ("code", "architecture", "said"),
    [
        ('extern "C" __global__ void add(float* a) { a[0] = nothing; }', "sm_90", 'identifier "nothing" is undefined'),
        (KERNEL, "sm_13", "sm_13|compute_13|gpu-architecture"),
    ],
)
def test_what_does_not_compile_is_told_in_one_line(code: str, architecture: str, said: str) -> None:
    with pytest.raises(BuildError, match=said) as caught:
        compile_cubin(code, architecture)
    assert "\n" not in str(caught.value)
