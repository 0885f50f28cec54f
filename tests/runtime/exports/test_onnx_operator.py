"""Exports of models with hand-written kernels, run by onnxruntime."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import kintune_runtime
from kintune.core.model import Tensor
from kintune.errors import InputError
from kintune.runtime.exports.onnx_operator import LIBRARY_NAME, export_onnx
from kintune.runtime.merging import merge
from tests.support.toy_exports import PROGRAM, W, X, export, without_shapes
from tests.support.toy_hybrid import expected, write_toy_hybrid
from tests.support.toy_model import ADDING, adding, calling, write_model
from tests.support.toy_open_model import ranged, summing

NATIVE = Path(__file__).parents[3] / "runtime" / "native"
INCLUDE = NATIVE.parent / "src" / "kintune_runtime" / "include"


def session(*paths: Path, threads: int = 2) -> onnxruntime.InferenceSession:
    """A session of the first export, in which all are registered."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    for path in paths:
        options.register_custom_ops_library(str(path.with_name(LIBRARY_NAME)))
    return onnxruntime.InferenceSession(str(paths[0]), options, providers=["CPUExecutionProvider"])


def test_the_folder_has_all_that_is_needed(tmp_path: Path) -> None:
    path = export(tmp_path, ADDING)
    assert path == tmp_path / "export" / "toy.onnx"
    assert sorted(os.listdir(path.parent)) == [LIBRARY_NAME, "model.kt", "toy.onnx"]
    assert sorted(os.listdir(tmp_path)) == ["export", "toy.kt"]
    assert (path.parent / "model.kt").read_bytes() == (tmp_path / "toy.kt").read_bytes()
    network = onnx.load(path)
    onnx.checker.check_model(network)
    assert [(node.op_type, node.domain) for node in network.graph.node] == [
        ("KintuneNetwork", "kintune.0123456789abcdef")
    ]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_it_computes_what_the_model_computes(tmp_path: Path, threads: int) -> None:
    run = session(export(tmp_path, ADDING), threads=threads)
    assert [(t.name, t.shape, t.type) for t in run.get_inputs()] == [("x", [1000], "tensor(float)")]
    assert [(t.name, t.shape, t.type) for t in run.get_outputs()] == [("out", [1000], "tensor(float)")]
    for _ in range(50):
        np.testing.assert_array_equal(run.run(None, {"x": X})[0], X + W + W)


def test_a_merged_file_runs_the_variant_for_this_cpu(tmp_path: Path) -> None:
    given = [
        write_model(tmp_path / "new.kt", [ADDING], [W + 1], isa=["avx1024"]),
        write_model(tmp_path / "old.kt", [ADDING], [W]),
    ]
    run = session(export_onnx(merge(given, tmp_path / "fat.kt").path, tmp_path / "export"))
    assert [t.shape for t in run.get_inputs()] == [[1000]]
    np.testing.assert_array_equal(run.run(None, {"x": X})[0], X + W + W)


def test_inputs_at_any_address(tmp_path: Path) -> None:
    run = session(export(tmp_path, ADDING))
    memory = np.zeros(8192, np.uint8)
    for shift in (4, 60, 64):
        view = memory[shift : shift + 4000].view(np.float32)
        view[:] = X
        np.testing.assert_array_equal(run.run(None, {"x": view})[0], X + W + W)


