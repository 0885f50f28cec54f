"""An executable of several plans: one for each combination of shapes, with weights that are stored once."""

from __future__ import annotations

import platform
from pathlib import Path

import msgspec
import numpy as np
import pytest

from kintune.core.execution_plan import ExecutionPlan, KernelCall
from kintune.core.kernel_call import CallRecord, SourceNode
from kintune.core.model import Combination, Tensor
from kintune.errors import InputError, OrderError
from kintune.runtime.executable import CompiledPlan, Executable
from kintune.runtime.inputs import load_fitting
from kintune.runtime.package import Block, Package, read_manifest
from kintune.runtime.plan_format import decode_plan
from kintune_runtime.library import checksum
from tests.support.toy_model import adding, kernels, manifest

W = np.arange(100_000, dtype=np.float32)
X = np.linspace(-1, 1, W.size, dtype=np.float32)


def several(*plans: ExecutionPlan, machine: str = platform.machine()) -> Executable:
    """All plans read the same weight."""
    block = Block(W.shape, "float32", W.view(np.uint8))
    described = msgspec.structs.replace(manifest(*plans), machine=machine)
    return Executable.create_from_plans((CompiledPlan(plan, kernels(), [block]) for plan in plans), described)


def test_each_shape_runs_and_the_weight_lies_once(tmp_path: Path) -> None:
    lengths = (1000, 50_000, 100_000)
    made = several(*map(adding, lengths))
    path = tmp_path / "several.kt"
    made.save(path)
    for executable in (made, Executable.open(path)):
        assert [inputs[0].shape for inputs in executable.plans] == [(length,) for length in lengths]
        for length in lengths:
            x, w = X[:length], W[:length]
            np.testing.assert_array_equal(executable.run(x)["out"], x + w + w)
        with pytest.raises(InputError, match="the shapes x=7 were not tuned; tuned are: x=1000; x=50000; x=100000"):
            executable.run(X[:7])
    alone = several(adding(1000))
    alone.save(tmp_path / "alone.kt")
    more = path.stat().st_size - (tmp_path / "alone.kt").stat().st_size
    assert more < 3 * len(kernels()) + W.nbytes // 2


def test_the_manifest_says_what_each_plan_takes(tmp_path: Path) -> None:
    several(adding(1000), adding(10)).save(tmp_path / "two.kt")
    described = read_manifest(tmp_path / "two.kt")
    assert [each.shapes for each in described.combinations] == [{"x": (1000,)}, {"x": (10,)}]
    assert described.inputs == described.combinations[0].inputs
    opened = Executable.open(tmp_path / "two.kt")
    assert [opened.described_inputs(plan) for plan in (0, 1)] == [each.inputs for each in described.combinations]


def test_a_file_of_inputs_fits_one_combination_or_is_refused(tmp_path: Path) -> None:
    combinations = [Combination((Tensor("x", (n,), "float32"),), ()) for n in (4, 5)]
    for length in (4, 5, 6):
        np.savez(tmp_path / f"{length}.npz", x=np.zeros(length, np.float32))
    assert [load_fitting(combinations, tmp_path / f"{n}.npz")[0] for n in (4, 5)] == [0, 1]
    with pytest.raises(InputError, match=r"6.npz: the shapes x=6 were not tuned; tuned are: x=4; x=5"):
        load_fitting(combinations, tmp_path / "6.npz")
    with pytest.raises(InputError, match=r"6.npz: input 'x' has shape \(6,\), \(4,\) is needed"):
        load_fitting(combinations[:1], tmp_path / "6.npz")
    np.savez(tmp_path / "double.npz", x=np.zeros(5))
    with pytest.raises(InputError, match=r"double.npz: input 'x' is float64"):
        load_fitting(combinations, tmp_path / "double.npz")


def test_one_for_another_machine_says_so_whatever_is_asked_of_it() -> None:
    alien = several(adding(1000), adding(10), machine="riscv64")
    assert [alien.described_inputs(plan)[0].shape for plan in (0, 1)] == [(1000,), (10,)]
    for ask in (lambda: alien.run(X[:10]), alien.evaluate, lambda: alien.evaluate(X[:7], streams=2)):
        with pytest.raises(OrderError, match="toy is built for riscv64"):
            ask()


def test_calls_bear_titles_by_the_users_nodes(tmp_path: Path) -> None:
    record = CallRecord(place=0, kernel="add", nodes=(SourceNode("block/sum", "Add"),), operators=("add",))
    unknown = CallRecord(place=1, kernel="add", operators=("add",))
    plan = adding(10)
    compiled = CompiledPlan(plan, kernels(), [Block((10,), "float32", W[:10].view(np.uint8))], (record, unknown))
    Executable.create_from_plans([compiled], manifest(plan)).save(tmp_path / "titled.kt")
    stored = Package.open(tmp_path / "titled.kt").variants[0].plans[0].plan
    calls = decode_plan(stored, checksum).plan.operations
    assert [call.title for call in calls if isinstance(call, KernelCall)] == ["block/sum (Add)", ""]
