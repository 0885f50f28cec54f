import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import kintune
from kintune.errors import InputError, OrderError
from kintune.runtime.inputs import draw_inputs
from kintune.runtime.package import Manifest, Package, PackageVariant, write_package

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.support.tiny_network import make_tiny_network

    return make_tiny_network(tmp_path_factory.mktemp("network"))


@pytest.fixture
def saved(network: Any, tmp_path: Path) -> Path:
    network.executable.save(tmp_path / "tiny.kt")
    return tmp_path / "tiny.kt"


@pytest.fixture
def inputs(network: Any) -> dict[str, Any]:
    return draw_inputs(network.executable.inputs)


def resave(path: Path, **changes: Any) -> None:
    """Write the executable again with another manifest."""
    package = Package.open(path)
    ((manifest, plans),) = package.variants
    write_package(path, [PackageVariant(msgspec.structs.replace(manifest, **changes), plans)], package.weights)


def test_it_computes_what_onnxruntime_computes(network: Any, inputs: dict[str, Any]) -> None:
    import onnxruntime

    expected = onnxruntime.InferenceSession(network.onnx).run(None, inputs)
    outputs = network.executable.run(inputs)
    assert list(outputs) == ["y", "positive"]
    np.testing.assert_allclose(outputs["y"], expected[0], rtol=1e-4, atol=1e-5)
    assert outputs["positive"].dtype == np.bool_
    assert (outputs["positive"] == expected[1]).all()


def test_positions_are_as_good_as_names(network: Any, inputs: dict[str, Any]) -> None:
    named, positional = network.executable.run(inputs), network.executable.run(inputs["x"], inputs["bias"])
    assert all(np.array_equal(named[name], positional[name]) for name in named)


def test_outputs_belong_to_the_caller(network: Any, inputs: dict[str, Any]) -> None:
    first = network.executable.run(inputs)
    kept = first["y"].copy()
    second = network.executable.run({"x": inputs["x"] * 2, "bias": inputs["bias"]})
    assert np.array_equal(first["y"], kept)
    assert not np.array_equal(second["y"], kept)
    second["y"][:] = 0
    assert np.array_equal(network.executable.run(inputs)["y"], kept)


def test_any_memory_layout_of_an_input_gives_the_same(network: Any, inputs: dict[str, Any]) -> None:
    expected = network.executable.run(inputs)["y"]
    x = inputs["x"]
    unaligned = np.empty(x.size + 1, np.float32)[1:].reshape(x.shape)
    unaligned[:] = x
    locked = x.copy()
    locked.flags.writeable = False
    for variant in (np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2], unaligned, locked):
        assert np.array_equal(network.executable.run({**inputs, "x": variant})["y"], expected)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (lambda x, b: [{"x": x}], "input 'bias' is missing; the inputs are 'x', 'bias'"),
        (lambda x, b: [{"x": x, "bias": b, "z": b}], "no input is called 'z'; the inputs are 'x', 'bias'"),
        (lambda x, b: [x], "1 inputs given, 2 needed: 'x', 'bias'"),
        (lambda x, b: [], "0 inputs given, 2 needed: 'x', 'bias'"),
        (lambda x, b: [x.astype("float64"), b], "input 'x' is float64, float32 is needed; use .astype('float32')"),
        (lambda x, b: [x.astype(">f4"), b], "input 'x' is >f4, float32 is needed; use .astype('float32')"),
        (lambda x, b: [x[None], b], "input 'x' has shape (1, 4, 48), (4, 48) is needed"),
        (lambda x, b: ["text", b], "input 'x' is <U4, float32 is needed; use .astype('float32')"),
    ],
)
def test_wrong_inputs_are_named(network: Any, inputs: dict[str, Any], given: Any, line: str) -> None:
    with pytest.raises(InputError) as caught:
        network.executable.run(*given(inputs["x"], inputs["bias"]))
    assert str(caught.value) == line


def test_evaluate_times_runs(network: Any, inputs: dict[str, Any]) -> None:
    evaluation = network.executable.evaluate(repeats=5, warmups=1)
    assert len(evaluation.times_ms) == 5
    assert 0 < evaluation.p10_ms <= evaluation.median_ms <= evaluation.p90_ms
    assert len(network.executable.evaluate(inputs, repeats=3, max_seconds=0).times_ms) == 1
    with pytest.raises(InputError, match="at least 1 repeat"):
        network.executable.evaluate(repeats=0)


