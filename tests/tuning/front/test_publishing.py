from __future__ import annotations

import os
from pathlib import Path

import msgspec
import onnx
import pytest

from kintune.core.execution_plan import KernelCall
from kintune.core.hybrid import Hybrid
from kintune.core.report import FastestBaseline, RunReport, StopReason
from kintune.core.stage_results import (
    ALONE_FILE,
    UNPROVEN,
    UNTUNED_FILE,
    BaselineLatencies,
    KnowledgeUse,
    Packaged,
    SubgraphEnd,
    Summary,
    ValidationResult,
)
from kintune.core.verdict import Verdict
from kintune.errors import JobFailed, NumericsError, StorageError
from kintune.records import Run, RunState
from kintune.runtime.hybrid_package import HybridPackage, read_marked
from kintune.runtime.manifest import read_manifest
from kintune.runtime.package import Package
from kintune.runtime.plan_format import decode_plan
from kintune.tuning.front import publishing
from kintune.tuning.front.publishing import discard, publish, report_of
from kintune.workers.engine.timings import Timings
from kintune_runtime.library import checksum
from tests.support.partitions import parse
from tests.support.toy_model import write_model
from tests.support.toy_tools import toy_spec
from tests.support.unpublished import THREE_REGIONS, write_unpublished

PROOF = ValidationResult(
    {"tuned": (1.0, 1.1, 5.0), "untuned": (2.0, 2.1)}, 1e-6, 1e-5, Verdict.RIGHT, ("untuned", "onnxruntime"), {}
)


@pytest.fixture
def output(tmp_path: Path) -> str:
    """Where the result is to lie; what was packaged lies beside it."""
    place = str(tmp_path / "model.kt")
    Path(f"{place}{UNPROVEN}").write_text("tuned")
    Path(f"{place}{UNTUNED_FILE}").write_text("untuned")
    return place


def summary(output: str, proof: ValidationResult | None = PROOF, *, untuned: bool = True) -> Summary:
    packaged = Packaged(f"{output}{UNPROVEN}", {}, untuned=f"{output}{UNTUNED_FILE}" if untuned else None)
    return Summary("m", "d", "trials", 1, 0, (), (), 1.0, packaged, proof)


def proof(**changes: object) -> ValidationResult:
    return msgspec.structs.replace(PROOF, **changes)


def test_a_pipe_at_the_output_is_left_alone(output: str) -> None:
    os.mkfifo(output)
    with pytest.raises(StorageError, match="a device or a pipe"):
        publish(output, summary(output))
    assert Path(output).is_fifo()


def test_the_report_of_what_lay_there_before_is_removed(output: str, tmp_path: Path) -> None:
    (tmp_path / "model.report.json").write_text("of another one")
    publish(output, summary(output))
    assert not (tmp_path / "model.report.json").exists()


def test_the_end_of_a_link_is_replaced(output: str, tmp_path: Path) -> None:
    Path(output).symlink_to(tmp_path / "real.kt")
    publish(output, summary(output))
    assert Path(output).is_symlink()
    assert (tmp_path / "real.kt").read_text() == "tuned"


def test_what_is_proven_ships(output: str) -> None:
    assert publish(output, summary(output, proof(skipped={"torch": "not a module"}))) == {"torch": "not a module"}
    assert Path(output).read_text() == "tuned"


def test_an_older_result_is_replaced(output: str) -> None:
    Path(output).write_text("older")
    publish(output, summary(output))
    assert Path(output).read_text() == "tuned"


def test_what_could_not_be_compared_ships(output: str) -> None:
    publish(output, summary(output, proof(verdict=Verdict.NOT_COMPARED, compared_with=())))
    assert Path(output).read_text() == "tuned"


@pytest.mark.parametrize(
    ("latency_ms", "shipped"),
    [
        ({"tuned": (2.0, 2.0, 0.1), "untuned": (1.0, 9.0, 1.0)}, "untuned"),
        ({"tuned": (1.0,), "untuned": (1.0,)}, "tuned"),
        ({"tuned": (1.0,)}, "tuned"),
        ({"tuned": (1.0,), "untuned": ()}, "tuned"),
    ],
)
def test_the_faster_of_tuned_and_untuned_ships(
    output: str, latency_ms: dict[str, tuple[float, ...]], shipped: str
) -> None:
    skipped = publish(output, summary(output, proof(latency_ms=latency_ms)))
    assert Path(output).read_text() == shipped
    assert ("tuned" in skipped) == (shipped == "untuned")


def test_the_threads_that_the_proof_chose_ship_with_the_tuned_network(output: str) -> None:
    chosen = proof(thread_counts=({0: 1},))
    write_model(Path(f"{output}{UNPROVEN}"))
    publish(output, summary(output, chosen))
    ((plan,),) = (variant.plans for variant in Package.open(output).variants)
    first, second = decode_plan(plan.plan, checksum).plan.operations
    assert isinstance(first, KernelCall)
    assert isinstance(second, KernelCall)
    assert (first.threads, second.threads) == (1, 0)


