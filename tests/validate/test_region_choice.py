from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import msgspec
import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.core.stage_requests import ValidationContext
from kintune.errors import EngineError
from kintune.hardware.cores import choose_cores
from kintune.runtime.manifest import read_manifest
from kintune.validate import region_choice
from kintune.validate.baseline_protocol import BaselineContext, BaselineTurn
from kintune.validate.region_choice import is_slower, winning_regions, wins
from tests.support.partitions import parse
from tests.support.toy_tools import toy_spec
from tests.support.unpublished import write_unpublished

CONDITIONS = ValidationContext(threads=1, rounds=2, min_rounds=1, runs=3, race_seconds=0.0)


class TestIsSlower:
    @pytest.mark.parametrize(
        ("ours", "theirs", "slower"),
        [
            (1.0, 1.0, False),
            (1.02, 1.0, False),  # 2 %
            (1.021, 1.0, True),
            (0.9, 1.0, False),
            (0.014, 0.010, False),  # 40 %, and 4 us
            (0.0151, 0.010, True),  # more than 5 us
            (0.255, 0.250, False),  # 5 us and 2 %: where both bounds meet
            (0.2551, 0.250, True),
            (100.006, 100.0, False),  # 6 us, and nothing of it
        ],
    )
    def test_bounds(self, ours: float, theirs: float, *, slower: bool) -> None:
        assert is_slower((ours,), (theirs,)) == slower

    def test_the_middle_round_decides(self) -> None:
        assert not is_slower((1.0, 1.0, 9.0), (1.0, 1.0, 1.0))
        assert is_slower((2.0, 2.0, 0.1), (1.0, 1.0, 9.0))
        assert not is_slower((1.0, 3.0, 3.0), (1.0, 3.0, 1.0))  # one round was slow for both, one for ours

    @given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=1))
    def test_what_is_slower_is_so_in_half_of_the_rounds_and_wins_nothing(
        self, rounds: list[tuple[float, float]]
    ) -> None:
        ours, theirs = zip(*rounds, strict=True)
        if is_slower(ours, theirs):
            assert sum(mine > theirs for mine, theirs in rounds) >= len(rounds) / 2
            assert not wins(ours, theirs)


class Scripted:
    """A process whose runs take what `latency_ms` says of its file; those that are not there do not start."""

    latency_ms: ClassVar[dict[str, float]] = {}
    contexts: ClassVar[list[BaselineContext]] = []
    turns: ClassVar[list[str]] = []

    def __init__(self, name: str, context: BaselineContext) -> None:
        self.name = name
        self._file = Path(str(context.subject.executable or context.subject.onnx)).name
        self.contexts.append(context)

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self, seconds: float) -> None:
        if self._file not in self.latency_ms:
            raise EngineError(f"{self._file} does not run")

    def turn(self, turn: BaselineTurn, seconds: float = 0.0) -> Sequence[float]:
        self.turns.append(self.name)
        if self.latency_ms[self._file] < 0:
            raise EngineError("it stopped")
        return (self.latency_ms[self._file],) * turn.runs

    def close(self) -> None:
        """Nothing to end."""