def test_saved_and_opened_it_computes_the_same(network: Any, saved: Path, inputs: dict[str, Any]) -> None:
    from kintune.runtime.executable import Executable

    opened = Executable.open(saved)
    assert opened.manifest == network.executable.manifest
    assert np.array_equal(opened.run(inputs)["y"], network.executable.run(inputs)["y"])
    opened.save(saved.with_name("again.kt"))
    assert saved.with_name("again.kt").read_bytes() == saved.read_bytes()


def test_a_fresh_process_runs_it_without_the_compiler(
    network: Any, saved: Path, inputs: dict[str, Any], tmp_path: Path
) -> None:
    """With nothing but the file: another working directory, no records, no model."""
    np.savez(tmp_path / "x.npz", **inputs)
    program = """
import sys
import numpy as np
import kintune_runtime
outputs = kintune_runtime.open(sys.argv[1]).run(dict(np.load(sys.argv[2])))
np.savez(sys.argv[3], **outputs)
print(sorted({"tvm", "kintune", "msgspec"} & set(sys.modules)))
"""
    printed = subprocess.run(
        [sys.executable, "-c", program, str(saved), str(tmp_path / "x.npz"), str(tmp_path / "y.npz")],
        cwd=tmp_path, env={"PYTHONPATH": os.pathsep.join(sys.path)}, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert printed.strip() == "[]"
    assert np.array_equal(np.load(tmp_path / "y.npz")["y"], network.executable.run(inputs)["y"])


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"machine": "pdp11"}, "built for pdp11, this machine is"),
        ({"isa": ("avx2", "avx9000")}, "built for a CPU with avx9000, which this one lacks"),
    ],
)
def test_files_for_another_cpu_are_refused(saved: Path, change: dict[str, Any], line: str) -> None:
    from kintune.runtime.executable import Executable

    resave(saved, **change)
    with pytest.raises(InputError, match=line) as caught:
        Executable.open(saved)
    assert str(caught.value).startswith(f"{saved}: ")


def test_a_library_that_was_changed_is_refused(saved: Path) -> None:
    from kintune.runtime.executable import Executable

    package = Package.open(saved)
    ((manifest, (plan,)),) = package.variants
    broken = PackageVariant(manifest, (plan._replace(library=b"not a library"),))
    write_package(saved, [broken], package.weights)
    with pytest.raises(InputError, match="bad checksum of its kernels") as caught:
        Executable.open(saved)
    assert "\n" not in str(caught.value)


def test_the_manifest_says_what_the_target_needs(network: Any) -> None:
    from kintune.compiler.graph.executable import describe_build

    def isa(**target: Any) -> tuple[str, ...]:
        nothing: Any = {"model_name": "", "model_digest": "", "threads": 1, "inputs": (), "outputs": (), "chosen": {}}
        built: Manifest = describe_build(
            target=json.dumps({"kind": "llvm", "mtriple": "x86_64-linux-gnu", **target}), **nothing
        )
        return built.isa

    assert "avx512f" in isa(mcpu="skylake-avx512")
    assert "avx512f" not in isa(mcpu="skylake-avx512", mattr=["-avx512f"])
    assert "avx2" not in isa(mcpu="x86-64")


def test_no_temporary_file_stays_behind(network: Any, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile

    from kintune.runtime.executable import Executable

    scratch = saved.with_name("scratch")
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    Executable.open(saved).run(draw_inputs(network.executable.inputs))
    assert list(scratch.iterdir()) == []


@pytest.mark.needs("aarch64-linker")
def test_one_for_another_architecture_is_saved_here_and_run_there(tmp_path: Path) -> None:
    from tests.support.tiny_network import make_tiny_network

    target = '{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76"}'
    network = make_tiny_network(tmp_path, target=target)
    network.executable.save(tmp_path / "tiny.kt")
    with pytest.raises(
        OrderError, match=r"tiny is built for aarch64, this machine is .*; build it here, or save it and run it there"
    ):
        network.executable.run(draw_inputs(network.executable.inputs))
    package = Package.open(tmp_path / "tiny.kt")
    library = package.variants[0].plans[0].library
    assert library[:4] == b"\x7fELF"
    assert int.from_bytes(library[18:20], "little") == 183  # EM_AARCH64
    assert "neon" in package.manifest.isa
    with pytest.raises(InputError, match="built for aarch64, this machine is"):
        kintune.open(tmp_path / "tiny.kt")
