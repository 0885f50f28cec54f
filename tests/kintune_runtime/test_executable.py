from __future__ import annotations

import os
import resource
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kintune_runtime
from kintune.core.execution_plan import Branch, Copy, ExecutionPlan, Jump, KernelCall
from kintune.core.model import IndexCheck, Tensor
from kintune_runtime import InputError, RunError
from tests.support.toy_model import adding, calling, planned, write_model

X = np.linspace(-1, 1, 1000, dtype=np.float32)
W = np.arange(1000, dtype=np.float32)


@pytest.fixture
def model(tmp_path: Path) -> kintune_runtime.Executable:
    return kintune_runtime.open(write_model(tmp_path / "toy.kt"))


def one(name: str, shape: tuple[int, ...] = (1,), dtype: str = "float32") -> Tensor:
    return Tensor(name, shape, dtype)


def test_it_says_what_it_takes_and_gives(model: kintune_runtime.Executable) -> None:
    assert [(t.name, t.shape, t.dtype) for t in model.inputs] == [("x", (1000,), "float32")]
    assert [(t.name, t.shape, t.dtype) for t in model.outputs] == [("out", (1000,), "float32")]
    assert repr(model) == "Executable(x: float32[1000])"
    assert model.description["executable"]["model_name"] == "toy"


@pytest.mark.parametrize("threads", [0, 1, 2, 3, 8])
def test_it_computes_on_any_number_of_threads(model: kintune_runtime.Executable, threads: int) -> None:
    for _ in range(50):
        np.testing.assert_array_equal(model.run({"x": X}, threads=threads)["out"], X + W + W)
    np.testing.assert_array_equal(model.run(X, threads=threads)["out"], X + W + W)


def test_arrays_at_any_address_and_with_any_strides(model: kintune_runtime.Executable) -> None:
    memory = np.zeros(8192, np.uint8)
    for shift in (1, 4, 60, 64):
        view = memory[shift : shift + 4000].view(np.float32)
        view[:] = X
        np.testing.assert_array_equal(model.run(view)["out"], X + W + W)
    np.testing.assert_array_equal(model.run(np.repeat(X, 2)[::2])["out"], X + W + W)
    np.testing.assert_array_equal(model.run(X[::-1])["out"], X[::-1] + W + W)


@pytest.mark.parametrize("count", [(1 << 16) - 1, 1 << 16, 100_003])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_large_inputs_at_any_address_are_copied_by_all_threads(tmp_path: Path, count: int, threads: int) -> None:
    values = np.random.default_rng(0).integers(-9, 9, count).astype(np.float32)
    model = kintune_runtime.open(write_model(tmp_path / "large.kt", [adding(count)], [values]))
    memory = np.zeros(4 * count + 64, np.uint8)
    for shift in (4, 60):
        view = memory[shift : shift + 4 * count].view(np.float32)
        view[:] = values[::-1]
        np.testing.assert_array_equal(model.run(view, threads=threads)["out"], values[::-1] + 2 * values)


