"""The notebook that reads a bench, cell by cell, on the tables of a bench."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kintune_lab.bench.display import open_bench_display
from kintune_lab.bench.experiments.tune import EXPERIMENT
from kintune_lab.bench.runner import BenchRunner
from kintune_lab.bench.spec import read_bench_spec

if TYPE_CHECKING:
    from tests.conftest import FakeFront

NOTEBOOK = json.loads((Path(__file__).parents[3] / "examples/read_bench.ipynb").read_text())


@pytest.fixture
def _no_screen() -> Iterator[None]:
    import matplotlib
    import matplotlib.pyplot as plt

    before = matplotlib.get_backend()
    plt.switch_backend("agg")
    yield
    plt.close("all")
    plt.switch_backend(before)


def run_all(cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The names that the notebook has at its end."""
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    return names


@pytest.mark.usefixtures("_no_screen")
def test_the_notebook_reads_what_a_bench_leaves(fake_front: FakeFront, tmp_path: Path) -> None:
    Path("a.toml").write_text(
        'name = "smoke"\nexperiment = "tune"\n[matrix]\nmodel = "zoo:resnet18"\nfamilies = ["op", "none"]\n'
        "seed = [0, 1]\ntrials = 64\n"
    )
    spec = read_bench_spec("a.toml", lambda _: EXPERIMENT)
    BenchRunner(spec, tmp_path / "bench-smoke", open_bench_display("", quiet=True), lambda models: {}).run()
    names = run_all(NOTEBOOK["cells"])
    assert len(names["cells"]) == 4
    assert names["options"] == ["seed", "families"]
    assert names["groups"] == ["model", "families", "method"]
    assert names["latency"] == "tuned_ms"
    assert len(names["axes"].lines) == 4
    assert names["shares"].shape == (2, 5)


def test_the_notebook_is_committed_without_outputs() -> None:
    for cell in NOTEBOOK["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
