from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kintune.core.candidate import Candidate, NamedChoice
from kintune.errors import BuildError
from kintune.search.processor import Processor
from kintune.search.sketch_program import by_program, program_of
from tests.support.products import outputs, product
from tests.support.targets import cpu_target

pytestmark = pytest.mark.tvm

TEXT = """
@T.prim_func(s_tir=True)
def main(a: T.Buffer((6, 8), "float32"), b: T.Buffer((6, 8), "float32")):
    with T.sblock("root"):
        for i in T.parallel(6):
            for j in T.serial({outer}):
                for v in T.vectorized({inner}):
                    b[i, j * {inner} + v] = a[i, j * {inner} + v] * T.float32(2)
"""


class Doubling:
    """What a program says that is written as a whole; its axis is the width of its vectors."""

    name = "doubling"
    version = 3
    patterns: tuple[str, ...] = ()
    widths = (2, 4, 8)

    def variants(self, module: Any, target: Any) -> list[str]:
        return ["any"] if len(module["main"].params) == 2 else []

    def axes(self, module: Any, variant: str) -> tuple[Any, ...]:
        return (NamedChoice(("width",), tuple((width,) for width in self.widths)),)

    def written(self, module: Any, variant: str, decisions: Any, kept: Any) -> Any:
        import tvm
        from tvm.script import tirx

        ((width,),) = decisions
        if width not in self.widths:
            raise BuildError(f"doubling has no width {width}")
        text = TEXT.format(inner=width, outer=8 // width)
        function = tvm.script.from_source(text, extra_vars={"T": tirx})
        return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})

    def rule(self, module: Any, variant: str, machine: Processor) -> list[Any]:
        return [((8,),), ((2,),)]


@pytest.fixture
def doubled(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A workload for which there is a program that is written as a whole."""
    import tvm
    from tvm import te, topi

    from kintune.compiler.programs import registry
    from kintune.compiler.programs.program import Program

    monkeypatch.setattr(registry, "PROGRAMS", (type("Doubling", (Doubling, Program), {})(),))
    a = te.placeholder((6, 8), name="a")
    function = te.create_prim_func([a, topi.multiply(a, 2.0)])
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def test_sketches_of_programs_come_first_and_compute_the_same(doubled: Any) -> None:
    from kintune.compiler.build import build_candidate
    from kintune.compiler.space.replay import Replayer, save_workload
    from kintune.compiler.space.sketches import generate_sketches

    sketches = generate_sketches("w", doubled, cpu_target())
    assert list(by_program(sketches)) == ["doubling.3:any", ""]
    sketch = sketches[0]
    for width in Doubling.widths:
        candidate = Candidate("w", sketch.digest, ((width,),))
        replayed = Replayer(doubled, cpu_target())(sketch, candidate)
        assert replayed.candidate == candidate
        np.testing.assert_array_equal(outputs(replayed.schedule.mod), outputs(doubled))
        assert build_candidate(cpu_target(), save_workload(doubled), sketch, candidate).artifact


def test_candidates_of_programs_and_rules_take_turns_and_have_features(doubled: Any) -> None:
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.compiler.space.tvm_space import TvmSpace

    sketches = generate_sketches("w", doubled, cpu_target())
    space = TvmSpace({"w": doubled}, sketches, cpu_target(), Processor(), 1)
    first = space.rules("w", 4)
    own = [candidate.sketch == sketches[0].digest for candidate in first]
    assert own[:2] == [True, False]
    assert first[0].decisions == ((8,),)
    drafts = space.verify([Candidate("w", sketches[0].digest, ((n,),)) for n in (2, 4, 8, 16)])
    assert [draft is None for draft in drafts] == [False, False, False, True]
    assert all(np.isfinite(draft.features).all() for draft in drafts if draft is not None)


def broken(*_: Any) -> Any:
    raise RuntimeError("of the compiler\nno such index")


FAILS = "program doubling fails: RuntimeError: no such index"


@pytest.mark.parametrize("method", ["variants", "axes"])
def test_a_program_that_fails_is_left_out(
    doubled: Any, method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from kintune.compiler.space.sketches import generate_sketches

    monkeypatch.setattr(Doubling, method, broken)
    assert list(by_program(generate_sketches("w", doubled, cpu_target()))) == [""]
    assert caplog.messages == [FAILS]


def test_a_program_whose_rule_or_text_fails_has_no_candidates(
    doubled: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.compiler.space.tvm_space import TvmSpace

    sketches = generate_sketches("w", doubled, cpu_target())
    space = TvmSpace({"w": doubled}, sketches, cpu_target(), Processor(), 1)
    monkeypatch.setattr(Doubling, "rule", broken)
    monkeypatch.setattr(Doubling, "written", broken)
    assert {candidate.sketch for candidate in space.rules("w", 4)} == {sketch.digest for sketch in sketches[1:]}
    assert caplog.messages == ["the rule of program doubling fails: RuntimeError: no such index"]
    assert space.verify([Candidate("w", sketches[0].digest, ((0,),))]) == [None]


def test_a_rule_of_the_compiler_that_fails_leaves_the_programs(
    doubled: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from tvm.s_tir import meta_schedule as ms

    from kintune.compiler.space.sketches import generate_sketches

    monkeypatch.setattr(ms.TuneContext, "generate_design_space", broken)
    assert list(by_program(generate_sketches("w", doubled, cpu_target()))) == ["doubling.3:any"]
    assert caplog.messages == ["the compiler's schedule rules fail: RuntimeError: no such index"]


def test_a_sketch_of_another_version_is_refused_in_a_line(doubled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.compiler.space.replay import Replayer
    from kintune.compiler.space.sketches import generate_sketches

    sketch = generate_sketches("w", doubled, cpu_target())[0]
    candidate = Candidate("w", sketch.digest, ((2,),))
    monkeypatch.setattr(Doubling, "version", 4)
    with pytest.raises(BuildError, match=rf"{candidate.digest}: no program doubling.3 .*'kintune records upgrade'"):
        Replayer(doubled, cpu_target())(sketch, candidate)


def test_a_pattern_has_the_sketches_of_its_programs_alone(doubled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm

    from kintune.compiler.graph.workload import describe
    from kintune.compiler.programs.program import PATTERN
    from kintune.compiler.space.sketches import generate_sketches

    monkeypatch.setattr(Doubling, "patterns", ("twice",))
    function = doubled["main"].with_attr(PATTERN, "twice 6 8")
    module = tvm.IRModule({"main": function})
    assert [program_of(sketch) for sketch in generate_sketches("w", module, cpu_target())] == ["doubling.3:any"]
    workload = describe("fused_multiply", module)
    assert workload.operator == "twice"
    assert workload.reduces
    assert workload.digest != describe("fused_multiply", doubled).digest


def test_sketches_of_rules_have_analytic_features() -> None:
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.compiler.space.tvm_space import TvmSpace

    module = product(197)
    sketches = generate_sketches("w", module, cpu_target())
    groups = by_program(sketches)
    assert list(groups) == ["vectors.1:8x16", ""]
    space = TvmSpace({"w": module}, sketches, cpu_target(), Processor(), 1)
    described = {sketch for field in space.fields("w") for sketch in field.encoding.sketches}
    assert described == {*groups[""]}
    assert all(draft is not None for draft in space.verify(space.rules("w", 4)))