def test_large_outputs_belong_to_the_caller(tmp_path: Path) -> None:
    count = 100_000
    weight = np.ones(count, np.float32)
    model = kintune_runtime.open(write_model(tmp_path / "large.kt", [adding(count)], [weight]))
    first, second = (model.run(np.full(count, value, np.float32))["out"] for value in (1, 2))
    assert first.flags.owndata or first.base is not None
    assert (first == 3).all()
    assert (second == 4).all()
    first[0] = 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "0 inputs given, 1 needed: 'x'"),
        (({},), "input 'x' is missing"),
        (({"x": X, "y": X},), "no input is called 'y'"),
        ((X.astype(np.float64),), "input 'x' is float64, float32 is needed"),
        (([[1.0, 2.0], [3.0]],), "input 'x' is no array; give a numpy array, or lists of equal lengths"),
        (({"x": [1.0, [2.0]]},), "input 'x' is no array"),
        ((X[:-1],), r"input 'x' has shape \(999,\), \(1000,\) is needed"),
    ],
)
def test_wrong_inputs_are_refused_by_name(
    model: kintune_runtime.Executable, given: tuple[object, ...], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        model.run(*given)


def test_run_after_close_is_refused(model: kintune_runtime.Executable) -> None:
    context = model.context()
    model.close()
    model.close()
    with pytest.raises(InputError, match="closed; open it again"):
        model.run(X)
    np.testing.assert_array_equal(context.run(X)["out"], X + W + W)  # it keeps what it needs
    context.close()
    context.close()
    with pytest.raises(InputError, match="closed; make another one"):
        context.run(X)


def test_contexts_run_at_once(model: kintune_runtime.Executable) -> None:
    failures = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal(1000).astype(np.float32)
        with model.context(threads=2) as context:
            for _ in range(200):
                if not np.array_equal(context.run(x)["out"], x + W + W):
                    failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_context_used_by_two_threads_at_once_is_an_error(tmp_path: Path) -> None:
    path = write_model(tmp_path / "sleep.kt", [calling("sleep", [one("s")], [one("out")])], [])
    context = kintune_runtime.open(path).context()
    refusals: list[str] = []
    ends = time.monotonic() + 60

    def run(seconds: float) -> None:
        while not refusals and time.monotonic() < ends:
            try:
                context.run(np.array([seconds], np.float32))
            except RunError as error:
                refusals.append(str(error))

    threads = [threading.Thread(target=run, args=(seconds,)) for seconds in (0.05, 0.01)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refusals
    assert "running in another thread" in refusals[0]
    assert context.run(np.array([0.0], np.float32))["out"] == [0]


def test_a_context_that_runs_is_not_closed_by_another_thread(tmp_path: Path) -> None:
    path = write_model(tmp_path / "sleep.kt", [calling("sleep", [one("s")], [one("out")])], [])
    context = kintune_runtime.open(path).context()
    running = threading.Thread(target=lambda: context.run(np.array([2.0], np.float32)))
    running.start()
    refusals = []
    while running.is_alive() and not refusals:
        if context._users:
            with pytest.raises(RunError, match="running in another thread") as refusal:
                context.close()
            refusals.append(refusal)
    running.join()
    assert refusals
    context.close()
    with pytest.raises(InputError, match="the context is closed"):
        context.run(np.array([0.0], np.float32))


def test_a_context_that_runs_is_not_profiled_by_another_thread(tmp_path: Path) -> None:
    path = write_model(tmp_path / "sleep.kt", [calling("sleep", [one("s")], [one("out")])], [])
    context = kintune_runtime.open(path).context()
    zero = np.array([0.0], np.float32)
    running = threading.Thread(target=lambda: context.run(np.array([2.0], np.float32)))
    running.start()
    while not context._users:
        time.sleep(0.001)
    with pytest.raises(RunError, match="running in another thread"):
        context.profile(zero)
    running.join()
    assert [each.kernel for each in context.profile(zero)] == ["sleep"]
    context.close()
    with pytest.raises(InputError, match="the context is closed"):
        context.profile(zero)


def test_a_context_is_used_until_the_hook_of_a_profile_is_gone(model: kintune_runtime.Executable) -> None:
    """Else another thread could run it before that, and the hook would stay."""
    context, users = model.context(), []

    class Watching:
        def __init__(self, native: Any) -> None:
            self.native = native

        def __getattr__(self, name: str) -> Any:
            return getattr(self.native, name)

        def kt_set_hook(self, *given: Any) -> Any:
            users.append(dict(context._users))
            return self.native.kt_set_hook(*given)

    context._native = Watching(context._native)  # type: ignore[assignment]
    assert len(context.profile(X)) == 2
    assert users == [{"run": threading.get_ident()}] * 2
    assert context._users == {}


def test_what_a_kernel_has_left_that_failed_is_given_back(tmp_path: Path) -> None:
    path = write_model(tmp_path / "leave.kt", [calling("leave", [one("flag")], [one("out")])], [], threads=1)
    context = kintune_runtime.open(path).context()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(200):
        with pytest.raises(RunError):
            context.run(np.array([1.0], np.float32))
    assert context.run(np.array([0.0], np.float32))["out"] == [0]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 400_000  # of 1.6 GB in all


def test_inputs_may_be_read_only(tmp_path: Path) -> None:
    with kintune_runtime.open(write_model(tmp_path / "toy.kt")) as model:
        x = np.ones(1000, np.float32)
        x.flags.writeable = False
        np.testing.assert_array_equal(model.run(x)["out"], x + 2 * np.arange(1000, dtype=np.float32))


def test_a_kernel_that_fails_is_named_with_what_it_said(tmp_path: Path) -> None:
    model = kintune_runtime.open(write_model(tmp_path / "fail.kt", [calling("fail", [], [one("out")])], []))
    for threads in (1, 2, 4):
        with pytest.raises(RunError, match=r"^kernel fail: ValueError: argument 0 has three legs$"):
            model.run({}, threads=threads)
    titled = calling("fail", [], [one("out")], title="head/fc (Gemm) + Relu")
    model = kintune_runtime.open(write_model(tmp_path / "titled.kt", [titled], []))
    with pytest.raises(RunError, match=r"^head/fc \(Gemm\) \+ Relu: ValueError: argument 0 has three legs$"):
        model.run({})
    lost = kintune_runtime.open(write_model(tmp_path / "lost.kt", [calling("lost", [], [one("out")])], []))
    with pytest.raises(RunError, match=r"kernel lost: RuntimeError: the kernel needs no\.such\.thing"):
        lost.run({})


def test_a_kernel_runs_on_its_own_number_of_threads(tmp_path: Path) -> None:
    for limit, threads, expected in ((0, 4, 4), (2, 4, 2), (1, 4, 1), (8, 3, 3)):
        plan = calling("width", [one("x")], [one("out")], threads=limit)
        model = kintune_runtime.open(write_model(tmp_path / "width.kt", [plan], []))
        assert model.run(np.zeros(1, np.float32), threads=threads)["out"] == [expected]


@pytest.mark.parametrize(("limit", "threads"), [(0, 1), (0, 2), (2, 3), (3, 4), (0, 16)])
def test_a_kernel_may_ask_for_more_parts_than_threads(tmp_path: Path, limit: int, threads: int) -> None:
    shape = (1000,)
    plan = calling("add_seven", [one("a", shape), one("b", shape)], [one("out", shape)], threads=limit)
    model = kintune_runtime.open(write_model(tmp_path / "seven.kt", [plan], []))
    for _ in range(20):
        np.testing.assert_array_equal(model.run(X, W, threads=threads)["out"], X + W)


def test_the_index_of_an_input_is_checked(tmp_path: Path) -> None:
    ids = Tensor("ids", (2, 3), "int32", bounds=(-10, 9))
    plan = calling("sleep", [one("s"), ids], [one("out")])
    plan = ExecutionPlan(
        plan.tensors,
        (KernelCall("sleep", (0, 2)),),
        plan.input_tensors,
        plan.output_tensors,
        plan.inputs,
        plan.outputs,
        0,
    )
    model = kintune_runtime.open(write_model(tmp_path / "ids.kt", [plan], []))
    zero = np.zeros(1, np.float32)
    model.run(zero, np.full((2, 3), 9, np.int32))
    with pytest.raises(
        InputError, match=r"input 'ids' holds 10 at \[1, 0\], an index that must lie between -10 and 9 \(10 e"
    ):
        model.run(zero, np.array([[0, 1, 2], [10, 0, -11]], np.int32))


def test_computed_indices_are_checked_and_not_handed_out(tmp_path: Path) -> None:
    check = IndexCheck("Gather_7", 0, (5,), 1, negative=False)
    plan = calling("indices", [one("x")], [], hidden=[one("", (3,), "int64")], checks=(check,))
    model = kintune_runtime.open(write_model(tmp_path / "indices.kt", [plan], []))
    assert model.run(np.array([2], np.float32)) == {}
    with pytest.raises(
        InputError, match="Gather_7: the inputs lead to index 5, which is outside of axis 1 with 5 elements"
    ):
        model.run(np.array([3], np.float32))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int64", "float64"])
def test_topk_sorts_stably(tmp_path: Path, dtype: str) -> None:
    shape, k = (3, 100), 7
    plan = calling("topk", [one("x", shape, dtype)], [one("values", (3, k), dtype), one("indices", (3, k), "int64")])
    model = kintune_runtime.open(write_model(tmp_path / "topk.kt", [plan], []))
    x = np.random.default_rng(0).integers(0, 20, shape).astype(dtype)
    if dtype.startswith(("float", "int")):
        x -= np.asarray(9, dtype)
    outputs = model.run(x)
    order = np.argsort(-x.astype(np.float64), axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(outputs["indices"], order)
    np.testing.assert_array_equal(outputs["values"], np.take_along_axis(x, order, 1))


def test_a_branch_takes_one_way(tmp_path: Path) -> None:
    plan = ExecutionPlan(
        tensors=(
            planned("input", 0, (), "bool"),
            planned("input", 1, (4,)),
            planned("input", 2, (4,)),
            planned("output", 0, (4,)),
        ),
        operations=(Branch(0, 3), Copy(1, 3), Jump(4), Copy(2, 3)),
        input_tensors=(0, 1, 2),
        output_tensors=(3,),
        inputs=(Tensor("c", (), "bool"), one("a", (4,)), one("b", (4,))),
        outputs=(one("out", (4,)),),
        arena_bytes=0,
    )
    model = kintune_runtime.open(write_model(tmp_path / "if.kt", [plan], []))
    a, b = np.zeros(4, np.float32), np.ones(4, np.float32)
    assert model.run(np.array(True), a, b)["out"].tolist() == [0] * 4
    assert model.run(np.array(False), a, b)["out"].tolist() == [1] * 4


def test_the_plan_of_the_given_shapes_runs(tmp_path: Path) -> None:
    plans = [adding(1000), adding(500)]
    model = kintune_runtime.open(write_model(tmp_path / "shapes.kt", plans))
    assert [[t.shape for t in inputs] for inputs in model.plans] == [[(1000,)], [(500,)]]
    np.testing.assert_array_equal(model.run(X[:500])["out"], X[:500] + W[:500] + W[:500])
    np.testing.assert_array_equal(model.run({"x": X})["out"], X + W + W)
    with pytest.raises(InputError, match=r"^the shapes x=7 were not tuned; tuned are: x=1000; x=500$"):
        model.run(X[:7])
    with pytest.raises(InputError, match="input 'x' is missing"):
        model.run({})
    with pytest.raises(InputError, match="input 'x' is no array"):
        model.run([[1.0, 2.0], [3.0]])
    with pytest.raises(InputError, match="2 inputs given, 1 needed"):
        model.run(X, X)
    with pytest.raises(InputError, match="input 'x' is float64"):
        model.run(X[:500].astype(np.float64))


def test_each_plan_is_timed_and_described(tmp_path: Path) -> None:
    model = kintune_runtime.open(write_model(tmp_path / "shapes.kt", [adding(1000), adding(500)]))
    assert [model.described_inputs(plan)[0].shape for plan in (0, 1)] == [(1000,), (500,)]
    assert len(model.evaluate(X[:500], repeats=2, streams=2).times_ms) == 4
    assert [each.kernel for each in model.profile(X[:500])] == ["add", "add"]
    with pytest.raises(InputError, match="x=7 were not tuned"):
        model.evaluate(X[:7], streams=2)


def test_of_several_inputs_those_are_named_that_tell_plans_apart(tmp_path: Path) -> None:
    def plan(count: int) -> ExecutionPlan:
        ends = one("a", (count,)), one("fixed", (3,)), one("b", (1, count))
        return calling("indices", ends, [one("out", (2,), "int64")])

    model = kintune_runtime.open(write_model(tmp_path / "several.kt", [plan(4), plan(5)], []))
    zeros = [np.zeros(shape, np.float32) for shape in [(4,), (3,), (1, 5)]]
    with pytest.raises(InputError) as caught:
        model.run(*zeros)
    assert str(caught.value) == "the shapes a=4, b=1x5 were not tuned; tuned are: a=4, b=1x4; a=5, b=1x5"
    zeros[1] = np.zeros(2, np.float32)
    with pytest.raises(InputError, match="the shapes a=4, fixed=2, b=1x5 were not tuned"):
        model.run(*zeros)


def test_a_file_for_other_machines_is_refused(tmp_path: Path) -> None:
    path = write_model(tmp_path / "alien.kt", machine="riscv64")
    with pytest.raises(InputError, match=r"alien.kt: is for riscv64, this machine is .*kintune compile`$"):
        kintune_runtime.open(path)


def test_instructions_that_this_cpu_lacks_are_named(tmp_path: Path) -> None:
    path = write_model(tmp_path / "new.kt", isa=["avx1024", "amx2000"])
    with pytest.raises(InputError, match="uses instructions that this CPU lacks: avx1024, amx2000"):
        kintune_runtime.open(path)


def test_kernels_are_timed(model: kintune_runtime.Executable) -> None:
    times = model.profile(X)
    assert [(each.place, each.kernel) for each in times] == [(0, "add"), (1, "add")]
    assert all(each.us > 0 for each in times)
    np.testing.assert_array_equal(model.run(X)["out"], X + W + W)


def test_it_is_timed_in_one_stream_or_several(model: kintune_runtime.Executable) -> None:
    alone = model.evaluate(repeats=5)
    assert len(alone.times_ms) == 5
    assert alone.p10_ms <= alone.median_ms <= alone.p90_ms <= alone.p99_ms
    together = model.evaluate(X, repeats=5, streams=3, threads=1)
    assert len(together.times_ms) == 15
    assert together.per_second > 0
    with pytest.raises(InputError, match="at least 1 repeat"):
        model.evaluate(repeats=0)


def test_a_child_process_runs_what_its_parent_opened(model: kintune_runtime.Executable) -> None:
    model.run(X)
    child = os.fork()
    if child == 0:
        right = np.array_equal(model.run(X)["out"], X + W + W)
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    np.testing.assert_array_equal(model.run(X)["out"], X + W + W)


def test_a_child_process_does_not_wait_for_a_run_of_its_parent(tmp_path: Path) -> None:
    """In a process of its own: the child is forked while another thread runs the network and a context."""
    path = write_model(tmp_path / "sleep.kt", [calling("sleep", [one("s")], [one("out")])], [])
    code = f"""
        import os, threading, time
        import numpy as np
        import kintune_runtime
        model = kintune_runtime.open({str(path)!r})
        context = model.context()
        long, short = np.array([5.0], np.float32), np.array([0.0], np.float32)
        model.run(short)
        threads = [threading.Thread(target=run, args=(long,), daemon=True) for run in (model.run, context.run)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        child = os.fork()
        if child == 0:
            os._exit(0 if model.run(short)["out"] == [0] and context.run(short)["out"] == [0] else 1)
        ends = time.monotonic() + 60
        while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < ends:
            time.sleep(0.01)
        print(done[1] if done[0] else "it waits")
        for thread in threads:
            thread.join()
        print(context.run(short)["out"].tolist())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n[0.0]\n"


def test_an_interrupt_in_a_run_is_raised_after_it(tmp_path: Path) -> None:
    """In a process of its own: test workers may ignore interrupts."""
    path = write_model(tmp_path / "sleep.kt", [calling("sleep", [one("s")], [one("out")])], [])
    code = f"""
        import os, signal, threading
        import numpy as np
        import kintune_runtime
        signal.signal(signal.SIGINT, signal.default_int_handler)
        model = kintune_runtime.open({str(path)!r})
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                model.run(np.array([0.5], np.float32))
        except KeyboardInterrupt:
            print(model.run(np.array([0.0], np.float32))["out"].tolist())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout == "[0.0]\n"


def test_memory_that_is_exhausted_is_an_error(tmp_path: Path) -> None:
    count = 1 << 28
    plan = calling("sleep", [one("s")], [one("out")])
    huge = ExecutionPlan(
        (*plan.tensors, planned("arena", 0, (count,))), plan.operations, plan.input_tensors, plan.output_tensors,
        plan.inputs, plan.outputs, 4 * count,
    )  # fmt: skip
    path = write_model(tmp_path / "huge.kt", [huge], [])
    code = f"""
        import resource, kintune_runtime
        model = kintune_runtime.open({str(path)!r})
        resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
        try:
            model.context()
        except kintune_runtime.RunError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert "no memory for an arena of" in done.stdout


def test_a_median_comes_with_its_spread() -> None:
    evaluation = kintune_runtime.Evaluation.of([float(t) for t in range(10, 111)], seconds=2.0)
    assert (evaluation.median_ms, evaluation.p10_ms, evaluation.p90_ms, evaluation.p99_ms) == (60.0, 20.0, 100.0, 109.0)
    assert evaluation.spread == pytest.approx(80 / 60)
    assert evaluation.times_ms[0] == 10.0
    assert evaluation.per_second == 50.5
    assert kintune_runtime.Evaluation.of([2.5]) == (2.5, 2.5, 2.5, 0.0, (2.5,), 2.5, 0.0)
