from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, checker

import kintune_runtime
from kintune.core.execution_plan import KernelCall
from kintune.core.hybrid import Hybrid
from kintune.core.model import Constant
from kintune.errors import InputError
from kintune.models.constants import store_constant
from kintune.partition import keeping
from kintune.partition.keeping import LOST, hand_over_all, keep_regions, limit_region_threads, write_region
from kintune.runtime.hybrid_package import HybridPackage, operator_domain, read_marked
from kintune.runtime.package import Package, read_manifest
from kintune.runtime.plan_format import decode_plan
from kintune_runtime.library import checksum
from tests.support.partitions import DIGEST, computed, drawn, parse
from tests.support.toy_model import write_model
from tests.support.unpublished import THREE_REGIONS, write_unpublished


@pytest.fixture
def result(tmp_path: Path) -> Path:
    """A result with three regions that is not published."""
    return write_unpublished(tmp_path / "m.kt.unproven")


def operators(path: Path) -> list[str]:
    return [node.op_type for node in ModelProto.FromString(HybridPackage.open(path).graph).graph.node]


def hybrid(path: Path) -> Hybrid:
    found = read_manifest(path).hybrid
    assert found is not None
    return found


def test_kernels_of_regions_get_fewer_threads(result: Path) -> None:
    limit_region_threads(result, ({0: 1}, {}, {0: 1}), result)
    assert read_marked(result)
    package = HybridPackage.open(result)
    limits = []
    for number in range(3):
        result.with_name("region.kt").write_bytes(package.region(number))
        ((plan,),) = (variant.plans for variant in Package.open(result.with_name("region.kt")).variants)
        first = decode_plan(plan.plan, checksum).plan.operations[0]
        assert isinstance(first, KernelCall)
        limits.append(first.threads)
    assert limits == [1, 0, 1]


class TestKeepRegions:
    def test_those_that_are_kept_are_numbered_anew_and_have_their_files(self, result: Path, tmp_path: Path) -> None:
        before = HybridPackage.open(result)
        keep_regions(result, (0, 2), tmp_path / "m.kt")
        package = HybridPackage.open(tmp_path / "m.kt")
        assert operators(tmp_path / "m.kt") == ["Region0", "Erf", "Gelu", "Neg", "Erf", "Region1"]
        assert [package.region(number) for number in range(2)] == [before.region(0), before.region(2)]
        assert [region.name for region in hybrid(tmp_path / "m.kt").regions] == ["kintune/region0", "kintune/region2"]

    def test_what_goes_back_is_counted_and_has_a_reason(self, result: Path, tmp_path: Path) -> None:
        keep_regions(result, (0, 2), tmp_path / "m.kt")
        about = hybrid(tmp_path / "m.kt")
        assert about.operators == {"Erf": 2, "com.microsoft::Gelu": 1, "Neg": 1}
        assert about.nodes == {
            "Erf of 'c'": "operator Erf is not supported",
            "Erf of 'f'": "operator Erf is not supported",
            "Gelu of 'd'": LOST,
            "Neg of 'e'": LOST,
        }
        assert about.onnxruntime == ("1.2.3",)

    def test_all_are_kept_and_the_marked_graph_goes(self, result: Path) -> None:
        before = hybrid(result)
        assert read_marked(result)
        keep_regions(result, None, result)
        assert not read_marked(result)
        assert hybrid(result) == before
        assert operators(result) == ["Region0", "Erf", "Region1", "Erf", "Region2"]

    def test_none_is_kept(self, result: Path) -> None:
        keep_regions(result, (), result, why="wrong")
        package = HybridPackage.open(result)
        assert (package.regions, hybrid(result).regions) == ((), ())
        assert hybrid(result).nodes["Tanh of 'y'"] == "wrong"
        graph = ModelProto.FromString(package.graph)
        assert operator_domain(DIGEST) not in [entry.domain for entry in graph.opset_import]
        x = drawn(parse(THREE_REGIONS))
        assert np.array_equal(computed(graph, x)["y"], computed(parse(THREE_REGIONS), x)["y"])

    def test_a_published_result_stays_as_it_is(self, result: Path) -> None:
        keep_regions(result, None, result)
        before = result.read_bytes()
        keep_regions(result, None, result)
        assert HybridPackage.open(result).graph in before
        with pytest.raises(InputError, match=r"is published, .* tune the model again"):
            keep_regions(result, (0,), result)

    def test_a_result_that_runs_without_onnxruntime_has_none(self, tmp_path: Path) -> None:
        write_model(tmp_path / "pure.kt")
        with pytest.raises(InputError, match="does not run in onnxruntime"):
            keep_regions(tmp_path / "pure.kt", None, tmp_path / "pure.kt")


