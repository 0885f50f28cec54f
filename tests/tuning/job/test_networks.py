"""The networks of a model with several combinations of shapes, from import to a file that runs them all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.config import JobSpec, Options
from kintune.core.measurement_protocol import DeviceType, MeasurementProtocol
from kintune.core.stage_results import Prepared
from kintune.errors import InputError, ModelError, ShapeError
from kintune.models.importer import load
from kintune.models.ref import parse_ref
from kintune.partition.keeping import LOST, hand_over_plans
from kintune.profiling.parts import is_whole
from kintune.runtime.exports.onnx_operator import LIBRARY_NAME, export_onnx
from kintune.runtime.inputs import draw_inputs
from kintune.runtime.opening import open as open_executable
from kintune.runtime.package import Package
from kintune.search.sketch_program import program_of
from kintune.testing.small_onnx import write_small_onnx

if TYPE_CHECKING:
    from kintune.tuning.job.tvm_backend import TvmBackend

pytestmark = pytest.mark.tvm

SIDES = (8, 12)


def spec_for(folder: Path, shapes: str, **changes: Any) -> JobSpec:
    from kintune.runtime.target import resolve_target

    model = parse_ref(str(write_small_onnx(folder / "small.onnx", is_open=True)), [shapes] if shapes else [])
    return JobSpec(
        run_id="run", model=model, device_type=DeviceType(resolve_target("native", 1), "cpu", (), 1, "1-cold"),
        protocol=MeasurementProtocol(threads=1), options=Options(trials=1), output=str(folder / "small.kt"), **changes,
    )  # fmt: skip


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> tuple[TvmBackend, Prepared, Path]:
    """The small network with two sizes of images, prepared."""
    from kintune.tuning.job.tvm_backend import TvmBackend

    folder = tmp_path_factory.mktemp("networks")
    backend = TvmBackend()
    return backend, backend.prepare(spec_for(folder, "x=1x16x{8,12}x{8,12}")), folder


def test_subgraphs_of_all_networks_are_one_set(ready: tuple[TvmBackend, Prepared, Path]) -> None:
    _, prepared, _ = ready
    assert [each.shapes for each in prepared.combinations] == [{"x": (1, 16, side, side)} for side in SIDES]
    digests = [subgraph.workload for subgraph in prepared.subgraphs]
    assert len(set(digests)) == len(digests)
    assert set(prepared.modules) == set(digests)
    for subgraph in prepared.subgraphs:
        assert subgraph.weight == sum(subgraph.each) > 0
        assert len(subgraph.each) == 2
        own = subgraph.name.rpartition("@")[2]
        assert subgraph.each == {"8x8": (1, 0), "12x12": (0, 1)}.get(own, (1, 1))
    dense = [s for s in prepared.subgraphs if s.operator == "dense"]
    assert [s.each for s in dense] == [(1, 1)]  # of the pooled image, whatever its size was
    names = [s.name for s in prepared.subgraphs]
    assert len(set(names)) == len(names)


def test_those_that_read_the_same_weights_say_so(ready: tuple[TvmBackend, Prepared, Path]) -> None:
    _, prepared, _ = ready
    convolutions = [s for s in prepared.subgraphs if s.operator == "conv2d"]
    by_weights: dict[str, list[tuple[int, ...]]] = {}
    for subgraph in convolutions:
        assert subgraph.weights
        by_weights.setdefault(subgraph.weights, []).append(subgraph.each)
    assert sorted(map(sorted, by_weights.values())) == [[(0, 1), (1, 0)]] * 2


def test_they_are_built_into_one_file_with_the_weights_once(ready: tuple[TvmBackend, Prepared, Path]) -> None:
    import onnxruntime

    backend, prepared, folder = ready
    space = backend.space()
    chosen: dict[str, Candidate] = {}
    for subgraph in prepared.subgraphs:
        direct = {sketch.digest for sketch in space.sketches(subgraph.workload) if not program_of(sketch)}
        drafts = space.verify([c for c in space.rules(subgraph.workload, 8) if c.sketch in direct][:1])
        chosen[subgraph.workload] = next((d.candidate for d in drafts if d), Candidate.untuned(subgraph.workload))
    packaged = backend.package(chosen, {})
    assert backend.kept(packaged)
    session = onnxruntime.InferenceSession(folder / "small.onnx")
    for path in (packaged.tuned, str(packaged.untuned)):
        executable = open_executable(path)
        for each in executable.manifest.combinations:
            x = draw_inputs(each.inputs)
            np.testing.assert_allclose(executable.run(x)["y"], session.run(None, x)[0], rtol=1e-4, atol=1e-5)
        with pytest.raises(InputError, match="the shapes x=1x16x9x9 were not tuned; tuned are: x=1x16x8x8; x=1x16x12"):
            executable.run(np.zeros((1, 16, 9, 9), np.float32))
    several = Package.open(packaged.tuned)
    assert [len(variant.plans) for variant in several.variants] == [2]
    weights = sum(array.nbytes for array in map(np.asarray, _initializers(folder / "small.onnx")))
    packings: dict[str, set[str]] = {}
    for subgraph in prepared.subgraphs:
        packings.setdefault(subgraph.weights, set()).add(backend.packing(chosen[subgraph.workload]))
    assert all(len(of_one) == 1 for weights_read, of_one in packings.items() if weights_read)
    assert several.weights.nbytes < 1.25 * weights


def test_files_that_another_run_has_written_since_are_not_kept(ready: tuple[TvmBackend, Prepared, Path]) -> None:
    backend, prepared, _ = ready
    drafted = backend.draft({s.workload: Candidate.untuned(s.workload) for s in prepared.subgraphs}, {}).packaged
    assert drafted is not None
    assert backend.kept(drafted)
    kept = Path(drafted.tuned).read_bytes()
    Path(drafted.tuned).write_bytes(b"another run's")
    assert not backend.kept(drafted)
    Path(drafted.tuned).unlink()
    assert not backend.kept(drafted)
    assert not backend.kept(msgspec.structs.replace(drafted, digests={drafted.tuned: ""}))
    Path(drafted.tuned).write_bytes(kept)
    assert backend.kept(drafted)


def test_one_combination_goes_back_to_onnxruntime(ready: tuple[TvmBackend, Prepared, Path]) -> None:
    import onnxruntime

    backend, prepared, folder = ready
    assert prepared.may_return
    packaged = backend.package({s.workload: Candidate.untuned(s.workload) for s in prepared.subgraphs}, {})
    result = folder / "returned.kt"
    hand_over_plans(Path(packaged.tuned), (1,), folder / "small.onnx", {}, result)
    session = onnxruntime.InferenceSession(folder / "small.onnx")
    with open_executable(result) as executable:
        for each in executable.manifest.combinations:
            x = draw_inputs(each.inputs)
            np.testing.assert_allclose(executable.run(x)["y"], session.run(None, x)[0], rtol=1e-4, atol=1e-5)
        compiled = [is_whole(executable.manifest, number) for number in range(2)]
        assert compiled == [False, True]
        assert executable.manifest.hybrid is not None
        assert executable.manifest.hybrid.nodes == {"all nodes, with x=1x16x8x8": LOST}
        with pytest.raises(InputError, match="the shapes x=1x16x9x9 were not tuned; tuned are: x=1x16x8x8; x=1x16x12"):
            executable.run(np.zeros((1, 16, 9, 9), np.float32))
    options = onnxruntime.SessionOptions()
    graph = export_onnx(result, folder / "exported")
    options.register_custom_ops_library(str(graph.parent / LIBRARY_NAME))
    exported = onnxruntime.InferenceSession(graph, options)
    for each in prepared.combinations:
        x = draw_inputs(each.inputs)
        np.testing.assert_allclose(exported.run(None, x)[0], session.run(None, x)[0], rtol=1e-4, atol=1e-5)


def _initializers(path: Path) -> list[Any]:
    import onnx

    return [onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer]


def test_subgraphs_of_each_network_can_be_compared_alone(ready: tuple[TvmBackend, Prepared, Path]) -> None:
    backend, prepared, _ = ready
    space = backend.space()
    chosen = {
        s.workload: next(
            (d.candidate for d in space.verify(space.rules(s.workload, 1)) if d), Candidate.untuned(s.workload)
        )
        for s in prepared.subgraphs
    }
    apart = backend.set_apart(chosen, {})
    assert apart.left_out == ()
    named = set()
    for path, combination in zip(apart.paths, prepared.combinations, strict=True):
        assert path is not None
        executable = open_executable(path)
        assert executable.manifest.inputs == combination.inputs
        outputs = executable.run(draw_inputs(combination.inputs))
        named |= {name.partition(" ")[0] for name in outputs}
    assert named == {workload for workload, candidate in chosen.items() if candidate.sketch != UNTUNED}


def test_the_digest_names_all_combinations(tmp_path: Path) -> None:
    from kintune.tuning.job.tvm_backend import TvmBackend

    digests = [
        TvmBackend().prepare(spec_for(tmp_path, shapes)).model_digest
        for shapes in ("x=1x16x8x8", "x=1x16x{8,12}x{8,12}", "x=1x16x{12,8}x{12,8}")
    ]
    assert len(set(digests)) == 3
    alone = load(parse_ref(str(tmp_path / "small.onnx"), ["x=1x16x8x8"]))
    assert digests[0] == alone.digest


def test_a_shape_that_contradicts_the_model_is_refused_by_name(tmp_path: Path) -> None:
    from kintune.tuning.job.tvm_backend import TvmBackend

    with pytest.raises(ShapeError, match="--shape x=1x15x12x12 contradicts the model"):
        TvmBackend().prepare(spec_for(tmp_path, "x=1x{16,15}x{8,12}x{8,12}"))


def test_inputs_of_no_combination_are_refused_before_the_work(tmp_path: Path) -> None:
    from kintune.tuning.job.tvm_backend import TvmBackend

    for side in (12, 9):
        np.savez(tmp_path / f"{side}.npz", x=np.zeros((1, 16, side, side), np.float32))
    wrong = spec_for(tmp_path, "x=1x16x{8,12}x{8,12}", input_files=(str(tmp_path / "12.npz"), str(tmp_path / "9.npz")))
    with pytest.raises(InputError, match=r"9.npz: the shapes x=1x16x9x9 were not tuned"):
        TvmBackend().prepare(wrong)


def test_a_board_has_one_combination(tmp_path: Path) -> None:
    from kintune.core.measurement_protocol import FLUSHED
    from kintune.tuning.job.tvm_backend import TvmBackend

    spec = spec_for(tmp_path, "x=1x16x{8,12}x{8,12}")
    board = msgspec.structs.replace(spec.device_type, protocol=f"1-cold-{FLUSHED}")
    with pytest.raises(ModelError, match="small: a board runs one combination of shapes"):
        TvmBackend().prepare(msgspec.structs.replace(spec, device_type=board))


def test_only_one_combination_is_imported_at_a_time(tmp_path: Path) -> None:
    ref = spec_for(tmp_path, "x=1x16x{8,12}x{8,12}").model
    with pytest.raises(ShapeError, match="small: one combination of shapes is needed here, not 2"):
        load(ref)


def test_subgraphs_have_the_names_of_the_users_nodes(ready: tuple[TvmBackend, Prepared, Path]) -> None:
    _, prepared, _ = ready
    assert all(subgraph.titles for subgraph in prepared.subgraphs)
    titles = [subgraph.title for subgraph in prepared.subgraphs]
    assert len(set(titles)) == len(titles)
    assert not [title for title in titles if "fused_" in title]
