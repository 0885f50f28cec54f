"""Decisions of earlier programs, which were places in lists, mean what they meant.

`earlier_programs.kr` was written in November 2026, before decisions had names: measurements of every program of then,
the last two of one that is no more.  The origin of each measurement is what its decisions picked.  Indices, which
had 32 bits in some of these workloads, have 64, as in all networks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from kintune.core.candidate import Axis, Candidate, NamedChoice, Sketch, described
from kintune.errors import BuildError
from kintune.records import Measurement, Store, import_records
from kintune.search.evolve import draw
from kintune.search.sketch_program import has_places, program_of
from kintune.transfer.upgrade import upgrade_records

pytestmark = pytest.mark.tvm

FILE = Path(__file__).parents[2] / "support" / "earlier_programs.kr"


NO_MORE = 8
"""Measurements of values that are no more: of panels in fp32, and of blocks of an image's row without a tile."""


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
        had_places = {key.partition(":")[0] for key, earlier in EARLIER.items() if earlier.names}
        assert {name.partition(":")[0] for _, name in measured(store)} >= had_places


def test_records_are_upgraded_to_what_they_picked(store: Store) -> None:
    from kintune.compiler.programs.earlier import EARLIER

    before = {each.id: each for each, _ in measured(store)}
    before_names = {each.id: name for each, name in measured(store)}
    told, unchanged = upgrade_records(store), 0
    assert (told.training, told.dropped, told.current) == (1 + NO_MORE, 1, 0)
    assert told.converted == len(before) - 2 - NO_MORE
    axes = {s.digest: s.axes for s in store.workloads.sketches(w.digest for w in store.workloads.list())}
    for each, name in measured(store):
        if each == before[each.id]:
            unchanged += 1
            continue
        known, _, variant = before_names[each.id].partition(":")
        earlier = EARLIER.get(f"{known}:{variant.partition('-')[0]}", EARLIER[known])
        picked = [values for _, values in zip(earlier.names, json.loads(each.origin), strict=False)]
        wanted = dict(earlier.implied)
        for names, values in zip(earlier.names, picked, strict=False):
            wanted.update(zip(names.split(), values, strict=True))
        now = axes[each.candidate.sketch]
        assert all(isinstance(axis, NamedChoice) for axis in now)
        found = zip(named(now), each.candidate.decisions, strict=True)
        assert {n: v for axis, values in found for n, v in zip(axis.names, values, strict=True)} == wanted, name
        assert "=" in described(now, each.candidate.decisions)
    assert unchanged == 1 + NO_MORE
    assert store.check() == []
    assert upgrade_records(store) == type(told)(converted=0, training=1 + NO_MORE, dropped=0, current=told.converted)


def written(name: str, module: Any, candidate: Candidate) -> str:
    """The program of a candidate as text, or why there is none."""
    from kintune.compiler.programs.registry import write

    try:
        return str(write(name, module, candidate.decisions).script())
    except BuildError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_drawn_builds_the_same_whatever_the_order_of_the_lists(
    store: Store, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kintune.compiler.programs import registry
    from kintune.compiler.programs.choice_lists import ChoiceLists
    from kintune.compiler.programs.registry import program_named
    from kintune.compiler.space.replay import load_workload
    from kintune.compiler.space.sketches import whole_sketch

    def reversed_lists(program: str, lists: Mapping[str, Sequence[Any]]) -> ChoiceLists:
        return ChoiceLists(program, {name: values[::-1] for name, values in lists.items()})

    upgrade_records(store)
    rng = np.random.default_rng(seed)
    drawn: list[tuple[str, Any, Sketch, Candidate, str]] = []
    for workload in store.workloads.list():
        module = load_workload(store.workloads.module(workload.digest))
        for sketch in store.workloads.sketches([workload.digest]):
            if not has_places(sketch):
                sent = msgspec.msgpack.encode((sketch, draw(sketch, rng)))
                sketch, candidate = msgspec.msgpack.decode(sent, type=tuple[Sketch, Candidate])
                name = program_of(sketch)
                drawn.append((name, module, sketch, candidate, written(name, module, candidate)))
    assert len(drawn) > 15
    assert sum("def main" in text for *_, text in drawn) > 10
    for module_of_program in {base.__module__ for program in registry.PROGRAMS for base in type(program).__mro__}:
        if hasattr(sys.modules[module_of_program], "ChoiceLists"):
            monkeypatch.setattr(sys.modules[module_of_program], "ChoiceLists", reversed_lists)
    for name, module, sketch, candidate, text in drawn:
        again = whole_sketch(sketch.workload, module, *program_named(name))
        assert again is not None
        assert again.digest == sketch.digest
        assert again.axes != sketch.axes or all(len(axis.values) == 1 for axis in named(sketch.axes))
        assert written(name, module, candidate) == text, name


def named(axes: Sequence[Axis]) -> list[NamedChoice]:
    return [axis for axis in axes if isinstance(axis, NamedChoice)]


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