class TestWriteRegion:
    def test_both_are_written(self, result: Path, tmp_path: Path) -> None:
        write_region(result, 1, tmp_path / "r.kt", tmp_path / "r.onnx")
        assert (tmp_path / "r.kt").read_bytes() == HybridPackage.open(result).region(1)
        assert read_manifest(tmp_path / "r.kt").hybrid is None
        graph = onnx.load(tmp_path / "r.onnx")
        assert [node.op_type for node in graph.graph.node] == ["Gelu", "Neg"]
        checker.check_model(graph)
        x = drawn(graph)
        assert computed(graph, x)["e"].shape == (64, 512)

    def test_not_of_a_published_result(self, result: Path, tmp_path: Path) -> None:
        keep_regions(result, None, result)
        with pytest.raises(InputError, match="no regions that can be taken apart"):
            write_region(result, 1, tmp_path / "r.kt", tmp_path / "r.onnx")


class TestHandOverAll:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        onnx.save(parse(THREE_REGIONS), tmp_path / "m.onnx")
        return tmp_path / "m.onnx"

    @pytest.mark.parametrize("pure", [True, False])
    def test_the_users_graph_runs_in_onnxruntime(self, result: Path, file: Path, tmp_path: Path, *, pure: bool) -> None:
        source = result
        if pure:
            source = tmp_path / "pure.kt"
            write_model(source)
        hand_over_all(source, file, {}, source)
        about = hybrid(source)
        assert (about.regions, about.onnxruntime) == ((), (version("onnxruntime"),))
        assert about.nodes == {"all nodes": LOST}
        assert about.operators["Erf"] == 2
        assert about.summary.startswith("runs wholly in onnxruntime (")
        graph = ModelProto.FromString(HybridPackage.open(source).graph)
        x = drawn(parse(THREE_REGIONS))
        assert np.array_equal(computed(graph, x)["y"], computed(parse(THREE_REGIONS), x)["y"])

    @pytest.mark.parametrize("fixed", [False, True])
    def test_the_names_of_extents_are_fixed_where_that_was_found_faster(self, tmp_path: Path, fixed: bool) -> None:
        source = tmp_path / "m.kt"
        write_model(source)
        inputs = ", ".join(f"float[n] {tensor.name}" for tensor in read_manifest(source).inputs)
        names = [tensor.name for tensor in read_manifest(source).outputs]
        computing = " ".join(f"{name} = Neg({read_manifest(source).inputs[0].name})" for name in names)
        outputs = ", ".join(f"float[n] {name}" for name in names)
        onnx.save(parse(f"m ({inputs}) => ({outputs}) {{ {computing} }}"), tmp_path / "m.onnx")
        hand_over_all(source, tmp_path / "m.onnx", {}, source, fixed=fixed)
        with kintune_runtime.open(source) as opened:
            extents = opened._fixed_extents(HybridPackage.open(source).graph)
            x = {tensor.name: np.ones(tensor.shape, tensor.dtype) for tensor in opened.inputs}
            assert [y.ravel()[0] for y in opened.run(x).values()] == [-1] * len(names)
        assert extents == ({"n": opened.inputs[0].shape[0]} if fixed else {})

    def test_inputs_that_became_constants_are_weights(self, result: Path, tmp_path: Path) -> None:
        onnx.save(parse("m (float[2] x, float[2] k) => (float[2] y) { y = Mul(x, k) }"), tmp_path / "k.onnx")
        constant: Constant = store_constant("k", np.array([3, 4], np.float32), typed=True)
        hand_over_all(result, tmp_path / "k.onnx", {"k": constant}, result)
        graph = ModelProto.FromString(HybridPackage.open(result).graph)
        assert [value.name for value in graph.graph.input] == ["x"]
        assert computed(graph, {"x": np.array([1, 2], np.float32)})["y"].tolist() == [3, 8]

    def test_weights_in_files_beside_it_are_taken_in(self, result: Path, tmp_path: Path) -> None:
        model = parse("m (float[64] x) => (float[64] y) { y = Mul(x, w) }")
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(64, dtype=np.float32), "w"))
        (tmp_path / "apart").mkdir()
        path = tmp_path / "apart" / "w.onnx"
        onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
        hand_over_all(result, path, {}, result)
        (path.parent / "w.bin").unlink()
        graph = ModelProto.FromString(HybridPackage.open(result).graph)
        assert computed(graph, {"x": np.ones(64, np.float32)})["y"].tolist() == list(range(64))

    def test_a_model_too_large_for_one_file_is_refused_and_the_result_stays(
        self, result: Path, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = result.read_bytes()
        monkeypatch.setattr(keeping, "_MOST_BYTES", 100)
        with pytest.raises(InputError, match=r"m\.onnx: .*too large"):
            hand_over_all(result, file, {}, result)
        assert result.read_bytes() == before

    def test_a_missing_file_is_refused(self, result: Path, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"gone\.onnx"):
            hand_over_all(result, tmp_path / "gone.onnx", {}, result)
