"""Merged files: what they store, and what is refused.  `tests/kintune_runtime/test_variant.py` has the choice."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kintune_runtime
from kintune.core.execution_plan import Copy, ExecutionPlan, KernelCall
from kintune.core.model import Tensor
from kintune.errors import InputError
from kintune.runtime.executable import Executable
from kintune.runtime.inputs import draw_inputs
from kintune.runtime.merging import merge
from kintune.runtime.package import (
    EncodedPlan,
    Package,
    PackageVariant,
    read_manifests,
    write_package,
    write_vm_package,
)
from kintune.runtime.plan_format import decode_plan
from kintune_runtime.library import checksum
from tests.support.toy_model import ADDING, adding, encoded, kernels, manifest, packed, planned, write_model

HERE = platform.machine()
X = np.arange(-500, 500, dtype=np.float32)
W = np.arange(1000, dtype=np.float32)
GOLDEN = Path(__file__).parents[1] / "golden" / "files"


def several_weights(offsets: Sequence[int], count: int = 64) -> ExecutionPlan:
    """out = x + each of the weights, which lie at these offsets."""
    shape = (count,)
    weights = [planned("weights", offset, shape) for offset in offsets]
    calls = [KernelCall("add", (1, 3 + number, 1)) for number in range(len(offsets))]
    return ExecutionPlan(
        tensors=(planned("input", 0, shape), planned("arena", 0, shape), planned("output", 0, shape), *weights),
        operations=(Copy(0, 1), *calls, Copy(1, 2)),
        input_tensors=(0,),
        output_tensors=(2,),
        inputs=(Tensor("x", shape, "float32"),),
        outputs=(Tensor("out", shape, "float32"),),
        arena_bytes=4 * count,
    )


def value(number: float, count: int = 64) -> np.ndarray:
    return np.full(count, number, np.float32)


def outputs(path: Path, x: np.ndarray, variant: int | None = None) -> Any:
    with kintune_runtime.open(path, variant) as model:
        return model.run(x)["out"]


def test_the_executable_has_the_manifest_of_what_was_chosen(tmp_path: Path) -> None:
    given = [
        write_model(tmp_path / "a.kt", machine="riscv64", threads=7),
        write_model(tmp_path / "b.kt", threads=1),
        write_model(tmp_path / "c.kt", machine="s390x"),
    ]
    (tmp_path / "fat.report.json").write_text("of another one")
    executable = Executable.open(merge(given, tmp_path / "fat.kt").path)
    assert not (tmp_path / "fat.report.json").exists()
    assert (executable.variant.number, executable.manifest.machine, executable.manifest.threads) == (1, HERE, 1)
    assert [each.machine for each in executable.variants] == ["riscv64", HERE, "s390x"]
    executable.save(tmp_path / "again.kt")
    assert (tmp_path / "again.kt").read_bytes() == (tmp_path / "fat.kt").read_bytes()


@pytest.mark.tvm
@pytest.mark.skipif(HERE != "x86_64", reason="the targets are of x86-64")
def test_a_network_for_two_targets_computes_the_same(tmp_path: Path) -> None:
    from tests.support.tiny_network import make_tiny_network

    paths = []
    for name, target in (("old", '{"kind": "llvm", "mcpu": "x86-64-v2"}'), ("here", "native")):
        (tmp_path / name).mkdir()
        network = make_tiny_network(tmp_path / name, target=target)
        network.executable.save(tmp_path / f"{name}.kt")
        paths.append(tmp_path / f"{name}.kt")
    plain = write_foreign(tmp_path / "arm.kt", paths[0])
    fat = merge([plain, *paths], tmp_path / "fat.kt").path
    x = draw_inputs(Executable.open(fat).inputs)
    got = []
    for path, variant in ((fat, None), (paths[1], None), (fat, 1), (paths[0], None)):
        with kintune_runtime.open(path, variant) as model:
            got.append((model.variant.isa, model.run(x)["y"]))
    assert got[0][0] == Executable.open(paths[1]).manifest.isa
    assert got[2][0] == Executable.open(paths[0]).manifest.isa
    np.testing.assert_array_equal(got[0][1], got[1][1])
    np.testing.assert_array_equal(got[2][1], got[3][1])
    np.testing.assert_allclose(got[0][1], got[2][1], rtol=1e-4, atol=1e-5)


def write_foreign(path: Path, source: Path) -> Path:
    """Write the file again as if it had been built for another machine."""
    package = Package.open(source)
    ((described, (plan,)),) = package.variants
    stored = decode_plan(plan.plan, checksum)._replace(machine="aarch64")
    foreign = EncodedPlan(stored.encoded(checksum), plan.library)
    described = msgspec.structs.replace(described, machine="aarch64")
    write_package(path, [PackageVariant(described, (foreign,))], package.weights)
    return path


def test_weights_that_are_equal_are_stored_once(tmp_path: Path) -> None:
    """Each adds three weights; one is shared by both, and lies in between."""
    one, two = [value(1), value(2), value(3)], [value(30), value(2), value(10)]
    offsets = [0, 256, 512]
    given = [
        write_model(tmp_path / "a.kt", [several_weights(offsets)], one, cpu="a"),
        write_model(tmp_path / "b.kt", [several_weights(offsets)], two, cpu="b"),
    ]
    merged = merge(given, tmp_path / "fat.kt")
    assert merged.shared_nbytes == 256
    package = Package.open(merged.path)
    assert package.weights.view(np.float32)[::64].tolist() == [1, 3, 2, 30, 10]
    plans = [decode_plan(variant.plans[0].plan, checksum) for variant in package.variants]
    assert [(plan.weights_offset, plan.weights_bytes) for plan in plans] == [(0, 768), (512, 768)]
    x = np.zeros(64, np.float32)
    assert outputs(merged.path, x, 0).tolist() == [6] * 64
    assert outputs(merged.path, x, 1).tolist() == [42] * 64


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(1, 6), max_size=4), min_size=2, max_size=4))
def test_every_variant_has_its_weights_wherever_they_lie(
    tmp_path_factory: pytest.TempPathFactory, held: list[list[int]]
) -> None:
    """Each adds weights of which the others may hold some."""
    folder = tmp_path_factory.mktemp("merge")
    given = [
        write_model(
            folder / f"{number}.kt", [several_weights([256 * place for place in range(len(values))])],
            [value(each) for each in values], cpu=str(number),
        )
        for number, values in enumerate(held)
    ]  # fmt: skip
    merged = merge(given, folder / "fat.kt")
    distinct = {each for values in held for each in values}
    assert Package.open(merged.path).weights.nbytes == 256 * len(distinct)
    assert merged.shared_nbytes == 256 * (sum(len(values) for values in held) - len(distinct))
    for number, values in enumerate(held):
        assert outputs(merged.path, np.zeros(64, np.float32), number).tolist() == [sum(values)] * 64


def test_views_of_one_weight_stay_together(tmp_path: Path) -> None:
    """The second tensor begins within the first one; what no tensor names is dropped."""
    weights = [np.arange(128, dtype=np.float32), value(7), value(5)]
    views = several_weights([0, 128, 768])
    wide = msgspec.structs.replace(
        views, tensors=tuple(planned("weights", 0, (128,)) if t.offset == 0 and t.place == "weights" else t
                             for t in views.tensors)
    )  # fmt: skip
    given = [write_model(tmp_path / f"{cpu}.kt", [wide], weights, cpu=cpu) for cpu in "ab"]
    merged = merge(given, tmp_path / "fat.kt")
    assert Package.open(merged.path).weights.nbytes == 512 + 256
    x = np.zeros(64, np.float32)
    expected = outputs(given[0], x)
    for variant in (0, 1):
        np.testing.assert_array_equal(outputs(merged.path, x, variant), expected)


def test_every_combination_of_shapes_stays(tmp_path: Path) -> None:
    plans = [adding(1000), adding(500)]
    given = [
        write_model(tmp_path / "a.kt", plans, [W], machine="riscv64"),
        write_model(tmp_path / "b.kt", plans, [W + 1]),
        write_model(tmp_path / "c.kt", plans, [W + 2], isa=["avx1024"]),
    ]
    with kintune_runtime.open(merge(given, tmp_path / "fat.kt").path) as model:
        assert [inputs[0].shape for inputs in model.plans] == [(1000,), (500,)]
        np.testing.assert_array_equal(model.run(X[:500])["out"], X[:500] + 2 * (W[:500] + 1))
        np.testing.assert_array_equal(model.run(X)["out"], X + 2 * (W + 1))


def test_it_says_what_it_has_made(tmp_path: Path) -> None:
    given = [write_model(tmp_path / "arm.kt", machine="riscv64"), write_model(tmp_path / "this.kt")]
    merged = merge(given, tmp_path / "fat.kt")
    assert merged.path == tmp_path / "fat.kt"
    assert [each.machine for each in merged.variants] == ["riscv64", HERE]
    assert merged.nbytes == merged.path.stat().st_size
    assert merged.input_nbytes == tuple(path.stat().st_size for path in given)
    assert merged.shared_nbytes == W.nbytes


def test_merged_files_are_merged_again(tmp_path: Path) -> None:
    one, two, three = (write_model(tmp_path / f"{n}.kt", [ADDING], [W + n], cpu=str(n)) for n in range(3))
    at_once = merge([one, two, three], tmp_path / "at_once.kt")
    stepwise = merge([merge([one, two], tmp_path / "pair.kt").path, three], tmp_path / "stepwise.kt")
    assert stepwise.path.read_bytes() == at_once.path.read_bytes()
    assert [each.cpu for each in read_manifests(stepwise.path)] == ["0", "1", "2"]


def test_files_of_different_models_are_refused_by_name(tmp_path: Path) -> None:
    write_model(tmp_path / "a.kt")
    cases = {
        r"a.kt and .*b.kt are of different models: toy \(000000000000\) and toy \(ffffffffffff\)": write_model(
            tmp_path / "b.kt", digest="f" * 32
        ),
        r"a.kt has 1 combinations of shapes, .*c.kt has 2; build them for the same": write_model(
            tmp_path / "c.kt", [adding(), adding(10)]
        ),
        r"a.kt and .*d.kt have different inputs: x float32\[1000\] and x float32\[10\]": write_model(
            tmp_path / "d.kt", [adding(10)]
        ),
        r"a.kt and .*e.kt have different outputs: out float32\[1000\] and y float32\[1000\]": write_model(
            tmp_path / "e.kt", [msgspec.structs.replace(ADDING, outputs=(Tensor("y", (1000,), "float32"),))]
        ),
    }
    for said, other in cases.items():
        with pytest.raises(InputError, match=said):
            merge([tmp_path / "a.kt", other], tmp_path / "fat.kt")
    assert not (tmp_path / "fat.kt").exists()


def test_the_same_cpu_twice_is_refused_by_name(tmp_path: Path) -> None:
    given = [write_model(tmp_path / f"{n}.kt", cpu="A CPU", isa=["avx2", "fma"]) for n in range(2)]
    with pytest.raises(InputError, match=r"0.kt and .*1.kt are for the same CPU: A CPU with avx2 fma; leave one out"):
        merge(given, tmp_path / "fat.kt")
    with pytest.raises(InputError, match=r"0.kt and .*0.kt are for the same CPU"):
        merge([given[0], given[0]], tmp_path / "fat.kt")


def test_files_that_cannot_be_merged_are_refused(tmp_path: Path) -> None:
    good, other = write_model(tmp_path / "a.kt"), write_model(tmp_path / "b.kt", cpu="b")
    (tmp_path / "damaged.kt").write_bytes(other.read_bytes()[:-100])
    write_vm_package(tmp_path / "gpu.kt", msgspec.structs.replace(manifest(ADDING), target='{"kind":"cuda"}'), b"", [])
    before = sorted(os.listdir(tmp_path))
    for files, output, said in (
        ([good], "fat.kt", "needs two files or more, 1 given"),
        ([good, tmp_path / "none.kt"], "fat.kt", r"none.kt does not exist"),
        ([good, tmp_path / "damaged.kt"], "fat.kt", r"damaged.kt: truncated or damaged"),
        ([good, tmp_path / "gpu.kt"], "fat.kt", r"gpu.kt: made for a GPU"),
        ([good, GOLDEN / "small.kt"], "fat.kt", r"small.kt: written in format 1"),
        ([good, other], "b.kt", r"b.kt is one of the files that are merged"),
        ([good, other], "no/fat.kt", r"there is no directory"),
        ([good, other], "", "is a directory"),
    ):
        with pytest.raises(InputError, match=said) as caught:
            merge(files, tmp_path / output)
        assert "\n" not in str(caught.value)
        assert sorted(os.listdir(tmp_path)) == before


def test_plans_that_do_not_belong_to_their_file_are_refused(tmp_path: Path) -> None:
    good, described, weights = write_model(tmp_path / "a.kt"), manifest(ADDING, cpu="b"), packed([W])
    for plan, library, said in (
        (encoded(ADDING, weights, variant=1), kernels(), "in another order"),
        (encoded(ADDING, weights, b"others"), kernels(), "for other kernels"),
        (encoded(adding(1200), weights), kernels(), "different inputs"),
        (encoded(ADDING, weights[:64], cpu="b"), kernels(), "outside of the weights"),
        (b"", kernels(), "no plan"),
    ):
        path = tmp_path / "b.kt"
        write_package(path, [PackageVariant(described, (EncodedPlan(plan, library),))], weights)
        with pytest.raises(InputError, match=said):
            merge([good, path], tmp_path / "fat.kt")


def test_a_manifest_of_another_file_is_refused(tmp_path: Path) -> None:
    """The plans are of one variant, the manifest says two."""
    content = packed([W])
    plans = [EncodedPlan(encoded(ADDING, content, number=n, total=2), kernels()) for n in range(2)]
    described = manifest(ADDING)
    write_package(
        tmp_path / "a.kt", [PackageVariant(described, (plans[0],)), PackageVariant(described, (plans[1],))], content
    )
    with pytest.raises(InputError, match=r"a.kt: damaged: its manifest is of another file"):
        Executable.open(tmp_path / "a.kt")
