"""Both tuners on a network of two layers, with the stock runner and a builder that starts no processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kintune.core.candidate import UNTUNED
from kintune.core.config import Strategy
from kintune.core.knowledge import Knowledge

if TYPE_CHECKING:
    from kintune_lab.tuners.messages import ToolsName, TurnReport
    from kintune_lab.tuners.setup import SharedSetup

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> SharedSetup:
    from kintune.models.ref import parse_ref
    from kintune_lab.tuners.setup import prepare_setup
    from tests.support.tiny_network import make_tiny_network

    return prepare_setup(parse_ref(str(make_tiny_network(tmp_path_factory.mktemp("model")).onnx)), 1)


@pytest.fixture(scope="module")
def stock_turns(setup: SharedSetup, tmp_path_factory: pytest.TempPathFactory) -> list[TurnReport]:
    """All turns of a stock run of 12 trials a subgraph, with a smaller search than its default one."""
    from tvm.s_tir import meta_schedule as ms

    from kintune_lab.tuners.stock_tuner import StockTuner
    from tests.support.quick_tuner import QUICK_TOOLS

    small = {"strategy": ms.search_strategy.EvolutionarySearch(population_size=32, genetic_num_iters=1)}
    tuner = StockTuner(setup, tmp_path_factory.mktemp("stock"), 36, 0, small, QUICK_TOOLS)
    turns = []
    finished = False
    while not finished:
        finished = tuner.turn()
        turns.append(tuner.report())
    return turns


def test_all_contestants_are_ready_with_the_same_network(setup: SharedSetup) -> None:
    ready = setup.ready()
    assert ready == setup.ready()
    assert {subgraph.workload for subgraph in ready.subgraphs} == set(ready.modules)
    assert ready.tasks == len(ready.subgraphs) == 3
    assert [subgraph.tunable for subgraph in ready.subgraphs] == [True, True, False]


@pytest.mark.slow  # a race with stock is in the fast tests
def test_a_stock_turn_is_a_round_of_one_task(setup: SharedSetup, stock_turns: list[TurnReport]) -> None:
    *rounds, last = stock_turns
    assert all(len(turn.measured) == 1 for turn in rounds)
    assert sum(turn.trials for turn in rounds) >= 36
    assert last.trials == 0
    assert not any(turn.failures for turn in stock_turns)
    for turn in rounds:
        assert set(turn.seconds) <= {"select", "build", "profile", "update", "other"}
        assert turn.seconds["build"] > 0
        assert turn.seconds["profile"] > 0
    assert last.seconds["update"] > 0


@pytest.mark.slow
def test_what_is_replayed_is_what_stock_built(setup: SharedSetup, stock_turns: list[TurnReport]) -> None:
    from kintune.compiler.space.replay import Replayer
    from kintune_lab.tuners.setup import structural_hash

    modules = {workload.digest: workload.module for workload in setup.lowered.workloads}
    sketches = {sketch.digest: sketch for turn in stock_turns for sketch in turn.sketches}
    programs = [program for turn in stock_turns for program in turn.programs]
    assert programs  # how many of its rounds improve on earlier ones depends on measured times
    for program in programs:
        candidate = program.candidate
        replayed = Replayer(modules[candidate.workload], setup.target)(sketches[candidate.sketch], candidate)
        assert structural_hash(replayed.schedule.mod) == program.structure
        assert structural_hash(modules[candidate.workload]) != program.structure


def test_every_candidate_of_a_stock_round_can_be_replayed_as_it_was(setup: SharedSetup, tmp_path: Path) -> None:
    """Not only best_programs: post-processing, mutated decisions and compute locations included."""
    import tvm
    from tvm.s_tir import meta_schedule as ms

    from kintune.compiler.space.replay import Replayer
    from kintune.compiler.space.sketches import parse_trace
    from kintune.core.candidate import Candidate
    from kintune_lab.tuners.setup import structural_hash

    workload = setup.lowered.workloads[0]
    context = ms.TuneContext(
        workload.module,
        target=setup.target,
        space_generator="post-order-apply",
        search_strategy=ms.search_strategy.EvolutionarySearch(population_size=64, genetic_num_iters=2),
        rand_state=3,
        num_threads=1,
    )
    context.pre_tuning(
        16, 16, context.generate_design_space(), ms.database.MemoryDatabase(), ms.cost_model.RandomModel()
    )
    candidates = context.generate_measure_candidates()
    replay = Replayer(workload.module, setup.target)
    assert candidates is not None
    assert len(candidates) == 16
    for candidate in candidates:
        assert isinstance(candidate.sch, tvm.s_tir.Schedule)
        sketch, decisions = parse_trace(workload.digest, workload.module, candidate.sch.trace)
        replayed = replay(sketch, Candidate(workload.digest, sketch.digest, decisions))
        assert structural_hash(replayed.schedule.mod) == structural_hash(candidate.sch.mod)


@pytest.mark.parametrize("tools", ["stock", "own"])
def test_our_first_turn_measures_every_subgraph(setup: SharedSetup, tools: ToolsName, tmp_path: Path) -> None:
    from kintune_lab.tuners.kintune_tuner import KintuneTuner
    from kintune_lab.tuners.messages import KintuneSpec, WarmStart
    from tests.support.quick_tuner import QUICK_TOOLS

    tuner = KintuneTuner(setup, KintuneSpec(Strategy(round_size=8), tools), 0, tmp_path, QUICK_TOOLS)
    tuner.teach(WarmStart(Knowledge()))
    assert not tuner.turn()
    first = tuner.report()
    tunable, trivial = setup.ready().subgraphs[:2], setup.ready().subgraphs[2]
    assert set(first.measured) == {subgraph.workload for subgraph in (*tunable, trivial)}
    assert first.measured[trivial.workload] == 1
    assert {p.candidate.workload for p in first.programs} == set(first.measured)
    assert all(p.time_us > 0 and p.structure for p in first.programs)
    assert {sketch.digest for sketch in first.sketches} == {
        p.candidate.sketch for p in first.programs if p.candidate.sketch != UNTUNED
    }
    assert not tuner.turn()
    second = tuner.report()
    assert trivial.workload not in second.measured
    assert second.trials == sum(second.measured.values()) > 0
    tuner.close()