def test_runs_of_one_session_in_many_threads(tmp_path: Path) -> None:
    run = session(export(tmp_path, ADDING))
    wrong: list[str] = []

    def many(number: int) -> None:
        x = X + np.float32(number)
        for _ in range(200):
            if not np.array_equal(run.run(None, {"x": x})[0], x + W + W):
                wrong.append(f"thread {number}")

    threads = [threading.Thread(target=many, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_two_exports_in_one_session(tmp_path: Path) -> None:
    one = export(tmp_path / "one", ADDING, digest="1" * 32)
    two = export(tmp_path / "two", ADDING, digest="2" * 32, weights=(10 * W,))
    both = onnx.load(one)
    other = onnx.load(two)
    both.graph.node.append(other.graph.node[0])
    both.graph.node[1].input[0], both.graph.node[1].output[0] = "out", "end"
    both.graph.node[1].name = "second"
    both.opset_import.append(other.opset_import[1])
    both.graph.output[0].name = "end"
    path = one.with_name("both.onnx")
    onnx.save(both, path)
    run = session(path, two)
    np.testing.assert_array_equal(run.run(None, {"x": X})[0], X + W + W + 10 * W + 10 * W)


def test_exports_of_one_model_are_refused_in_one_session_and_live_in_two(tmp_path: Path) -> None:
    one, two = export(tmp_path / "one", ADDING), export(tmp_path / "two", ADDING, weights=(10 * W,))
    with pytest.raises(Exception, match="Domain already set in registry"):
        session(one, two)
    first, second = session(one), session(two)
    np.testing.assert_array_equal(first.run(None, {"x": X})[0], X + W + W)
    np.testing.assert_array_equal(second.run(None, {"x": X})[0], X + 10 * W + 10 * W)


def test_an_export_is_registered_twice_and_after_it_was_unloaded(tmp_path: Path) -> None:
    path = export(tmp_path, ADDING)
    for _ in range(3):
        one, two = session(path), session(path)
        for run in (one, two):
            np.testing.assert_array_equal(run.run(None, {"x": X})[0], X + W + W)
        del one, two, run


def test_a_process_ends_cleanly_and_unloads_the_library(tmp_path: Path) -> None:
    path = export(tmp_path, ADDING)
    program = """
        import gc, sys, numpy as np, onnxruntime
        def loaded():
            with open("/proc/self/maps") as maps:
                return "libkintune_onnx" in maps.read()
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(sys.argv[2])
        run = onnxruntime.InferenceSession(sys.argv[1], options)
        run.run(None, {"x": np.zeros(1000, np.float32)})
        first = loaded()
        if sys.argv[3] == "unload":
            del run, options
            gc.collect()
        print(first, loaded())
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(path), str(path.with_name(LIBRARY_NAME))]
    for last, printed in (("unload", "True False\n"), ("keep", "True True\n")):
        done = subprocess.run([*command, last], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_an_input_of_another_shape_is_refused_by_its_name(tmp_path: Path) -> None:
    path = export(tmp_path, ADDING)
    with pytest.raises(Exception, match=r"invalid dimensions for input: x"):
        session(path).run(None, {"x": X[:5]})
    run = session(without_shapes(path))
    with pytest.raises(Exception, match=r"the shapes x=5 were not tuned; tuned are: x=1000"):
        run.run(None, {"x": X[:5]})
    with pytest.raises(Exception, match=r"the shapes x=10x100 were not tuned; tuned are: x=1000"):
        run.run(None, {"x": X.reshape(10, 100)})
    with pytest.raises(Exception, match=r"input 'x' has 40 axes, 1 are needed"):
        run.run(None, {"x": X[:1].reshape((1,) * 40)})
    np.testing.assert_array_equal(run.run(None, {"x": X})[0], X + W + W)


@pytest.mark.parametrize("sanitizer", ["", pytest.param("address,undefined", marks=pytest.mark.slow)])
@pytest.mark.parametrize("partly", [False, True])
def test_a_program_in_c_runs_an_export_in_four_threads(tmp_path: Path, sanitizer: str, partly: bool) -> None:
    found = sorted(Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*"))
    if not found:
        pytest.skip("this onnxruntime has no library for programs in C")
    path = first_region(tmp_path) if partly else export(tmp_path, ADDING)
    program = tmp_path / "program"
    library = path.with_name(LIBRARY_NAME)
    flags = ["-std=gnu11", "-g", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}"]
    if sanitizer:
        flags += [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"]
        sources = map(str, sorted(NATIVE.glob("*.c")))
        library.unlink()
        link = ["-shared", "-fPIC", "-fvisibility=hidden", "-o", str(library)]
        subprocess.run(["cc", *flags, *link, *sources, "-ldl"], check=True)
    subprocess.run(["cc", *flags, "-o", str(program), str(PROGRAM), "-ldl"], check=True)
    command = [str(program), str(found[0]), str(library), str(without_shapes(path))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert all("the shapes x=5 were not tuned; tuned are: x=1000" in line for line in lines[:2])
    assert lines[2] == "done"


def test_what_a_kernel_says_reaches_the_user(tmp_path: Path) -> None:
    run = session(export(tmp_path, calling("fail", (Tensor("x", (1,), "float32"),), (Tensor("y", (1,), "float32"),))))
    for _ in range(2):
        with pytest.raises(Exception, match="kernel fail: ValueError: argument 0 has three legs"):
            run.run(None, {"x": X[:1]})


def test_a_model_with_several_plans_takes_the_shapes_of_each(tmp_path: Path) -> None:
    run = session(export(tmp_path, adding(1000), adding(10)))
    assert [type(extent) for extent in run.get_inputs()[0].shape] != [int]
    for count in (1000, 10, 1000):
        np.testing.assert_array_equal(run.run(None, {"x": X[:count]})[0], X[:count] + W[:count] + W[:count])
    with pytest.raises(Exception, match=r"the shapes x=7 were not tuned; tuned are: x=1000; x=10"):
        run.run(None, {"x": X[:7]})


def test_a_model_with_open_extents_takes_any_shape_of_its_range(tmp_path: Path) -> None:
    run = session(export(tmp_path, ranged(summing())))
    assert [type(extent) for each in run.get_inputs() for extent in each.shape if isinstance(extent, int)] == []
    for count in (1000, 8, 500, 500, 1000, 12):
        given = {"x": X[:count], "y": X[-count:], "z": np.zeros(2 * count, np.float32)}
        np.testing.assert_array_equal(run.run(None, given)[0], X[:count] + X[-count:])
        with pytest.raises(Exception, match=r"10 elements along axis 0"):
            run.run(None, {name: array[:10] for name, array in given.items()})
    with pytest.raises(Exception, match=r"input 'z'"):
        run.run(None, {"x": X[:8], "y": X[:8], "z": X[:8]})


@pytest.mark.parametrize(
    ("dtype", "told"),
    [
        ("float16", "float16"), ("float32", "float"), ("float64", "double"), ("bfloat16", "bfloat16"), ("int8", "int8"),
        ("int16", "int16"), ("int32", "int32"), ("int64", "int64"), ("uint8", "uint8"), ("uint16", "uint16"),
        ("uint32", "uint32"), ("uint64", "uint64"), ("bool", "bool"),
    ],
)  # fmt: skip
def test_inputs_and_outputs_of_any_type(tmp_path: Path, dtype: str, told: str) -> None:
    ends = (Tensor("x", (2, 3), dtype), Tensor("more", (1,), "float32")), (Tensor("y", (2,), "int64"),)
    run = session(export(tmp_path, calling("indices", ends[0][::-1], ends[1])))
    assert [t.type for t in run.get_inputs()] == ["tensor(float)", f"tensor({told})"]
    assert run.get_outputs()[0].type == "tensor(int64)"
    made = session(export(tmp_path / "made", calling("fail", ends[1], (Tensor("x", (2, 3), dtype),))))
    assert made.get_outputs()[0].type == f"tensor({told})"


def test_integers_and_an_output_that_is_an_input(tmp_path: Path) -> None:
    count = session(
        export(tmp_path / "count", calling("indices", (Tensor("x", (), "float32"),), (Tensor("y", (2, 3), "int64"),)))
    )
    np.testing.assert_array_equal(count.run(None, {"x": np.array(4, np.float32)})[0], np.arange(4, 10).reshape(2, 3))
    plan = calling(
        "indices", (Tensor("x", (1,), "float32"),), (Tensor("y", (2,), "int64"), Tensor("x", (1,), "float32"))
    )
    same = session(export(tmp_path / "same", plan))
    y, x = same.run(None, {"x": X[-1:]})
    assert (y.tolist(), x.tolist()) == ([1, 2], [1.0])


def test_a_library_without_its_model_says_so(tmp_path: Path) -> None:
    path = export(tmp_path, ADDING)
    path.with_name("model.kt").unlink()
    with pytest.raises(Exception, match=r"model\.kt"):
        session(path)


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    model = write_model(tmp_path / "toy.kt")
    folder = tmp_path / "export"
    folder.mkdir()
    assert export_onnx(model, folder).exists()
    before = sorted(os.listdir(folder))
    with pytest.raises(InputError, match="is not empty"):
        export_onnx(model, folder)
    assert sorted(os.listdir(folder)) == before
    with pytest.raises(InputError, match="is not a directory"):
        export_onnx(model, model)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        export_onnx(tmp_path / "none.kt", tmp_path / "export")
    (tmp_path / "text.kt").write_text("no model")
    with pytest.raises(InputError, match="not a Kintune executable"):
        export_onnx(tmp_path / "text.kt", tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_nothing_is_left_of_an_export_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model(tmp_path / "toy.kt")

    def refuse(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(InputError, match="No space left"):
        export_onnx(model, tmp_path / "export")
    assert os.listdir(tmp_path) == ["toy.kt"]


def first_region(folder: Path) -> Path:
    """An export that runs partly in onnxruntime, and computes what that of `ADDING` does from positive numbers."""
    path = export_onnx(write_toy_hybrid(folder), folder / "export")
    network = onnx.load(path)
    del network.graph.node[1:]
    network.graph.node.append(onnx.helper.make_node("Abs", ["middle"], ["out"]))
    del network.graph.initializer[:]
    onnx.save(network, path)
    return path


def test_what_runs_partly_in_onnxruntime_is_its_graph_and_the_library(tmp_path: Path) -> None:
    path = export_onnx(write_toy_hybrid(tmp_path), tmp_path / "export")
    assert sorted(os.listdir(path.parent)) == ["hybrid.onnx", LIBRARY_NAME, "model.kt"]
    run = session(path)
    np.testing.assert_array_equal(run.run(None, {"x": X})[0], expected(X))
    other = session(export(tmp_path / "other", ADDING))  # another model in the same process
    np.testing.assert_array_equal(other.run(None, {"x": X})[0], X + W + W)
    np.testing.assert_array_equal(run.run(None, {"x": X})[0], expected(X))


def test_the_library_adds_nothing_for_what_onnxruntime_runs_alone(tmp_path: Path) -> None:
    run = session(export_onnx(write_toy_hybrid(tmp_path, regions=0), tmp_path / "export"))
    np.testing.assert_array_equal(run.run(None, {"x": X})[0], np.cumsum(X, dtype=np.float32))


def test_a_damaged_region_is_refused_by_its_name(tmp_path: Path) -> None:
    path = export_onnx(write_toy_hybrid(tmp_path), tmp_path / "export")
    model = path.with_name("model.kt")
    content = bytearray(model.read_bytes())
    content[content.rindex(b"KTPLAN") + 100] ^= 1
    model.write_bytes(content)
    for _ in range(2):
        with pytest.raises(Exception, match=r"model\.kt: region1\.kt: damaged plan"):
            session(path)


def test_the_runtime_has_the_library() -> None:
    assert Path(kintune_runtime.__file__).with_name(LIBRARY_NAME).is_file()
