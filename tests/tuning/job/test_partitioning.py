"""Models that are cut into regions, and the node because of which one of these is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest

from kintune.core.config import JobSpec
from kintune.core.model import ModelRef
from kintune.errors import ModelError
from kintune.models.constants import store_constant
from kintune.models.ref import parse_ref
from tests.support.partitions import parse
from tests.support.string_models import write_classifier, write_text_model
from tests.support.toy_tools import toy_spec

pytestmark = pytest.mark.tvm

# A lookup, a region, an operator that cannot be compiled, a region.
WITH_DISTANCES = """
    m (int64[64] ids, float[64, 64] x) => (float[64, 64] l, float[64, 64] y) {
        e = Gather(table, ids)
        a = Add(e, x)  b = Sigmoid(a)  c = Mul(b, x)  d = Relu(c)  f = Neg(d)  g = Elu<alpha = 0.5>(f)
        h = Sigmoid(g)  i = Relu(h)
        l = com.microsoft.CDist<metric = "euclidean">(i, i)
        s = ReduceSum<keepdims = 0>(l)
        o = Mul(i, s)  p = Sigmoid(o)  q = Add(p, x)  r = Relu(q)  t = Neg(r)  v = Elu<alpha = 0.5>(t)  y = Sigmoid(v)
    }
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.tuning.job import partitioning

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    partitioning._known.clear()


def written(folder: Path, text: str = WITH_DISTANCES) -> ModelRef:
    model = parse(text)
    draw = np.random.default_rng(0)
    read = {name for node in model.graph.node for name in node.input}
    shapes = {"table": (100, 64), "lw": (1, 32, 64), "lr": (1, 32, 8)}
    for name in read & shapes.keys():
        values = draw.standard_normal(shapes[name]).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    if "one" in read:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "one"))
    onnx.save(model, folder / "m.onnx")
    return parse_ref(str(folder / "m.onnx"))


def spec_for(ref: ModelRef, **changes: Any) -> JobSpec:
    from kintune.runtime.target import resolve_target

    device = msgspec.structs.replace(toy_spec().device_type, target=resolve_target("native", threads=1))
    return msgspec.structs.replace(toy_spec(), model=ref, device_type=device, output="m.kt", **changes)


