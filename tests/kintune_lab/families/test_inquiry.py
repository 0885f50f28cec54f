from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest

from kintune.core.model import ModelRef
from kintune.core.stage_results import Prepared
from kintune.core.version import FEATURES
from kintune.errors import InputError
from kintune.models.ref import parse_ref
from kintune.records import Store
from kintune.testing.records import DEVICE, add_workload, measurement, subgraph
from kintune_lab.families import inquiry as module
from kintune_lab.families.inquiry import inquire
from kintune_lab.families.samples import LEAST_SAMPLES

ZOO = parse_ref("zoo:resnet18")
NAMES = ("conv", "wide", "tail")


@pytest.fixture(autouse=True)
def _network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network of three subgraphs."""

    @contextmanager
    def preparing(**_: object) -> Iterator[Callable[[ModelRef], Prepared]]:
        subgraphs = tuple(subgraph(name) for name in NAMES)
        yield lambda ref: Prepared(ref.name, "d" * 32, (), (), subgraphs, {}, ())

    monkeypatch.setattr(module, "preparing", preparing)


def measure(path: Path, name: str, samples: int) -> None:
    with Store.open(path) as store:
        workload = add_workload(store, name)
        for index in range(samples):
            features = np.array([index, index % 3], dtype="<f4").tobytes()
            row = msgspec.structs.replace(measurement(workload, index, 10.0 + index), features=features)
            store.measurements.add(msgspec.structs.replace(row, feature_version=FEATURES))


def test_without_records_there_are_families_and_no_map(tmp_path: Path) -> None:
    found = inquire(ZOO, "op", records=str(tmp_path / "none.sqlite"))
    assert [(family.key, len(family.members)) for family in found.families] == [("op:conv2d", 3)]
    assert (found.samples, found.measured_on, found.relation) == (0, None, None)
    assert list(tmp_path.iterdir()) == []


def test_what_was_measured_enough_is_related(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    for name, samples in zip(NAMES, (40, 30, 3), strict=True):
        measure(path, name, samples)
    found = inquire(ZOO, "op", records=str(path))
    assert (found.samples, found.measured_on) == (73, DEVICE.model)
    assert found.relation is not None
    related = [member.samples for member in found.members if member.number in found.relation.numbers]
    assert sorted(related) == [30, 40]
    assert all(0.5 < value <= 1 for row in found.relation.accuracy for value in row if value is not None)


def test_too_few_samples_make_no_map(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    measure(path, "conv", LEAST_SAMPLES)
    measure(path, "wide", LEAST_SAMPLES - 1)
    found = inquire(ZOO, "ind", records=str(path))
    assert (found.samples, found.relation) == (2 * LEAST_SAMPLES - 1, None)


def test_families_by_measurement_need_samples(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite"
    with pytest.raises(InputError, match="the records have too few yet; 'kintune tune' brings them"):
        inquire(ZOO, "measured", records=str(path))
    measure(path, "conv", LEAST_SAMPLES)
    assert sum(len(family.members) for family in inquire(ZOO, "measured", records=str(path)).families) == 3
