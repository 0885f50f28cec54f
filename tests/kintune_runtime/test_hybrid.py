"""Files that run partly in onnxruntime, with regions written by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest

import kintune_runtime
from kintune.core.execution_plan import KernelCall
from kintune.core.model import IndexCheck, Tensor
from kintune.runtime.hybrid_package import write_hybrid
from kintune.runtime.stored_zip import write_members
from kintune_runtime import HybridExecutable, InputError, KintuneError, RunError
from kintune_runtime.hybrid import is_hybrid
from kintune_runtime.inputs import draw_inputs
from tests.support.string_models import write_classifier, write_text_model
from tests.support.toy_hybrid import W, X, expected, host_graph, hybrid_manifest, one_region, write_toy_hybrid
from tests.support.toy_model import calling, write_model


@pytest.fixture
def model(tmp_path: Path) -> HybridExecutable:
    opened = kintune_runtime.open(write_toy_hybrid(tmp_path))
    assert isinstance(opened, HybridExecutable)
    return opened


def test_it_says_what_it_takes_and_gives(model: HybridExecutable) -> None:
    assert [(t.name, t.shape, t.dtype) for t in model.inputs] == [("x", (1000,), "float32")]
    assert [(t.name, t.shape, t.dtype) for t in model.outputs] == [("out", (1000,), "float32")]
    assert model.plans == (model.inputs,)
    assert repr(model) == "Executable(x: float32[1000])"
    assert model.description["executable"]["hybrid"]["operators"] == {"CumSum": 1}
    assert (model.variant.number, model.variant.total, model.variant.threads) == (0, 1, 2)
    assert model.described_inputs()[0].name == "x"


@pytest.mark.parametrize("threads", [0, 1, 2, 4])
def test_it_computes_on_any_number_of_threads(model: HybridExecutable, threads: int) -> None:
    for _ in range(20):
        np.testing.assert_array_equal(model.run({"x": X}, threads=threads)["out"], expected(X))
    np.testing.assert_array_equal(model.run(X, threads=threads)["out"], expected(X))
    np.testing.assert_array_equal(model.run(np.repeat(X, 2)[::2], threads=threads)["out"], expected(X))


def test_there_is_one_session_for_each_number_of_threads(model: HybridExecutable) -> None:
    for threads in (0, 2, 1, 0):
        model.run(X, threads=threads)
    assert len({id(session) for session in model._sessions.values()}) == 2
    with pytest.raises(InputError, match="-1 threads; 0 to 4096 are possible"):
        model.run(X, threads=-1)


def test_contexts_run_at_once(model: HybridExecutable) -> None:
    wrong: list[int] = []

    def many(number: int) -> None:
        with model.context(threads=1) as context:
            x = X + np.float32(number)
            for _ in range(100):
                if not np.array_equal(context.run(x)["out"], expected(x)):
                    wrong.append(number)

    threads = [threading.Thread(target=many, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    context = model.context()
    context.close()
    with pytest.raises(InputError, match="the context is closed"):
        context.run(X)
    with pytest.raises(InputError, match="there is no plan 1, there are 1"):
        model.context(plan=1)


def test_it_is_timed(model: HybridExecutable) -> None:
    assert len(model.evaluate(repeats=3, warmups=1).times_ms) == 3
    assert len(model.evaluate(X, repeats=3, streams=2, threads=1).times_ms) == 6
    with pytest.raises(InputError, match="at least 1 repeat"):
        model.evaluate(repeats=0)


def test_each_node_is_timed(model: HybridExecutable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    times = model.profile()
    assert [(time.place, time.kernel) for time in times] == [(0, "first add"), (1, "sum"), (2, "second add")]
    assert all(time.us >= 0 for time in times)
    assert [time.operator for time in times] == ["Region0", "CumSum", "Region1"]
    assert 0 <= times[0].start_us <= times[1].start_us <= times[2].start_us
    runs = model.profiles(X, repeats=4, threads=1)
    assert [[time.kernel for time in run] for run in runs] == [["first add", "sum", "second add"]] * 4
    with pytest.raises(InputError, match="at least 1 repeat"):
        model.profiles(repeats=0)
    assert sorted(tmp_path.iterdir()) == before


def test_closing_it_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, folder = write_toy_hybrid(tmp_path), tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with kintune_runtime.open(path) as model:
        assert len(list(folder.iterdir())) == 1
        context = model.context()
    assert list(folder.iterdir()) == []
    model.close()
    with pytest.raises(InputError, match="the executable is closed; open it again"):
        model.run(X)
    with pytest.raises(InputError, match="the executable is closed; open it again"):
        model.profile()
    np.testing.assert_array_equal(context.run(X)["out"], expected(X))


def test_another_file_may_take_its_place(tmp_path: Path) -> None:
    path = write_toy_hybrid(tmp_path)
    model = kintune_runtime.open(path)
    path.unlink()
    np.testing.assert_array_equal(model.run(X, threads=1)["out"], expected(X))


def test_a_child_process_has_sessions_of_its_own(tmp_path: Path) -> None:
    """In a process of its own, whose temporary folder is looked at."""
    path, folder = write_toy_hybrid(tmp_path), tmp_path / "temporary"
    folder.mkdir()
    code = f"""
        import os, sys
        import numpy as np
        import kintune_runtime
        x = np.ones(1000, np.float32)
        model = kintune_runtime.open({str(path)!r})
        context = model.context()
        right = model.run(x)["out"]
        child = os.fork()
        if child == 0:
            for run in (model.run, context.run, lambda x: model.run(x, threads=1)):
                if not np.array_equal(run(x)["out"], right):
                    os._exit(1)
            sys.exit(7)  # onnxruntime's destructors wait for threads of the parent
        print(os.waitpid(child, 0)[1], np.array_equal(context.run(x)["out"], right))
        print(np.array_equal(model.run(x, threads=1)["out"], right))
    """
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == f"{7 << 8} True\nTrue\n", done.stderr
    assert not list(folder.glob("kintune-*"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "0 inputs given, 1 needed: 'x'"),
        (({},), "input 'x' is missing"),
        (({"x": X, "y": X},), "no input is called 'y'"),
        ((X.astype(np.float64),), "input 'x' is float64, float32 is needed"),
        ((X[:-1],), r"input 'x' has shape \(999,\), \(1000,\) is needed"),
    ],
)
def test_wrong_inputs_are_refused_by_name(model: HybridExecutable, given: tuple[object, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        model.run(*given)  # type: ignore[arg-type]


def test_shapes_choose_the_plans(tmp_path: Path) -> None:
    model = kintune_runtime.open(write_toy_hybrid(tmp_path, counts=(1000, 10)))
    for count in (1000, 10, 1000):
        np.testing.assert_array_equal(model.run(X[:count])["out"], expected(X[:count]))
    assert len(model.evaluate(X[:10], repeats=2, streams=2).times_ms) == 4
    with pytest.raises(InputError, match="the shapes x=7 were not tuned; tuned are: x=1000; x=10"):
        model.run(X[:7])


def test_names_of_extents_get_the_numbers_that_they_have(tmp_path: Path) -> None:
    model = kintune_runtime.open(write_toy_hybrid(tmp_path, named=True))
    assert model._sessions[0].get_inputs()[0].shape == [1000]  # type: ignore[union-attr]


def test_all_of_it_may_run_in_onnxruntime(tmp_path: Path) -> None:
    model = kintune_runtime.open(write_toy_hybrid(tmp_path, regions=0))
    np.testing.assert_array_equal(model.run(X)["out"], np.cumsum(X, dtype=np.float32))
    assert [time.kernel for time in model.profile()] == ["sum"]


def test_strings_and_maps_pass_through_onnxruntime(tmp_path: Path) -> None:
    words, x = Tensor("words", (63,), "string"), Tensor("x", (64, 64), "float32")
    y, capital = Tensor("y", (64, 64), "float32"), Tensor("capital", (64,), "string")
    write_text_model(tmp_path / "t.onnx")
    text = kintune_runtime.open(whole(tmp_path / "t.onnx", [words, x], [y, capital]))
    given = draw_inputs(text.inputs)
    expected = [word.upper() for word in given["words"]] + ["THE"]
    assert text.run(given)["capital"].tolist() == expected
    assert text.run(given | {"words": given["words"].astype(str)})["capital"].tolist() == expected
    with pytest.raises(InputError, match="input 'words' is float64, strings are needed"):
        text.run(given | {"words": np.zeros(63)})
    write_classifier(tmp_path / "c.onnx")
    outputs = [Tensor("label", (64,), "string"), Tensor("probabilities", (), "sequence")]
    found = kintune_runtime.open(whole(tmp_path / "c.onnx", [x], outputs)).run({"x": given["x"]})
    for label, probabilities in zip(found["label"], found["probabilities"], strict=True):
        assert label == max(probabilities, key=probabilities.get)  # type: ignore[call-overload]


def whole(path: Path, inputs: list[Tensor], outputs: list[Tensor]) -> Path:
    """A result that runs all of an ONNX file in onnxruntime."""
    toy = hybrid_manifest((1000,), regions=0)
    manifest = msgspec.structs.replace(toy, inputs=tuple(inputs), outputs=tuple(outputs), checks=())
    target = path.with_suffix(".kt")
    write_hybrid(target, manifest, path.read_bytes(), [])
    return target


def test_what_a_region_says_begins_with_its_name(tmp_path: Path) -> None:
    failing = calling("fail", (Tensor("x", (1,), "float32"),), (Tensor("y", (1,), "float32"),))
    model = kintune_runtime.open(one_region(tmp_path, failing, "conv3_block"))
    for _ in range(2):
        with pytest.raises(RunError) as failed:
            model.run(X[:1])
        assert str(failed.value) == "conv3_block: kernel fail: ValueError: argument 0 has three legs"


def test_an_index_that_a_region_computes_is_checked(tmp_path: Path) -> None:
    plan = calling(
        "indices",
        (Tensor("x", (), "float32"),),
        (Tensor("y", (2,), "int64"),),
        checks=(IndexCheck("gather", 0, (10,), 0, negative=False),),
        hidden=(Tensor("", (2,), "int64"),),
    )
    both = (KernelCall("indices", (0, 1)), KernelCall("indices", (0, 2)))
    plan = msgspec.structs.replace(plan, operations=both)
    model = kintune_runtime.open(one_region(tmp_path, plan, "embed"))
    assert model.run(np.array(3, np.float32))["y"].tolist() == [3, 4]
    with pytest.raises(InputError, match="embed: gather: the inputs lead to index 10, which is outside of axis 0"):
        model.run(np.array(10, np.float32))


def test_an_output_that_is_left_out_is_an_error(model: HybridExecutable) -> None:
    """Before onnxruntime 1.17 an operator cannot return an error, and leaves its outputs out."""
    model._sessions[0] = SimpleNamespace(run=lambda names, fed: [None])
    with pytest.raises(RunError, match="output 'out' was not computed: a node failed"):
        model.run(X)
    outputs = [Tensor("out", (), "optional")]
    model._plans = [(model.inputs, tuple(outputs))]
    assert model.run(X) == {"out": None}


def test_what_onnxruntime_says_begins_with_the_nodes_name(tmp_path: Path) -> None:
    path, manifest = tmp_path / "hybrid.kt", hybrid_manifest(regions=0)
    graph = host_graph(manifest)
    network = onnx.load_from_string(graph)
    network.graph.initializer[0].CopyFrom(onnx.helper.make_tensor("axis", onnx.TensorProto.INT64, [], [5]))
    graph = network.SerializeToString()
    write_hybrid(path, manifest, graph, [])
    model = kintune_runtime.open(path)
    with pytest.raises(KintuneError, match=r"^sum: ") as failed:
        model.run(X)
    assert "\n" not in str(failed.value)


def test_a_file_of_this_kind_is_told_from_others(tmp_path: Path) -> None:
    hybrid, plain = write_toy_hybrid(tmp_path), write_model(tmp_path / "toy.kt")
    assert is_hybrid(hybrid)
    assert not is_hybrid(plain)
    assert not is_hybrid(tmp_path / "none.kt")
    assert not is_hybrid(tmp_path)
    with pytest.raises(InputError, match=r"runs partly in onnxruntime \(CumSum\): open it with kintune_runtime"):
        kintune_runtime.Executable(hybrid)
    with pytest.raises(InputError, match=r"toy\.kt: truncated or damaged"):
        HybridExecutable(plain)
    with pytest.raises(InputError, match=r"none\.kt: No such file"):
        HybridExecutable(tmp_path / "none.kt")


def test_one_for_another_machine_is_refused_with_its_region(tmp_path: Path) -> None:
    path = write_toy_hybrid(tmp_path, machine="riscv64")
    with pytest.raises(InputError, match=rf"^{path}: region0\.kt: is for riscv64, this machine is"):
        kintune_runtime.open(path)


def test_damage_is_found(tmp_path: Path) -> None:
    content = write_toy_hybrid(tmp_path).read_bytes()
    path = tmp_path / "changed.kt"
    for member in (b"\x22\x06CumSum", b"KTPLAN", W.tobytes()):
        for at in (content.index(member), content.rindex(member)):
            changed = bytearray(content)
            changed[at + 3] ^= 1
            path.write_bytes(changed)
            with pytest.raises(InputError, match=r"^\S*changed\.kt: "):
                kintune_runtime.open(path)
    for length in [*range(0, len(content), 1999), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(InputError):
            kintune_runtime.open(path)


@pytest.mark.parametrize(
    "changed",
    [
        {"threads": "many"}, {"inputs": None}, {"hybrid": {}}, {"hybrid": {"regions": [1]}},
        {"outputs": [{"name": "y"}]},
        {"hybrid": {"regions": [], "plans": [7]}}, {"inputs": [{"name": "x", "shape": [1], "dtype": "nonsense"}]},
    ],
)  # fmt: skip
def test_a_manifest_that_was_changed_is_refused_in_one_line(tmp_path: Path, changed: dict[str, Any]) -> None:
    path = write_toy_hybrid(tmp_path)
    with zipfile.ZipFile(path) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    told = json.loads(members[0][1])
    for manifest in ({**told, "executable": {**told["executable"], **changed}}, "[" * 100_000):
        text = manifest if isinstance(manifest, str) else json.dumps(manifest)
        with path.open("wb") as file:
            write_members(file, [(members[0][0], text.encode()), *members[1:]])
        with pytest.raises(InputError, match=r"truncated or damaged \(manifest\.json: "):
            HybridExecutable(path)


def test_onnxruntime_that_is_missing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_toy_hybrid(tmp_path)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError) as missing:
        kintune_runtime.open(path)
    assert str(missing.value) == "this result runs partly in onnxruntime: pip install onnxruntime"


def test_onnxruntime_that_is_too_old_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = ModuleType("onnxruntime")
    old.__version__ = "1.11.1"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "onnxruntime", old)
    with pytest.raises(InputError, match=r"1\.11\.1 of which is installed, and 1\.12 or later is needed"):
        kintune_runtime.open(write_toy_hybrid(tmp_path))


def test_a_library_that_does_not_load_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(onnxruntime.SessionOptions):  # type: ignore[misc]
        def register_custom_ops_library(self, path: str) -> None:
            raise RuntimeError(f"[ONNXRuntimeError] : 1 : FAIL : Failed to load library {path}\nwrong ELF class")

    found = SimpleNamespace(**{**vars(onnxruntime), "SessionOptions": Refusing})
    monkeypatch.setitem(sys.modules, "onnxruntime", found)
    said = r"cannot load libkintune_onnx\.so: Failed to load .*; if programs .* in TMPDIR, else install kintune-runt"
    with pytest.raises(InputError, match=said):
        kintune_runtime.open(write_toy_hybrid(tmp_path))