class TestLoading:
    def test_regions_are_networks_and_the_note_says_what_is_left(self, cpu: Any, tmp_path: Path) -> None:
        from kintune.tuning.job.partitioning import load_partitioned

        networks = load_partitioned(written(tmp_path), cpu)
        assert [network.label for network in networks.networks] == ["kintune/region0", "kintune/region1"]
        assert networks.notes[-1] == "2 regions of the graph are compiled; onnxruntime runs com.microsoft::CDist (1)"
        assert networks.hybrid is not None
        assert networks.hybrid.partition.operators == {"com.microsoft::CDist": 1}
        first, second = networks.networks
        assert [tensor.name for tensor in first.combination.inputs] == ["ids", "x"]
        assert [tensor.name for tensor in networks.hybrid.combination.inputs] == ["ids", "x"]
        assert [tensor.name for tensor in networks.hybrid.combination.outputs] == ["l", "y"]
        assert networks.hybrid.combination.outputs[1].shape == (64, 64)
        assert first.digest != second.digest

    def test_the_range_of_an_index_is_known_wherever_it_is_read(self, cpu: Any, tmp_path: Path) -> None:
        """Else random inputs would be out of range."""
        from kintune.tuning.job.partitioning import load_partitioned

        ref = written(tmp_path)
        for handed_over in ((), ("Gather of 'e'",), ("*",)):
            networks = load_partitioned(ref, cpu, handed_over=handed_over)
            assert networks.hybrid is not None
            ids, _ = networks.hybrid.combination.inputs
            assert (ids.values, ids.below) == ("ids", 100)

    @pytest.mark.parametrize("axis", [-1, 0, 1])
    def test_an_index_of_what_is_computed_may_count_axes_from_behind(self, axis: int, cpu: Any, tmp_path: Path) -> None:
        from kintune.tuning.job.partitioning import load_partitioned

        text = f"m (float[1, 3] x, int32[1] ids) => (float[A, B] y) {{ y = Gather<axis = {axis}>(x, ids) }}"
        networks = load_partitioned(written(tmp_path, text), cpu, handed_over=("*",))
        assert networks.hybrid is not None

    def test_all_of_it_may_be_left(self, cpu: Any, tmp_path: Path) -> None:
        from kintune.tuning.job.partitioning import load_partitioned

        networks = load_partitioned(written(tmp_path), cpu, handed_over=("*",))
        assert networks.networks == ()
        assert networks.notes == ("the whole model runs in onnxruntime",)

    def test_then_onnxruntime_runs_the_graph_of_the_file(self, cpu: Any, tmp_path: Path) -> None:
        """It rounds a prepared graph otherwise, and lengths that depend on rounded numbers would be others."""
        from kintune.tuning.job.partitioning import load_partitioned

        text = """m (float[N, 64] x, float k) => (float[N, 64] y) {
            s = Shape(x)  r = Reshape(x, s)  a = Mul(r, k)  b = Sigmoid(a)  y = Dropout(b)
        }"""
        ref = written(tmp_path, text)
        constants = {"k": store_constant("k", np.float32(2), typed=True)}
        ref = msgspec.structs.replace(ref, shapes={"x": (4, 64)}, constants=constants)
        networks = load_partitioned(ref, cpu, handed_over=("*",))
        assert networks.hybrid is not None
        marked = networks.hybrid.partition.marked
        assert [node.op_type for node in marked.graph.node] == ["Shape", "Reshape", "Mul", "Sigmoid", "Dropout"]
        assert [(value.name, value.type.tensor_type.shape.dim[0].dim_param) for value in marked.graph.input] == [
            ("x", "N")
        ]
        assert networks.hybrid.combination.inputs[0].shape == (4, 64)
        assert networks.hybrid.partition.operators == dict.fromkeys(
            ("Shape", "Reshape", "Mul", "Sigmoid", "Dropout"), 1
        )

    @pytest.mark.parametrize("step", ["import_region", "lower_network"])
    def test_a_region_that_fails_as_a_whole_stays(
        self, cpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:

        from kintune.tuning.job import partitioning

        real = getattr(partitioning, step)

        def failing(*arguments: Any, **named: Any) -> Any:
            nodes = arguments[1].nodes if step == "import_region" else arguments[0].nodes.values()
            if any("Gather" in name for name in nodes):
                raise ModelError("there is no such thing")
            return real(*arguments, **named)

        monkeypatch.setattr(partitioning, step, failing)
        networks = partitioning.load_partitioned(written(tmp_path), cpu)
        assert networks.hybrid is not None
        assert len(networks.networks) == 1
        left = networks.hybrid.partition.operators
        assert left["Gather"] == left["com.microsoft::CDist"] == 1
        assert left["Elu"] == 1

    def test_what_onnxruntime_does_not_take_is_refused(self, cpu: Any, tmp_path: Path) -> None:
        from kintune.tuning.job.partitioning import load_partitioned

        ref = written(tmp_path, "m (float[2] x) => (float[2] y) { y = com.microsoft.Wobble(x) }")
        with pytest.raises(ModelError, match=r"m\.onnx: onnxruntime does not take it: .*Wobble") as caught:
            load_partitioned(ref, cpu)
        assert "\n" not in str(caught.value)

    def test_strings_and_maps_stay_outside_of_regions(self, cpu: Any, tmp_path: Path) -> None:
        from kintune.tuning.job.partitioning import load_partitioned

        write_classifier(tmp_path / "c.onnx")
        networks = load_partitioned(parse_ref(str(tmp_path / "c.onnx")), cpu)
        assert networks.hybrid is not None
        kinds = [(tensor.name, tensor.shape, tensor.dtype) for tensor in networks.hybrid.combination.outputs]
        assert kinds == [("label", (64,), "string"), ("probabilities", (), "sequence")]
        left = networks.hybrid.partition.operators
        assert left == {"ai.onnx.ml::LabelEncoder": 1, "ai.onnx.ml::ZipMap": 1}
        assert len(networks.networks) == 1

    def test_inputs_and_weights_may_be_strings(self, cpu: Any, tmp_path: Path) -> None:
        from kintune.tuning.job.partitioning import load_partitioned

        write_text_model(tmp_path / "t.onnx")
        networks = load_partitioned(parse_ref(str(tmp_path / "t.onnx")), cpu)
        assert networks.hybrid is not None
        inputs = [(tensor.name, tensor.shape, tensor.dtype) for tensor in networks.hybrid.combination.inputs]
        assert inputs == [("words", (63,), "string"), ("x", (64, 64), "float32")]
        assert len(networks.networks) == 1


class TestBackend:
    def test_of_strings_onnxruntime_has_the_last_word(self, tmp_path: Path) -> None:
        from kintune.tuning.job.tvm_backend import TvmBackend

        ref = written(tmp_path, "m (string[2] x) => (string[2] y) { y = com.microsoft.Wobble(x) }")
        with pytest.raises(ModelError, match=r"m\.onnx: onnxruntime does not take it: .*Wobble"):
            TvmBackend().prepare(spec_for(ref))

    def test_what_is_handed_over_is_part_of_what_was_prepared(self, tmp_path: Path) -> None:
        from kintune.tuning.job.tvm_backend import TvmBackend

        ref = written(tmp_path)
        prepared = TvmBackend().prepare(spec_for(ref))
        assert (prepared.hybrid, prepared.can_hand_over, prepared.handed_over) == (True, True, ())
        over = TvmBackend().prepare(spec_for(ref, handed_over=("*",)))
        assert (over.hybrid, over.subgraphs, over.handed_over) == (True, (), ("*",))

    def test_a_model_that_compiles_stays_whole(self, tmp_path: Path) -> None:
        from kintune.tuning.job.tvm_backend import TvmBackend

        ref = written(tmp_path, "m (float[4] x) => (float[4] y) { y = Relu(x) }")
        prepared = TvmBackend().prepare(spec_for(ref))
        assert (prepared.hybrid, prepared.can_hand_over) == (False, True)

    def test_where_no_node_may_be_left_the_operator_is_named(self, tmp_path: Path) -> None:
        from kintune.tuning.job.tvm_backend import TvmBackend

        options = msgspec.structs.replace(toy_spec().options, onnxruntime=False)
        with pytest.raises(ModelError, match=r"cannot be imported: com\.microsoft::CDist x1"):
            TvmBackend().prepare(spec_for(written(tmp_path), options=options))

    def test_what_neither_takes_is_refused_for_why_it_does_not_compile(self, tmp_path: Path) -> None:
        from kintune.tuning.job.tvm_backend import TvmBackend

        ref = written(tmp_path, "m (float[2] x) => (float[2] y) { y = com.microsoft.Wobble(x) }")
        with pytest.raises(ModelError, match=r"cannot be imported: com\.microsoft::Wobble x1"):
            TvmBackend().prepare(spec_for(ref))

    def test_of_a_model_with_an_error_both_say_what_it_is(self, tmp_path: Path) -> None:
        from kintune.tuning.job.tvm_backend import TvmBackend

        text = "m (float[2,4,8] x, float[3,8,4] y) => (float[2,4,4] z) { z = MatMul(x, y) }"
        said = r"operator MatMul .* cannot be imported: .*; onnxruntime does not take the model either: .*dimension"
        with pytest.raises(ModelError, match=said):
            TvmBackend().prepare(spec_for(written(tmp_path, text)))


class TestFirstWrongNode:
    LEFT = ("com.microsoft::CDist of 'l'",)  # what stays with onnxruntime between the two regions

    @pytest.mark.parametrize("number", [0, 1])
    def test_it_is_found_in_its_region(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        """A region in which the compiler takes another parameter of a node."""
        from kintune.tuning.job import partitioning, region_check
        from kintune.tuning.job.tvm_backend import TvmBackend

        backend, spec = TvmBackend(), spec_for(written(tmp_path), handed_over=self.LEFT)
        backend.prepare(spec)
        assert backend.explain() == ""
        real = region_check.import_region
        imported = []

        def wrong(marked: onnx.ModelProto, region: Any, at: int, *arguments: Any) -> Any:
            if at == number:
                marked = _copy(marked)
                for node in marked.graph.node:
                    if node.op_type == "Elu":
                        node.attribute[0].f = 0.9
            imported.append(at)
            return real(marked, region, at, *arguments)

        partitioning._known.clear()
        monkeypatch.setattr(partitioning, "import_region", wrong)
        monkeypatch.setattr(region_check, "import_region", wrong)
        backend.prepare(spec)
        assert imported == [0, 1]
        assert backend.explain() == ("Elu of 'g'", "Elu of 'v'")[number]
        assert imported == [0, 1, number], "regions that are right as they were prepared are not looked into"

    def test_a_region_that_is_cut_again_is_not_lowered_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from kintune.tuning.job import partitioning
        from kintune.tuning.job.tvm_backend import TvmBackend

        lowered = []
        real = partitioning.lower_network
        monkeypatch.setattr(
            partitioning,
            "lower_network",
            lambda model, *rest, **named: lowered.append(model.name) or real(model, *rest, **named),
        )
        backend, spec = TvmBackend(), spec_for(written(tmp_path), handed_over=self.LEFT)
        backend.prepare(spec)
        assert len(lowered) == 2
        backend.prepare(spec)
        assert len(lowered) == 2, "nothing has changed"
        again = backend.prepare(msgspec.structs.replace(spec, handed_over=(*self.LEFT, "Elu of 'v'")))
        assert again.handed_over == (*self.LEFT, "Elu of 'v'")
        assert len(lowered) == 3, "the first region is the same"


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy
