from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kintune.doctor.checks import check_gpus
from kintune.errors import OrderError
from kintune.hardware.check import Verdict
from kintune.hardware.gpus import Gpu

H100 = Gpu(0, "NVIDIA H100", "sm_90", 81559, "580.1")


def no_compiler() -> str:
    raise OrderError("no CUDA compiler found: install nvcc, or name the toolkit in CUDA_HOME")


def test_a_machine_without_gpus_lacks_nothing() -> None:
    (check,) = check_gpus(lambda: (), no_compiler)
    assert (check.verdict, check.finding) == (Verdict.GOOD, "none")
    assert [each.name for each in check_gpus(lambda: (), lambda: "/opt/nvcc")] == ["GPUs", "CUDA compiler"]


def test_gpus_are_told_with_what_names_them() -> None:
    gpu, compiler = check_gpus(lambda: (H100,), lambda: "/opt/nvcc")
    assert gpu.name == "GPU 0"
    assert gpu.finding == "NVIDIA H100, sm_90, 81559 MB, driver 580.1; --device cuda:0"
    assert compiler.finding == "/opt/nvcc"


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"driver": "550.54"}, "driver 580 or later"),
        ({"architecture": "sm_70"}, "sm_75 and later only"),
        ({"shared": False}, "nvidia-smi -i 0 -c DEFAULT"),
    ],
)
def test_one_that_cannot_be_used_comes_with_a_remedy(change: dict[str, Any], remedy: str) -> None:
    check, _ = check_gpus(lambda: (msgspec.structs.replace(H100, **change),), lambda: "/opt/nvcc")
    assert check.verdict is Verdict.NOTE
    assert remedy in check.remedy


def test_a_gpu_without_a_compiler_is_worth_a_note() -> None:
    _, compiler = check_gpus(lambda: (H100,), no_compiler)
    assert compiler.verdict is Verdict.NOTE
    assert (compiler.finding, compiler.remedy) == (
        "no CUDA compiler found",
        "install nvcc, or name the toolkit in CUDA_HOME",
    )
