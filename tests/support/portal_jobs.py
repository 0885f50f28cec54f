"""Jobs of a service that never ran: models, results with operators, and failures, as pages show them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from kintune.core.device import Peak
from kintune.core.kernel_call import CallRecord, SourceNode
from kintune.core.profile import Limit, Profile, ProfiledCall
from kintune.core.report import (
    CurvePoint,
    FamilyProgress,
    FastestBaseline,
    Latencies,
    LatencyForecast,
    ModelIdentity,
    ProgressReport,
    RunReport,
    SubgraphReport,
)
from kintune.core.stage_requests import kernel_name
from kintune.runtime.manifest import Manifest
from kintune.runtime.package import EncodedPlan, PackageVariant, write_package
from kintune.service.job_repository import Job, gain_columns
from kintune.service.job_request import JobRequest
from kintune.service.job_status import JobStatus
from kintune.service.model_store import INPUTS, Findings, Input
from kintune.service.web.application_state import ApplicationState
from tests.support.reports import example_report

__all__ = ["LAYERS", "PortalJobs", "executable_of", "profile_of_layers", "report_of_layers"]

LAYERS = 12
"""Convolutions of the network whose results are made up."""

_TARGET = '{"kind": "llvm", "mcpu": "icelake-server"}'


def report_of_layers(name: str, best_ms: float, *, trials: int = 640, seed: int = 0, **changes: Any) -> RunReport:
    """A run on a network of `LAYERS` convolutions; it took one point of the curve for each 32 trials, or more."""
    draw = np.random.default_rng(seed)
    subgraphs = [
        SubgraphReport(
            name=f"fused_conv2d{number}_add{number}_relu",
            weight=1 + number % 3,
            flops=2e7,
            family="op:conv2d" if number % 4 else "op:depthwise",
            trials=trials // LAYERS,
            best_us=float(20.0 * draw.uniform(0.5, 4.0)),
            failures={"build timed out": number % 2},
            untuned_us=300.0,
            precision="bf16" if number % 5 == 1 and changes.get("norm_error") else "fp32",
            workload=f"w{number}",
        )
        for number in range(LAYERS)
    ]
    points = max(2, trials // 32 if trials < 10_000 else trials)
    curve = [
        CurvePoint(
            (20.0 if trials < 10_000 else 1.0) * number,
            int(trials * number / points),
            best_ms * (1 + 9 * math.exp(-6 * number / points)),
        )
        for number in range(points)
    ]
    latency = Latencies.of(
        {
            "untuned": [10 * best_ms] * 5,
            "tuned": [0.98 * best_ms, best_ms, 1.05 * best_ms],
            "onnxruntime": [1.70, 1.74, 1.80],
            "openvino": [1.81, 1.86, 1.92],
        }
    )
    changes.setdefault("profile", profile_of_layers(name, best_ms, [each.best_us or 0.0 for each in subgraphs]))
    return example_report(
        model=ModelIdentity(name, "0" * 32),
        target=_TARGET,
        trials=trials,
        seconds=20.0 * points if trials < 10_000 else float(points),
        subgraphs=tuple(subgraphs),
        curve=tuple(curve),
        latency_ms=latency,
        fastest_baseline=latency.fastest_baseline,
        baselines_before_ms={"onnxruntime": 1.74, "openvino": 1.86},
        max_rel_error=3e-6,
        **changes,
    )


def profile_of_layers(name: str, best_ms: float, times_us: Sequence[float]) -> Profile:
    """The profile of such a network: a call of each convolution, and a transpose before them."""
    bound = (Limit.ARITHMETIC, Limit.ARITHMETIC, Limit.MEMORY, Limit.LAUNCH)
    calls = [
        ProfiledCall(
            place=0,
            kernel="transpose",
            title="transpose for layer1/conv0",
            nodes=(SourceNode("/model/layer1/conv0", "Conv"),),
            operators=("transpose",),
            inserted=True,
            threads=2,
            us=9.0,
            gbytes_per_s=12.0,
            limit=Limit.COPIES,
            reached=1.2,
        )
    ]
    for number, us in enumerate(times_us):
        block, at = number // 4 + 1, number % 4
        calls.append(
            ProfiledCall(
                place=number + 1,
                kernel=kernel_name(f"c{number}"),
                title=f"layer{block}/conv{at} + BN + Relu",
                nodes=(
                    SourceNode(f"/model/layer{block}/conv{at}", "Conv"),
                    SourceNode(f"/model/layer{block}/bn{at}", "BatchNormalization"),
                    SourceNode(f"/model/layer{block}/relu{at}", "Relu"),
                ),
                operators=("conv2d", "add", "relu"),
                threads=2,
                us=us,
                gflops=2e7 / us / 1e3,
                gbytes_per_s=4.0,
                limit=bound[at],
                reached=0.9 - 0.15 * at,
            )
        )
    total = sum(call.us for call in calls)
    begun = [sum(call.us for call in calls[:at]) for at in range(len(calls))]
    return Profile(
        executable=f"{name}.kt", model=name, cpu="A Processor", threads=2, shapes={"image": (1, 3, 224, 224)}, runs=50,
        run_ms=best_ms, p10_ms=0.98 * best_ms, p90_ms=1.05 * best_ms, kernels_ms=total / 1e3,
        gap_ms=best_ms - total / 1e3, copies=0, copied_bytes=0, peak=Peak(333.0, 15.0, 2, 20.0), prefix="/model/",
        calls=tuple(msgspec.structs.replace(call, share=call.us / total) for call in calls), onnxruntime=None,
        timeline=tuple((call.place, at, call.us) for call, at in zip(calls, begun, strict=True)),
    )  # fmt: skip


def executable_of(name: str, path: Path) -> None:
    """Write a `.kt` file whose manifest says what the kernels of such a run compute; it cannot be run."""
    calls = [
        CallRecord(
            place=number,
            kernel=kernel_name(f"c{number}"),
            nodes=(
                SourceNode(f"/model/layer{number // 4 + 1}/conv{number % 4}", "Conv"),
                SourceNode(f"/model/layer{number // 4 + 1}/bn{number % 4}", "BatchNormalization"),
                SourceNode(f"/model/layer{number // 4 + 1}/relu{number % 4}", "Relu"),
            ),
            operators=("conv2d", "add", "relu"),
        )
        for number in range(LAYERS)
    ]
    manifest = Manifest(
        model_name=name,
        model_digest="0" * 32,
        target=_TARGET,
        machine="x86_64",
        isa=("avx2",),
        threads=2,
        inputs=(),
        outputs=(),
        chosen={f"w{number}": f"c{number}" for number in range(LAYERS)},
        created="2026-11-26T09:55:39+00:00",
        kintune="0.1.0",
        tvm="0.27.0",
        calls=(tuple(calls),),
    )
    write_package(path, [PackageVariant(manifest, (EncodedPlan(b"plan", b"library"),))], np.zeros(64, np.uint8))


class PortalJobs:
    """Puts models and jobs into a service's database and blob store, for the user at this machine."""

    def __init__(self, application: ApplicationState, place: Path) -> None:
        self._application = application
        self._place = place
        self._visitor = application.users.local(application.now())
        self._made = 0

    def model(self, name: str, findings: Findings | None = None) -> int:
        """A model with two inputs, one of an open shape, or with these findings."""
        found = findings or Findings(
            inputs=(Input("image", (None, 3, 224, 224), "float32", ("batch", "", "", "")),),
            operators={"Conv": LAYERS, "Relu": LAYERS, "StringSplit": 1},
            parameters=25_500_000,
        )
        self._made += 1
        now, file = self._application.now(), f"{self._made:064x}"
        model = self._application.models.add(self._visitor.user, name, file, 98_000_000, now, now + 90 * 86400.0)
        self._application.models.found(model.id, found)
        return model.id

    def inputs(self, name: str) -> int:
        """A set of inputs of such a model."""
        self._made += 1
        now, file = self._application.now(), f"{self._made:064x}"
        models, user = self._application.models, self._visitor.user
        stored = models.add(user, name, file, 602_000, now, now + 90 * 86400.0, INPUTS)
        models.found(stored.id, Findings(inputs=(Input("image", (1, 3, 224, 224), "float32"),)))
        return stored.id

    def job(self, model: int, ago_s: float = 600.0, **wanted: Any) -> Job:
        """A job that is queued, handed in so many seconds ago."""
        at = self._application.now() - ago_s
        return self._application.jobs.submit(self._visitor, model, JobRequest(minutes=30.0, **wanted), at)[0]

    def done(self, model: int, report: RunReport, ago_s: float = 600.0, **wanted: Any) -> Job:
        """A job that is done with this report, and an executable."""
        application, job = self._application, self.job(model, ago_s, **wanted)
        path = self._place / f"{report.model.name}.kt"
        if not path.exists():
            executable_of(report.model.name, path)
        files = {
            "report": application.blobs.put_bytes(msgspec.json.encode(report)),
            "executable": application.blobs.put(path),
            "log": application.blobs.put_bytes("\n".join(f"line {n} of the log" for n in range(40)).encode()),
        }
        gain = gain_columns(report.latency_ms.tuned, report.latency_ms.fastest_baseline)
        self._through(job, (JobStatus.CHECKING, JobStatus.TUNING, JobStatus.PACKAGING))
        at = job.created + 4.0 + report.seconds
        return application.jobs.step(job.id, JobStatus.DONE, "its time was up", at, **files, **gain)

    def tuning(self, model: int, **wanted: Any) -> Job:
        """A job that is searching."""
        job = self.job(model, 192.0, **wanted)
        self._through(job, (JobStatus.CHECKING, JobStatus.TUNING))
        progress = ProgressReport(
            stage="profile",
            trials=384,
            elapsed_s=192.0,
            time_left_s=340.0,
            best_ms=1.41,
            untuned_ms=14.0,
            families=(FamilyProgress("op:conv2d", 9, 320, 2.4), FamilyProgress("op:depthwise", 3, 64, 1.2)),
            baselines={"onnxruntime": 1.74, "openvino": 1.86},
            fastest_baseline=FastestBaseline("onnxruntime", 1.74, 1.41 / 1.74),
            target_ms=1.2,
            forecast=LatencyForecast(1.05, 1.45),
            failures={"build timed out": 2},
        )
        self._application.jobs.progressed(job.id, progress)
        return self._application.jobs.get(self._visitor, job.id)

    def failed(self, model: int, reason: str, ago_s: float = 900.0) -> Job:
        """A job that has failed for this reason."""
        job = self.job(model, ago_s)
        log = self._application.blobs.put_bytes(b"the last words of the job\n")
        self._through(job, (JobStatus.CHECKING,))
        return self._application.jobs.step(job.id, JobStatus.FAILED, reason, job.created + 60.0, log=log)

    def cancelled(self, model: int, ago_s: float = 1800.0) -> Job:
        """A job that was cancelled."""
        job = self.job(model, ago_s)
        return self._application.jobs.step(job.id, JobStatus.CANCELLED, "cancelled", job.created + 30.0)

    def _through(self, job: Job, states: Sequence[JobStatus]) -> None:
        for number, state in enumerate(states):
            self._application.jobs.step(job.id, state, "", job.created + 1.0 + number)
