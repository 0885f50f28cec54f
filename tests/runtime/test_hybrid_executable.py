"""Results that run partly in onnxruntime, as the rest of Kintune uses them."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest

import kintune
from kintune.errors import InputError, OrderError
from kintune.runtime.hybrid_executable import HybridExecutable
from kintune.validate.baselines.baseline import BaselineModel
from kintune.validate.baselines.kintune_executable import KintuneExecutable
from tests.support.toy_hybrid import X, expected, host_graph, hybrid_manifest, region_file, write_toy_hybrid
from tests.support.toy_model import adding, write_model


def created(folder: Path, machine: str = "") -> HybridExecutable:
    manifest = hybrid_manifest(machine=machine) if machine else hybrid_manifest()
    region = region_file(folder, "region.kt", [adding()], **({"machine": machine} if machine else {}))
    return HybridExecutable.create(manifest, host_graph(manifest), [region, region])


def test_it_is_made_run_saved_and_opened(tmp_path: Path) -> None:
    made = created(tmp_path)
    np.testing.assert_array_equal(made.run(X)["out"], expected(X))
    made.save(tmp_path / "saved.kt")
    opened = kintune.open(tmp_path / "saved.kt")
    assert isinstance(opened, HybridExecutable)
    assert opened.manifest == made.manifest == hybrid_manifest()
    assert opened.inputs == opened.manifest.inputs
    assert opened.outputs == opened.manifest.outputs
    assert opened.described_inputs() == opened.manifest.inputs
    assert opened.hybrid.summary == "runs partly in onnxruntime (1 CumSum)"
    assert repr(opened) == "HybridExecutable('toy', x: float32[1000])"
    np.testing.assert_array_equal(opened.run({"x": X})["out"], expected(X))
    opened.save(tmp_path / "again.kt")
    assert (tmp_path / "again.kt").read_bytes() == (tmp_path / "saved.kt").read_bytes()


def test_nothing_of_it_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    gc.collect()  # what earlier tests left open is not closed in between
    before = len(os.listdir("/proc/self/fd"))
    made = created(tmp_path)
    made.run(X)
    assert any(each.startswith("kintune-") for each in os.listdir(tmp_path))
    del made
    gc.collect()
    assert os.listdir(tmp_path) == ["region.kt"]
    assert len(os.listdir("/proc/self/fd")) <= before


def test_one_for_another_machine_is_saved_and_not_run(tmp_path: Path) -> None:
    made = created(tmp_path, "riscv64")
    made.save(tmp_path / "saved.kt")
    with pytest.raises(OrderError, match=r"toy is built for riscv64.*save it and run it there"):
        made.run(X)
    with pytest.raises(InputError, match=r"saved\.kt: built for riscv64, this machine is"):
        kintune.open(tmp_path / "saved.kt")


def test_a_variant_and_an_ordinary_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"hybrid\.kt: has no variant 1"):
        kintune.open(write_toy_hybrid(tmp_path), 1)
    with pytest.raises(InputError, match=r"toy\.kt: does not run in onnxruntime"):
        HybridExecutable.open(write_model(tmp_path / "toy.kt"))


def test_a_graph_that_onnxruntime_refuses_is_one_line(tmp_path: Path) -> None:
    manifest = hybrid_manifest(regions=0)
    graph = host_graph(manifest).replace(b"CumSum", b"CumSam")
    with pytest.raises(InputError, match=r"onnxruntime .* refuses it: .*CumSam") as refused:
        HybridExecutable.create(manifest, graph, [])
    assert "\n" not in str(refused.value)


def test_it_is_a_baseline_as_others_are(tmp_path: Path) -> None:
    baseline = KintuneExecutable()
    subject = BaselineModel(executable=str(write_toy_hybrid(tmp_path)))
    assert baseline.unavailable(subject) is None
    baseline.prepare(subject, 1, {"x": X})
    np.testing.assert_array_equal(baseline.run()[0], expected(X))
    with pytest.raises(OrderError, match="without onnxruntime"):
        baseline.profile(1)
    nodes = baseline.profile_nodes(3, 1.0).nodes
    assert [(node.name, node.op, node.times) for node in nodes] == [
        ("first add", "Region0", 1),
        ("sum", "CumSum", 1),
        ("second add", "Region1", 1),
    ]
