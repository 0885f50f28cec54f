from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kintune.errors import InputError
from kintune_lab.bench.spec import BenchSpec, read_bench_spec
from kintune_lab.experiment.experiment import Experiment
from tests.support.fake_experiment import FakeExperiment

ReadSpec = Callable[..., BenchSpec]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def spec_of(tmp_path: Path) -> ReadSpec:
    """Reads a spec of the fake experiment; its head is written unless `whole`."""

    def read(text: str, experiment: FakeExperiment | None = None, *, whole: bool = False) -> BenchSpec:
        fake = experiment or FakeExperiment()

        def find(name: str) -> Experiment:
            if name != fake.name:
                raise InputError(f"there is no experiment {name!r}")
            return fake

        path = tmp_path / "spec.toml"
        path.write_text(text if whole else f'name = "a"\nexperiment = "fake"\n{text}')
        return read_bench_spec(path.name, find)

    return read
