"""Denormal numbers: flushed to zero in all threads of a run, unless the file keeps them."""

from __future__ import annotations

import platform
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import kintune_runtime
from kintune.core.hybrid import Hybrid
from kintune.core.model import Tensor
from kintune.runtime.hybrid_package import HybridPackage, write_hybrid
from kintune_runtime import RunError
from kintune_runtime.denormals import DenormalsWatch, Flushing
from kintune_runtime.library import library
from tests.support.emulator import FOR_AARCH64, run_emulated
from tests.support.toy_hybrid import one_region
from tests.support.toy_model import adding, calling, manifest, write_model

NATIVE = Path(__file__).parents[2] / "runtime" / "native"
SUPPORT = Path(__file__).parents[1] / "support"

COUNT = 4096
TINY = np.full(COUNT, 1e-40, np.float32)
ZEROS = np.zeros(COUNT, np.float32)


def is_flushing() -> bool:
    """Whether the calling thread flushes denormal numbers to zero."""
    return not (TINY[:1] * np.float32(1)).any()


def control_state() -> int:
    """The calling thread's state, without the flags of exceptions that occurred."""
    before = library().kt_denormals_watch()
    library().kt_denormals_restore(before)
    return int(before) & 0xFFFFFFC0


@pytest.fixture(params=[False, True], ids=["keeping caller", "flushing caller"], autouse=True)
def caller(request: pytest.FixtureRequest) -> Iterator[None]:
    """The caller's own state, which no test may change."""
    with Flushing(request.param):
        before = control_state()
        yield
        assert control_state() == before
        assert is_flushing() == request.param


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_all_threads_of_a_run_flush(tmp_path: Path, threads: int) -> None:
    model = kintune_runtime.open(write_model(tmp_path / "toy.kt", [adding(COUNT)], [ZEROS]))
    for _ in range(20):
        assert not model.run(TINY, threads=threads)["out"].any()
    np.testing.assert_array_equal(model.run(TINY + np.float32(1), threads=threads)["out"], ZEROS + 1)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_file_can_keep_them(tmp_path: Path, threads: int) -> None:
    path = write_model(tmp_path / "toy.kt", [adding(COUNT)], [ZEROS], keep_denormals=True)
    model = kintune_runtime.open(path)
    for _ in range(20):
        assert (model.run(TINY, threads=threads)["out"].view(np.int32) == TINY.view(np.int32)).all()
    assert model.description["executable"]["keep_denormals"] is True


def test_the_state_comes_back_where_a_run_fails(tmp_path: Path) -> None:
    one = [Tensor("x", (1,), "float32")]
    model = kintune_runtime.open(write_model(tmp_path / "fails.kt", [calling("fail", one, one)], []))
    with pytest.raises(RunError, match="legs"):
        model.run(np.zeros(1, np.float32))


def in_c(folder: Path, compiler: Sequence[str], machine: str = platform.machine(), isa: Sequence[str] = ()) -> Path:
    """Compiles the program in C with the runtime, and writes its models; returns the program."""
    library = folder / "kernels.so"
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", library, SUPPORT / "toy_kernels.c"], check=True)
    for name, keep in (("flush.kt", False), ("keep.kt", True)):
        write_model(
            folder / name, [adding(COUNT)], [ZEROS], machine=machine, isa=isa, library=library.read_bytes(),
            keep_denormals=keep,
        )  # fmt: skip
    sources = [Path(__file__).with_name("denormals.c"), *sorted(NATIVE.glob("*.c"))]
    include = NATIVE.parent / "src" / "kintune_runtime" / "include"
    flags = ["-std=gnu11", "-O1", "-pthread", f"-I{include}", "-o", folder / "program"]
    subprocess.run([*compiler, *flags, *sources, "-ldl"], check=True)
    return folder / "program"


@pytest.mark.parametrize("caller", [False], indirect=True)
def test_the_interface_in_c_does_alike(tmp_path: Path) -> None:
    program = in_c(tmp_path, ["cc"])
    done = subprocess.run(
        [program, tmp_path / "flush.kt", tmp_path / "keep.kt"], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("done\n", "")


@pytest.mark.needs("ziglang", "qemu-aarch64")
@pytest.mark.parametrize("caller", [False], indirect=True)
def test_aarch64_does_alike(tmp_path: Path) -> None:
    program = in_c(tmp_path, FOR_AARCH64, "aarch64", ["neon"])
    done = run_emulated([program, tmp_path / "flush.kt", tmp_path / "keep.kt"], tmp_path)
    assert (done.stdout, done.stderr) == ("done\n", "")


def graph_of_mul(extent: int) -> bytes:
    """y = x / 2."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [extent]) for name in "xy"]
    half = helper.make_tensor("half", TensorProto.FLOAT, [], [0.5])
    graph = helper.make_graph([helper.make_node("Mul", ["x", "half"], ["y"])], "half", ends[:1], ends[1:], [half])
    made: bytes = helper.make_model(
        graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 15)]
    ).SerializeToString()
    return made


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_sessions_of_onnxruntime_do_alike(tmp_path: Path, keep: bool, threads: int) -> None:
    extent = 1 << 20  # so many that all threads have a part
    ends = [[Tensor(name, (extent,), "float32")] for name in "xy"]
    described = msgspec.structs.replace(
        manifest(calling("add", *ends), keep_denormals=keep), hybrid=Hybrid((), {"Mul": 1}, {}, ())
    )
    write_hybrid(tmp_path / "half.kt", described, graph_of_mul(extent), [])
    model = kintune_runtime.open(tmp_path / "half.kt")
    x = np.resize(TINY, extent)
    for _ in range(5):
        y = model.run(x, threads=threads)["y"].view(np.int32)
        assert (y != 0).all() if keep else not y.any()


def test_the_threads_of_a_session_flush_in_regions_alone(tmp_path: Path) -> None:
    path = one_region(tmp_path, adding(COUNT))
    package = HybridPackage.open(path)
    kept = msgspec.structs.replace(package.manifest, keep_denormals=True)
    write_hybrid(path, kept, package.graph, [package.region(0)])
    model = kintune_runtime.open(path)
    w = np.arange(COUNT, dtype=np.float32)
    for _ in range(20):
        out = model.run(TINY, threads=3)["out"]
        assert out[0] == 0  # 1e-40 + 0 + 0
        np.testing.assert_array_equal(out[1:], 2 * w[1:])


def test_threads_do_not_disturb_each_other(tmp_path: Path) -> None:
    flushing = kintune_runtime.open(write_model(tmp_path / "flush.kt", [adding(COUNT)], [ZEROS]))
    keeping = kintune_runtime.open(write_model(tmp_path / "keep.kt", [adding(COUNT)], [ZEROS], keep_denormals=True))
    wrong: list[str] = []

    def run(model: kintune_runtime.Executable, flushes: bool) -> None:
        with model.context(threads=2) as context:
            for _ in range(200):
                if context.run(TINY)["out"].view(np.int32).any() == flushes:
                    wrong.append("flushed" if not flushes else "kept")

    threads = [threading.Thread(target=run, args=each) for each in ((flushing, True), (keeping, False))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("flush", [False, True])
def test_a_watch_tells_whether_they_occur(flush: bool) -> None:
    met = []
    for factor in (0.5, 1e-20):  # Python's own numbers: numpy clears the flags
        value = 1e-300
        with Flushing(flush), DenormalsWatch() as watch:
            value *= factor
            value += 1.0
        met.append(watch.met)
    assert met == [False, True]
