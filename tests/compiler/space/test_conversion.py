"""Decisions of earlier programs, which were places in lists, mean what they meant.

`earlier_programs.kr` was written in November 2026, before decisions had names: measurements of every program of then,
the last two of one that is no more.  The origin of each measurement is what its decisions picked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kintune.core.candidate import Candidate, NamedChoice, described
from kintune.errors import BuildError
from kintune.records import Measurement, Store, import_records
from kintune.search.sketch_program import program_of
from kintune.transfer.upgrade import upgrade_records

pytestmark = pytest.mark.tvm

FILE = Path(__file__).parents[2] / "support" / "earlier_programs.kr"


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(":memory:") as store:
        import_records(store, FILE)
        yield store


def measured(store: Store) -> list[tuple[Measurement, str]]:
    """All measurements, each with the name of its program."""
    workloads = [workload.digest for workload in store.workloads.list()]
    names = {sketch.digest: program_of(sketch) for sketch in store.workloads.sketches(workloads)}
    return [(each, names[each.candidate.sketch]) for each in store.measurements.find()]


def test_every_program_is_among_them() -> None:
    from kintune.compiler.programs.earlier import EARLIER

    with Store.open(":memory:") as store:
        import_records(store, FILE)
        assert {name.partition(":")[0] for _, name in measured(store)} >= {key.partition(":")[0] for key in EARLIER}


def test_records_are_upgraded_to_what_they_picked(store: Store) -> None:
    before = {each.id: each for each, _ in measured(store)}
    told = upgrade_records(store)
    assert (told.training, told.dropped, told.current) == (1, 1, 0)
    assert told.converted == len(before) - 2
    axes = {s.digest: s.axes for s in store.workloads.sketches(w.digest for w in store.workloads.list())}
    for each, name in measured(store):
        if each.origin == "gone":
            assert each == before[each.id]
            continue
        picked = tuple(map(tuple, json.loads(each.origin)))
        assert each.candidate.decisions == picked, name
        assert all(isinstance(axis, NamedChoice) for axis in axes[each.candidate.sketch])
        assert "=" in described(axes[each.candidate.sketch], picked)
    assert store.check() == []
    assert upgrade_records(store) == type(told)(converted=0, training=1, dropped=0, current=told.converted)


def test_what_is_upgraded_is_of_a_sketch_of_today(store: Store) -> None:
    import tvm

    from kintune.compiler.space.replay import load_workload
    from kintune.compiler.space.sketches import generate_sketches

    upgrade_records(store)
    target = tvm.target.Target({"kind": "llvm", "mcpu": "sapphirerapids", "num-cores": 2})
    found = {each.candidate.sketch: name for each, name in measured(store) if name.startswith(("tiled.", "direct."))}
    digests = {
        sketch.digest
        for workload in store.workloads.list()
        if any(name.startswith(("tiled.", "direct.")) for name in found.values())
        for sketch in generate_sketches(workload.digest, load_workload(store.workloads.module(workload.digest)), target)
    }
    assert digests.intersection(found)


def test_no_program_is_built_from_a_place(store: Store) -> None:
    import tvm

    from kintune.compiler.space.replay import Replayer, load_workload

    target = tvm.target.Target({"kind": "llvm", "mcpu": "sapphirerapids", "num-cores": 2})
    sketches = {s.digest: s for s in store.workloads.sketches(w.digest for w in store.workloads.list())}
    for each, name in measured(store):
        candidate: Candidate = each.candidate
        replayer = Replayer(load_workload(store.workloads.module(candidate.workload)), target)
        with pytest.raises(BuildError, match=rf"{candidate.digest}: no program {name.partition(':')[0]} .*upgrade"):
            replayer(sketches[candidate.sketch], candidate)