def test_the_threads_of_a_tuned_network_that_is_slower_do_not_matter(output: str) -> None:
    slower = proof(latency_ms={"tuned": (2.0,), "untuned": (1.0,)}, thread_counts=({0: 1},))
    publish(output, summary(output, slower))
    assert Path(output).read_text() == "untuned"


def test_a_slow_result_ships_when_there_is_no_untuned_one(output: str) -> None:
    slower = proof(latency_ms={"tuned": (2.0,), "untuned": (1.0,)})
    publish(output, summary(output, slower, untuned=False))
    assert Path(output).read_text() == "tuned"


def test_wrong_numbers_do_not_ship(output: str) -> None:
    Path(output).write_text("older")
    wrong = proof(verdict=Verdict.WRONG, disagreement="y[0, 3] is 2.0 and should be 1.0")
    with pytest.raises(NumericsError, match=r"untuned and onnxruntime, so it was not written: y\[0, 3\] is 2.0"):
        publish(output, summary(output, wrong))
    assert Path(output).read_text() == "older"


def test_nothing_ships_without_a_proof(output: str) -> None:
    with pytest.raises(JobFailed, match="could not be proven"):
        publish(output, summary(output, None))
    assert not Path(output).exists()


def test_a_result_that_cannot_be_written_may_be_shipped_later(output: str) -> None:
    Path(output).mkdir()
    with pytest.raises(StorageError, match=r"model\.kt"):
        publish(output, summary(output))


class TestRegions:
    """Results that run partly in onnxruntime, or could."""

    @pytest.fixture
    def onnx_file(self, tmp_path: Path) -> str:
        onnx.save(parse(THREE_REGIONS), tmp_path / "model.onnx")
        return str(tmp_path / "model.onnx")

    def published(self, output: str, onnx_file: str, shown: ValidationResult, *, hybrid: bool = True) -> Hybrid:
        """What runs where in the result that ships."""
        write = write_unpublished if hybrid else write_model
        write(Path(f"{output}{UNPROVEN}"))
        packaged = Packaged(f"{output}{UNPROVEN}", {}, onnx=onnx_file, hybrid=hybrid)
        assert publish(output, msgspec.structs.replace(summary(output, shown), packaged=packaged)) == {}
        assert not read_marked(output)
        about = read_manifest(output).hybrid
        assert about is not None
        return about

    def test_all_regions_ship_where_the_proof_does_not_choose(self, output: str, onnx_file: str) -> None:
        assert len(self.published(output, onnx_file, PROOF).regions) == 3

    def test_those_ship_that_the_proof_keeps(self, output: str, onnx_file: str) -> None:
        about = self.published(output, onnx_file, proof(regions=(0, 2)))
        assert [region.name for region in about.regions] == ["kintune/region0", "kintune/region2"]
        assert about.nodes["Neg of 'e'"] == "onnxruntime is at least as fast here"
        assert len(HybridPackage.open(output).regions) == 2

    def test_the_report_names_the_regions_that_ship(self, output: str, onnx_file: str) -> None:
        self.published(output, onnx_file, proof(regions=(0, 2)))
        packaged = Packaged(f"{output}{UNPROVEN}", {}, onnx=onnx_file, hybrid=True)
        told = report(msgspec.structs.replace(SUMMARY, packaged=packaged), output)
        assert [each.name for each in told.regions] == ["kintune/region0", "kintune/region2"]
        assert all(each.nodes for each in told.regions)
        gone = report(msgspec.structs.replace(SUMMARY, packaged=packaged), f"{output}.gone")
        assert gone.regions == report().regions == ()

    @pytest.mark.parametrize("hybrid", [True, False])
    def test_the_whole_model_ships_for_onnxruntime_if_none_is_kept(
        self, output: str, onnx_file: str, *, hybrid: bool
    ) -> None:
        about = self.published(output, onnx_file, proof(regions=(), lost_ms=(9.0,)), hybrid=hybrid)
        assert about.regions == ()
        assert about.summary.startswith("runs wholly in onnxruntime")

    def test_the_untuned_network_does_not_ship_where_the_proof_chose_regions(self, output: str, onnx_file: str) -> None:
        """The proof holds for these regions, with their tuned programs."""
        write_unpublished(Path(f"{output}{UNPROVEN}"))
        packaged = Packaged(f"{output}{UNPROVEN}", {}, untuned=f"{output}{UNTUNED_FILE}", onnx=onnx_file, hybrid=True)
        chosen = proof(regions=(1,), latency_ms={"tuned": (2.0,), "untuned": (1.0,)})
        assert publish(output, msgspec.structs.replace(summary(output, chosen), packaged=packaged)) == {}
        assert len(HybridPackage.open(output).regions) == 1

    def test_an_untuned_hybrid_that_is_faster_ships_without_what_is_needed_for_the_proof(
        self, output: str, onnx_file: str
    ) -> None:
        write_unpublished(Path(f"{output}{UNPROVEN}"))
        write_unpublished(Path(f"{output}{UNTUNED_FILE}"))
        packaged = Packaged(f"{output}{UNPROVEN}", {}, untuned=f"{output}{UNTUNED_FILE}", onnx=onnx_file, hybrid=True)
        faster = proof(latency_ms={"tuned": (2.0,), "untuned": (1.0,)})
        assert "tuned" in publish(output, msgspec.structs.replace(summary(output, faster), packaged=packaged))
        assert not read_marked(output)
        assert len(HybridPackage.open(output).regions) == 3

    @pytest.mark.parametrize(("untuned_ms", "limited"), [(3.0, True), (1.0, False)])
    def test_the_threads_of_tuned_regions_are_not_those_of_untuned_ones(
        self, output: str, onnx_file: str, monkeypatch: pytest.MonkeyPatch, untuned_ms: float, *, limited: bool
    ) -> None:
        told: list[object] = []
        monkeypatch.setattr(publishing, "limit_region_threads", lambda _source, counts, _path: told.append(counts))
        write_unpublished(Path(f"{output}{UNPROVEN}"))
        write_unpublished(Path(f"{output}{UNTUNED_FILE}"))
        packaged = Packaged(f"{output}{UNPROVEN}", {}, untuned=f"{output}{UNTUNED_FILE}", onnx=onnx_file, hybrid=True)
        counts: tuple[dict[int, int], ...] = ({0: 1}, {}, {})
        chosen = proof(latency_ms={"tuned": (2.0,), "untuned": (untuned_ms,)}, region_threads=counts)
        publish(output, msgspec.structs.replace(summary(output, chosen), packaged=packaged))
        assert told == ([counts] if limited else [])

    def test_a_model_that_cannot_be_read_any_more_may_be_shipped_later(self, output: str, tmp_path: Path) -> None:
        write_model(Path(f"{output}{UNPROVEN}"))
        packaged = Packaged(f"{output}{UNPROVEN}", {}, onnx=str(tmp_path / "gone.onnx"))
        lost = msgspec.structs.replace(summary(output, proof(regions=())), packaged=packaged)
        with pytest.raises(StorageError, match=r"gone\.onnx.*the same command continues from here"):
            publish(output, lost)
        assert Path(f"{output}{UNPROVEN}").exists()