class TestWinningRegions:
    @pytest.fixture
    def result(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(region_choice, "BaselineProcess", Scripted)
        monkeypatch.setattr(Scripted, "contexts", [])
        return write_unpublished(tmp_path / "m.kt.unproven")

    def winners(self, result: Path, latency_ms: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> tuple[int, ...]:
        monkeypatch.setattr(Scripted, "latency_ms", latency_ms)
        (result.parent / "proof").mkdir()
        return winning_regions(result, result.parent / "proof", CONDITIONS, (3,), 7, lambda: 0.0)

    def test_those_that_are_faster_than_onnxruntime(self, result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        times = {
            "region0.kt": 1.0, "region0.onnx": 2.0,
            "region1.kt": 2.0, "region1.onnx": 1.0,
            "region2.kt": 1.0, "region2.onnx": 1.0,
        }  # fmt: skip
        assert self.winners(result, times, monkeypatch) == (0,)

    def test_both_run_under_the_same_conditions(self, result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.winners(
            result, dict.fromkeys((f"region{n}.{k}" for n in range(3) for k in ("kt", "onnx")), 1.0), monkeypatch
        )
        assert [context.rival for context in Scripted.contexts] == ["kintune", "onnxruntime_flushing"] * 3
        for ours, theirs in zip(Scripted.contexts[::2], Scripted.contexts[1::2], strict=True):
            assert (ours.threads, ours.cores, ours.seed) == (theirs.threads, theirs.cores, theirs.seed) == (1, (3,), 7)
            assert ours.tensors == theirs.tensors

    @pytest.mark.parametrize(("seconds", "rounds"), [(0.0, 6), (99.0, 2), (0.6, 4)])
    def test_each_is_timed_for_a_second_and_a_half(
        self, result: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, rounds: int
    ) -> None:
        """In two rounds at least, and six at most."""
        times = {"region0.kt": 1.0, "region0.onnx": 2.0}
        monkeypatch.setattr(Scripted, "latency_ms", times)
        monkeypatch.setattr(region_choice, "_MOST_TIMED", 1)
        monkeypatch.setattr(Scripted, "turns", [])
        now = iter(seconds * number for number in range(99))
        (result.parent / "proof").mkdir()
        found = winning_regions(result, result.parent / "proof", CONDITIONS, (3,), 7, lambda: next(now))
        assert (found, len(Scripted.turns)) == ((0, 1, 2), 2 * rounds)

    def test_a_whole_network_has_no_regions(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(region_choice, "read_manifest", lambda _: SimpleNamespace(hybrid=None))
        assert winning_regions(tmp_path / "m.kt", tmp_path, CONDITIONS, (3,), 7, lambda: 0.0) == ()

    @pytest.mark.parametrize("lost", ["region1.kt", "region1.onnx"])
    @pytest.mark.parametrize("when", ["it starts", "it runs"])
    def test_what_does_not_run_by_itself_is_not_judged(
        self, result: Path, monkeypatch: pytest.MonkeyPatch, lost: str, when: str
    ) -> None:
        times = {f"region{number}.kt": 2.0 for number in range(3)} | {f"region{n}.onnx": 1.0 for n in range(3)}
        times[lost] = -1.0
        if when == "it starts":
            del times[lost]
        assert self.winners(result, times, monkeypatch) == (1,)

    def test_of_very_many_only_the_first_are_timed(self, result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(region_choice, "_MOST_TIMED", 1)
        assert self.winners(
            result,
            {f"region{n}.{kind}": ms for n in range(3) for kind, ms in (("kt", 2.0), ("onnx", 1.0))},
            monkeypatch,
        ) == (1, 2)


@pytest.mark.tvm
def test_a_real_product_with_the_default_schedule_is_no_winner(tmp_path: Path) -> None:
    from kintune.models.ref import parse_ref
    from kintune.runtime.target import resolve_target
    from kintune.tuning.job.tvm_backend import TvmBackend

    onnx.save(_chain_and_product(), tmp_path / "two.onnx")
    device = msgspec.structs.replace(toy_spec().device_type, target=resolve_target("native", threads=1))
    spec = msgspec.structs.replace(
        toy_spec(), model=parse_ref(str(tmp_path / "two.onnx")), device_type=device, output=str(tmp_path / "two.kt")
    )
    backend = TvmBackend()
    assert backend.prepare(spec).hybrid
    drafted = backend.draft({}, {}).packaged
    assert drafted is not None
    hybrid = read_manifest(drafted.tuned).hybrid
    assert hybrid is not None
    assert [len(region.nodes) for region in hybrid.regions] == [24, 1]
    conditions = ValidationContext(threads=1, rounds=6, min_rounds=3, runs=5, race_seconds=5.0)
    (tmp_path / "proof").mkdir()
    cores = choose_cores(1)
    winners = winning_regions(Path(drafted.tuned), tmp_path / "proof", conditions, cores, 0, time.perf_counter)
    assert 1 not in winners  # some 300 times slower; the chain beside it is about as fast in both


def _chain_and_product() -> onnx.ModelProto:
    """24 operations, distances, which are not compiled, and a product."""
    nodes = " ".join(f"t{at + 1} = {('Sigmoid', 'Relu', 'Neg', 'Abs')[at % 4]}(t{at})" for at in range(24))
    model = parse(
        f"""m (float[512, 512] t0) => (float[512, 512] y) {{
            {nodes}
            d = com.microsoft.CDist<metric = "euclidean">(t24, points)
            r = Reshape(d, shape)
            y = MatMul(r, w)
        }}""",
        "com.microsoft",
    )
    draw = np.random.default_rng(0)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([512, 512]), "shape"))
    for name, shape in {"w": (512, 512), "points": (512, 512)}.items():
        values = (draw.standard_normal(shape) / 64).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    return model
