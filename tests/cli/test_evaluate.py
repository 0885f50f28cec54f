from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kintune.core.model import Combination, Tensor
from kintune.core.quantisation import Quantised
from kintune.runtime import opening
from kintune.runtime.manifest import Narrow
from kintune_runtime import Evaluation
from tests.support.toy_hybrid import write_toy_hybrid
from tests.support.toy_model import write_model

if TYPE_CHECKING:
    from tests.support.command import Kintune


class Timed:
    """Stands in for an executable, and keeps what it was asked."""

    manifest = SimpleNamespace(
        model_name="resnet18",
        threads=2,
        combinations=(Combination((), ()),),
        hybrid=None,
        narrow=None,
        bounds=(),
        exporter="",
        drawn=(),
    )

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def evaluate(self, *inputs: Any, **options: Any) -> Evaluation:
        self.asked.append((inputs, options))
        return Evaluation.of([14.0, 15.0, 16.0], 0.025)


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Timed:
    monkeypatch.chdir(tmp_path)
    timed = Timed()
    monkeypatch.setattr(opening, "open", lambda *_, **__: timed)
    return timed


def test_the_median_is_said_with_its_spread(kintune: Kintune, timed: Timed) -> None:
    said = kintune("evaluate", "m.kt", "--repeats", 3, "--warmups", 0)
    assert said.out.splitlines()[0] == "resnet18: 15.0 ms (median of 3 runs)"
    assert "14.2 ms to 15.8 ms" in said.out
    assert timed.asked == [((), {"repeats": 3, "warmups": 0, "threads": 0, "streams": 1})]


@pytest.mark.parametrize(
    ("second", "median", "uncertain"), [([15.0, 15.1, 15.2], "15.1 ms", False), ([9.0, 15.0, 30.0], "12.0 ms", True)]
)
def test_restless_runs_are_timed_once_more_and_then_said(
    kintune: Kintune,
    timed: Timed,
    monkeypatch: pytest.MonkeyPatch,
    second: list[float],
    median: str,
    *,
    uncertain: bool,
) -> None:
    found = iter([Evaluation.of([8.0, 12.0, 19.0]), Evaluation.of(second)])
    monkeypatch.setattr(timed, "evaluate", lambda *_, **__: next(found))
    said = kintune("evaluate", "m.kt", "--json", "-")
    assert f"resnet18: {median} (median of 3 runs)" in said.err
    assert ("Uncertain: 8 of 10 runs took 8.80 ms to 17.6 ms" in said.err) == uncertain
    assert len(json.loads(said.out)["uncertain"]) == uncertain
    assert next(found, None) is None