def test_combinations_of_shapes_that_lose_run_in_onnxruntime(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, ...]] = []
    monkeypatch.setattr(publishing, "hand_over_plans", lambda _path, kept, *_more: told.append(kept))
    packaged = Packaged(f"{output}{UNPROVEN}", {}, onnx="m.onnx")
    publish(output, msgspec.structs.replace(summary(output, proof(plans=(0, 2))), packaged=packaged))
    assert told == [(0, 2)]


def test_nothing_is_left_beside_the_result(output: str, tmp_path: Path) -> None:
    publish(output, summary(output))
    for suffix in ("", ".data", ".json"):
        Path(f"{output}.int8.onnx{suffix}").touch()
    discard(output)
    discard(output)
    assert [path.name for path in tmp_path.iterdir()] == ["model.kt"]


RUN = Run("4711", "key", "toy", "d", b"", RunState.RUNNING, "then", "now", 9.0, {"search": 0}, {"kintune": "0"}, None)

END = SubgraphEnd("conv", "w0", 3, 2e9, "conv2d", 40, 812.5, 1700.0, {"build_failed": 2})

TIMED = ValidationResult(
    {"untuned": (4.0, 5.0, 6.0), "tuned": (2.0,), "onnxruntime": (3.0,)}, 1e-6, 1e-5, Verdict.RIGHT, ("untuned",), {}
)

SUMMARY = Summary(
    "toy", "digest", "target met", 40, 7, (END,), ((1.5, 3, 12.0),), 2.4, None, TIMED, KnowledgeUse(12, 2, 9, 1)
)

TIMINGS = Timings({"select": 1.0, "build": 4.0, "profile": 2.0, "update": 0.5, "confirm": 1.5}, 10.0, 9.5)


def report(summary: Summary = SUMMARY, output: str = "toy.kt") -> RunReport:
    return report_of(
        RUN, toy_spec(), summary, TIMINGS, skipped={"torch": "absent"}, output=output, log="a.log", resumed=True
    )


