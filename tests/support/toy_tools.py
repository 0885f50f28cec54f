"""A network that needs no compiler: its subgraphs are products of an analytic machine."""

from __future__ import annotations

from collections.abc import Mapping

from kintune.core.candidate import Candidate, digest_of
from kintune.core.config import JobSpec, Options, Strategy
from kintune.core.keeping import Keeping
from kintune.core.measurement_protocol import DeviceType, MeasurementProtocol
from kintune.core.model import ModelRef, Tensor
from kintune.core.stage_requests import BaselineItem, Built
from kintune.core.stage_results import DraftResult, Packaged, PerProgramCheck, Prepared
from kintune.core.workload import Subgraph
from kintune.search.space import SearchSpace
from kintune.testing.synthetic_space import MatMul, SyntheticSpace

__all__ = ["ToyTools", "toy_space", "toy_spec"]


def toy_space(tunable: int = 3, trivial: int = 3) -> SyntheticSpace:
    """The space of a toy network: workloads "w0", "w1" ... of two families, and "trivial0", "trivial1" ..."""
    large = [MatMul(f"w{i}", 64, 64 * (i + 1), 64, weight=1 + i, operator=f"dense{i % 2}") for i in range(tunable)]
    return SyntheticSpace([*large, *(MatMul(f"trivial{i}", 2, 4, 1, operator="reshape") for i in range(trivial))])


def toy_spec(options: Options | None = None, *, run_id: str = "run") -> JobSpec:
    """What a job on a toy network is opened with; by default forty trials in rounds of six."""
    return JobSpec(
        run_id=run_id,
        model=ModelRef("zoo", "toy", "toy"),
        device_type=DeviceType("{}", "a processor", (), 1, "1-cold"),
        protocol=MeasurementProtocol(threads=1),
        options=options or Options(trials=40, strategy=Strategy(round_size=6, foresee_size=3)),
        output="toy.kt",
    )


class ToyTools:
    """Implements `tuning.job.tools.Tools` for a toy network of so many tunable and trivial subgraphs, or a `space`.

    Where it is `alone`, no other runtime is to be timed.  `drafted` and `packaged` list what was chosen by each DRAFT
    and PACKAGE, `beside` what was to be timed beside the former, `keeping` what the latter kept;
    the files are there as long as `keeps` says so.
    So many tensors can be kept in bf16 as `kept_tensors`.
    """

    def __init__(
        self,
        tunable: int = 3,
        trivial: int = 1,
        *,
        keeps: bool = True,
        space: SyntheticSpace | None = None,
        alone: bool = False,
    ) -> None:
        self._space = space or toy_space(tunable, trivial)
        self.keeps = keeps
        self.alone = alone
        self.kept_tensors = 0
        self.drafted: list[dict[str, Candidate]] = []
        self.beside: list[dict[str, Candidate]] = []
        self.apart: list[dict[str, Candidate]] = []
        self.packaged: list[dict[str, Candidate]] = []
        self.keeping: list[Keeping] = []

    def prepare(self, spec: JobSpec) -> Prepared:
        """The network is always the same."""
        products = self._space.products.values()
        return Prepared(
            model_name=spec.model.name,
            model_digest=digest_of(b"toy"),
            inputs=(Tensor("x", (1,), "float32"),),
            outputs=(Tensor("y", (1,), "float32"),),
            subgraphs=tuple(self._subgraph(product) for product in products),
            modules={product.name: product.name.encode() for product in products},
            sketches=tuple(sketch for product in products for sketch in self._space.sketches(product.name)),
            conservative=spec.conservative,
        )

    def space(self) -> SearchSpace:
        """The space of all subgraphs."""
        return self._space

    def baseline_item(self) -> BaselineItem | None:
        """What is to be timed of a model without files, unless others are `alone`."""
        return None if self.alone else BaselineItem(((Tensor("x", (1,), "float32"),),), compare=("onnxruntime",))

    def draft(
        self,
        chosen: Mapping[str, Candidate],
        kernels: Mapping[str, Built],
        *,
        keeping: Keeping = Keeping.NONE,
        beside: Mapping[str, Candidate] | None = None,
    ) -> DraftResult:
        """Write nothing; no tensor can be kept in bf16, unless `kept_tensors` says how many."""
        if keeping and not self.kept_tensors:
            return DraftResult(None, "no tensor can be kept in bf16")
        self.drafted.append(dict(chosen))
        self.beside.append(dict(beside or {}))
        digests = {workload: c.digest for workload, c in chosen.items()}
        if keeping:
            return DraftResult(Packaged("toy.kt.unproven", digests, kept=self.kept_tensors, beside="toy.kt.untuned"))
        return DraftResult(Packaged("toy.kt.unproven", digests, beside="toy.kt.untuned" if beside else None))

    def packing(self, candidate: Candidate) -> str:
        """Every program takes weights as they are."""
        del candidate
        return ""

    def explain(self) -> str:
        """There is but one node."""
        return "Toy 'node'"

    def package(
        self,
        chosen: Mapping[str, Candidate],
        kernels: Mapping[str, Built],
        *,
        keeping: Keeping = Keeping.NONE,
        untuned: bool = True,
    ) -> Packaged:
        """Write nothing."""
        self.packaged.append(dict(chosen))
        self.keeping.append(keeping)
        digests = {workload: candidate.digest for workload, candidate in chosen.items()}
        kept = self.kept_tensors if keeping else 0
        return Packaged("toy.kt.unproven", digests, untuned="toy.kt.untuned" if untuned else None, kept=kept)

    def set_apart(self, chosen: Mapping[str, Candidate], kernels: Mapping[str, Built]) -> PerProgramCheck:
        """Write nothing; `apart` lists what was chosen."""
        self.apart.append(dict(chosen))
        return PerProgramCheck(("toy.kt.alone",))

    def kept(self, packaged: Packaged) -> bool:
        """As it was made to say."""
        del packaged
        return self.keeps

    def _subgraph(self, product: MatMul) -> Subgraph:
        return Subgraph(
            name=f"net_{product.name}",
            workload=product.name,
            weight=product.weight,
            flops=product.flops,
            operator=product.operator,
            signature=product.operator,
            tunable=not product.name.startswith("trivial"),
            sketches=tuple(sketch.digest for sketch in self._space.sketches(product.name)),
            weight_bytes=1024.0,
            bytes=4096.0,
        )