def test_who_measures_on_the_cores_meanwhile_is_named(
    kintune: Kintune, timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    import kintune.cli.held_cores as cores

    assert kintune("evaluate", "m.kt").err == ""
    monkeypatch.setattr(cores, "holder_of", lambda cores: "4711 kintune tune net.onnx")
    said = kintune("evaluate", "m.kt")
    assert said.code == 0
    assert "the cores are held by process 4711 kintune tune net.onnx" in said.err


def test_kernels_of_what_runs_elsewhere_are_refused_before_anything_is_timed(kintune: Kintune, timed: Timed) -> None:
    said = kintune("evaluate", "m.kt", "--kernels")
    assert said.code == 2
    assert "m.kt: for a GPU, where kernels are not timed one by one; leave out --kernels" in said.err
    assert timed.asked == []


def test_the_users_own_inputs_are_used(kintune: Kintune, timed: Timed) -> None:
    np.savez("x.npz", x=np.ones(2))
    assert kintune("evaluate", "m.kt", "--input", "x.npz").code == 0
    assert timed.asked[0][0][0]["x"].tolist() == [1.0, 1.0]


def test_the_document_has_every_run(kintune: Kintune, timed: Timed) -> None:
    document = json.loads(kintune("evaluate", "m.kt", "--json", "-").out)
    assert document["times_ms"] == [14.0, 15.0, 16.0]
    assert (document["schema_version"], document["median_ms"], document["threads"]) == (1, 15.0, 2)


def test_streams_tell_the_throughput(kintune: Kintune, timed: Timed) -> None:
    said = kintune("evaluate", "m.kt", "--streams", 2, "--threads", 1).out.splitlines()
    assert said[1] == "2 streams: 120.0 requests a second; 50 of 100 took at most 15.0 ms, 99 of 100 at most 16.0 ms"
    assert timed.asked[0][1]["streams"] == 2
    assert timed.asked[0][1]["threads"] == 1


def test_kernels_are_told_the_longest_first(kintune: Kintune, tmp_path: Path) -> None:
    path = write_model(tmp_path / "toy.kt")
    document = json.loads(kintune("evaluate", path, "--kernels", "--repeats", 3, "--json", "-").out)
    assert document["kernels"]
    assert all(call["median_us"] >= 0 for call in document["kernels"])
    said = kintune("evaluate", path, "--kernels", "--repeats", 3).out.splitlines()
    header = next(number for number, line in enumerate(said) if line.startswith("operators"))
    names = {line.split()[0] for line in said[header + 1 : -1]}
    assert names == {call["title"] or call["kernel"] for call in document["kernels"]}
    assert said[-1].startswith(f"All {len(document['kernels'])} calls together take ")


class Several(Timed):
    """Two combinations of shapes, the second of which takes twice as long."""

    manifest = SimpleNamespace(
        model_name="bert",
        threads=2,
        hybrid=None,
        bounds=(),
        exporter="PyTorch 2.13.0",
        drawn=(),
        narrow=Narrow({"a product": "bf16"}, 0.02, 0.01, Quantised(5, 3)),
        combinations=tuple(Combination((Tensor("ids", (1, n), "int64"),), ()) for n in (16, 32)),
    )

    def evaluate(self, *inputs: Any, **options: Any) -> Evaluation:
        return Evaluation.of([float(inputs[0]["ids"].shape[1])])


def test_each_combination_of_shapes_is_timed(kintune: Kintune, timed: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "open", lambda *_, **__: Several())
    *said, exported, narrow = kintune("evaluate", "m.kt", "--json", "m.json").out.splitlines()
    assert exported == "The result is made of a program of PyTorch as ONNX, to which PyTorch 2.13.0 has exported it."
    assert narrow == (
        "Narrower than the model's types: 3 of 5 products in int8, 1 subgraph in bf16; error of its "
        "outputs when it was tuned: 0.01 of their norm"
    )
    assert said[::2] == [
        "bert with ids=1x16: 16.0 ms (median of 1 run)",
        "bert with ids=1x32: 32.0 ms (median of 1 run)",
    ]
    document = json.loads(Path("m.json").read_text())
    assert (document["median_ms"], document["shapes"]) == (16.0, {"ids": [1, 16]})
    assert [(each["shapes"], each["median_ms"]) for each in document["combinations"]] == [
        ({"ids": [1, 16]}, 16.0),
        ({"ids": [1, 32]}, 32.0),
    ]


def test_open_shapes_are_timed_at_the_greatest_and_at_some_others(
    kintune: Kintune, timed: Timed, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = Tensor("ids", (1, 64), "int64", ranges=((1, 1, 0), (1, 64, 1)))
    opened = Several()
    opened.manifest = SimpleNamespace(
        **{**vars(Several.manifest), "combinations": (Combination((ids,), ()),), "inputs": (ids,), "outputs": ()}
    )
    opened.manifest.drawn = ({"ids": (1, 1)}, {"ids": (1, 9)})
    monkeypatch.setattr(opening, "open", lambda *_, **__: opened)
    said = kintune("evaluate", "m.kt").out.splitlines()
    assert [line.partition(":")[0] for line in said[:6:2]] == [f"bert with ids=1x{each}" for each in (64, 1, 9)]
    np.savez("x7.npz", ids=np.zeros((1, 7), np.int64))
    assert kintune("evaluate", "m.kt", "--input", "x7.npz").out.startswith("bert with ids=1x7: ")


def test_inputs_choose_what_is_timed(kintune: Kintune, timed: Timed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "open", lambda *_, **__: Several())
    for length in (32, 48):
        np.savez(f"x{length}.npz", ids=np.zeros((1, length), np.int64))
    said = kintune("evaluate", "m.kt", "--input", "x32.npz", "--json", "-")
    document = json.loads(said.out)
    assert (document["median_ms"], document["shapes"], document["combinations"]) == (32.0, {"ids": [1, 32]}, [])
    refused = kintune("evaluate", "m.kt", "--input", "x48.npz")
    assert refused.code == 2
    assert "the shapes ids=1x48 were not tuned; tuned are: ids=1x16; ids=1x32" in refused.err


@pytest.mark.parametrize("arguments", [["--repeats", "0"], ["--warmups", "-1"], ["--streams", "0"], ["--threads", "0"]])
def test_senseless_repetition_is_refused(kintune: Kintune, timed: Timed, arguments: list[str]) -> None:
    assert kintune("evaluate", "m.kt", *arguments).code == 2
    assert timed.asked == []


def test_what_runs_partly_in_onnxruntime_says_what_runs_where(kintune: Kintune, tmp_path: Path) -> None:
    path = write_toy_hybrid(tmp_path)
    said = kintune("evaluate", path, "--kernels", "--repeats", 3)
    assert said.code == 0, said.err
    assert "2 regions of 4 nodes run as Kintune's kernels; onnxruntime runs 1 CumSum" in said.out
    assert "  1 node: operator CumSum is not supported" in said.out
    assert {"first", "sum", "second"} <= {line.split()[0] for line in said.out.splitlines() if line}
    document = json.loads(kintune("evaluate", path, "--kernels", "--repeats", 3, "--json", "-").out)
    assert [call["kernel"] for call in document["kernels"]] == ["first add", "sum", "second add"]
    assert document["hybrid"]["operators"] == {"CumSum": 1}
    assert len(document["variants"]) == 1


def test_a_network_that_onnxruntime_runs_alone_says_so(kintune: Kintune, tmp_path: Path) -> None:
    said = kintune("evaluate", write_toy_hybrid(tmp_path, regions=0), "--threads", 1, "--streams", 2, "--repeats", 3)
    assert said.code == 0, said.err
    assert "onnxruntime runs all of it: 1 CumSum" in said.out