def test_it_says_where_the_result_stands_against_other_runtimes() -> None:
    before = BaselineLatencies(({"onnxruntime": (2.9, 3.3, 3.1)},))
    told = report(msgspec.structs.replace(SUMMARY, baselines=before))
    assert told.fastest_baseline == FastestBaseline("onnxruntime", 3.0, 2.0 / 3.0)
    assert told.baselines_before_ms == {"onnxruntime": 3.0}
    assert report().baselines_before_ms == {}


def test_it_says_what_the_job_said() -> None:
    told = report()
    assert (told.run_id, told.model.name, told.model.digest) == ("4711", "toy", "digest")
    assert (told.reason, told.trials, told.reused_records) == (StopReason.TARGET_MET, 40, 7)
    assert (told.seeds, told.versions, told.resumed) == (RUN.seeds, RUN.versions, True)
    (subgraph,) = told.subgraphs
    assert (subgraph.name, subgraph.weight, subgraph.flops, subgraph.family) == ("conv", 3, 2e9, "conv2d")
    assert (subgraph.trials, subgraph.best_us, subgraph.failures) == (40, 812.5, {"build_failed": 2})
    assert (told.latency_ms.untuned, told.latency_ms.tuned, told.latency_ms.onnxruntime) == (5.0, 2.0, 3.0)
    assert (told.max_abs_error, told.max_rel_error) == (1e-6, 1e-5)
    assert told.knowledge == SUMMARY.knowledge
    assert told.skipped == {"torch": "absent"}


def test_the_seconds_of_stages_and_the_rest_are_those_of_the_session() -> None:
    seconds = report().stage_seconds
    assert (seconds.select, seconds.build, seconds.profile, seconds.update) == (1.0, 4.0, 2.0, 0.5)
    assert sum(msgspec.structs.asdict(seconds).values()) == pytest.approx(TIMINGS.wall_seconds)


def test_the_seconds_of_a_run_are_those_of_all_its_sessions() -> None:
    """As its trials are: what it had measured by then was not measured in the last session alone."""
    assert report().seconds == RUN.active_seconds + TIMINGS.wall_seconds


def test_the_document_is_what_was_promised() -> None:
    document = msgspec.to_builtins(report())
    for key in (
        "run_id", "model", "target", "options", "seeds", "versions", "trials", "reused_records", "seconds",
        "stage_seconds", "subgraphs", "curve", "latency_ms", "max_abs_error", "max_rel_error",
    ):  # fmt: skip
        assert key in document
    assert document["knowledge"] == {"programs": 12, "models": 2, "measured": 9, "lost": 1}
    assert document["curve"] == ([1.5, 3, 12.0],)
    assert document["subgraphs"][0].keys() >= {"name", "weight", "flops", "family", "trials", "best_us", "failures"}
    assert document["latency_ms"]["spread"]["untuned"]["runs"] == 3


def test_without_a_proof_there_are_no_latencies() -> None:
    told = report(msgspec.structs.replace(SUMMARY, proof=None))
    assert (told.latency_ms.tuned, told.max_abs_error, told.within_tolerance) == (None, None, None)


def test_each_combination_of_shapes_has_its_report() -> None:
    shapes = ({"ids": (1, 32)}, {"ids": (1, 64)})
    spec = msgspec.structs.replace(toy_spec(), model=toy_spec().model.with_combinations(shapes))
    each = tuple(
        msgspec.structs.replace(TIMED, latency_ms={"tuned": (ms,)}, max_abs_error=error)
        for ms, error in ((2.0, 1e-6), (3.0, 1e-7))
    )
    proof = msgspec.structs.replace(TIMED, latency_ms={"tuned": (5.0,)}, each=each)
    summary = msgspec.structs.replace(SUMMARY, proof=proof, kernels_ms=4.5, kernels_each_ms=(1.5, 3.0))
    told = report_of(RUN, spec, summary, TIMINGS, skipped={}, output="toy.kt", log="a.log", resumed=False)
    assert told.latency_ms.tuned == 5.0
    assert [(one.shapes, one.kernels_ms, one.latency_ms.tuned, one.max_abs_error) for one in told.combinations] == [
        (shapes[0], 1.5, 2.0, 1e-6),
        (shapes[1], 3.0, 3.0, 1e-7),
    ]
    unproven = report_of(
        RUN, spec, msgspec.structs.replace(summary, proof=None), TIMINGS, skipped={}, output="", log="", resumed=False
    )
    assert [(one.kernels_ms, one.latency_ms.tuned) for one in unproven.combinations] == [(1.5, None), (3.0, None)]
    assert report().combinations == ()


def test_nothing_is_left_of_the_networks_that_compute_subgraphs_twice(output: str, tmp_path: Path) -> None:
    for number in ("", "1", "15"):
        Path(f"{output}{ALONE_FILE}{number}").touch()
    publish(output, summary(output))
    discard(output)
    assert [path.name for path in tmp_path.iterdir()] == ["model.kt"]
