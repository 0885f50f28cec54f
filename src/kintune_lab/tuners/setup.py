"""The setup that all tuners of a race share: the same network, lowered alike for the same target."""

from __future__ import annotations

import json
from typing import NamedTuple

import tvm
import tvm_ffi
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.utils import cpu_count

from kintune.compiler.graph.lower import Lowered, lower
from kintune.compiler.graph.workload import is_tunable, standalone
from kintune.compiler.space.generator import load_intrinsics
from kintune.compiler.space.replay import save_workload
from kintune.core.model import ModelRef
from kintune.models.importer import load
from kintune.models.model import ImportedModel
from kintune.runtime.target import NATIVE, resolve_target
from kintune_lab.tuners.messages import TunerReady

__all__ = ["SharedSetup", "prepare_setup", "structural_hash"]


class SharedSetup(NamedTuple):
    """A model, lowered; `canonical` is the target as JSON."""

    model: ImportedModel
    lowered: Lowered
    target: tvm.target.Target
    canonical: str
    threads: int

    def ready(self) -> TunerReady:
        """The description of the network that a tuner sends before its first turn."""
        workloads = self.lowered.workloads
        tunable = is_tunable(workloads)
        return TunerReady(
            target=self.canonical,
            subgraphs=tuple(w.subgraph(tunable=w.digest in tunable) for w in workloads),
            modules={w.digest: save_workload(w.module) for w in workloads},
            tasks=len(ms.relax_integration.extract_tasks(self.lowered.module, self.target, {})),
            search_threads=cpu_count(logical=False),
        )


def prepare_setup(model: ModelRef, threads: int) -> SharedSetup:
    """Import and lower `model` for this machine's CPU.

    Raises:
        InputError: the model cannot be used.
    """
    load_intrinsics()
    canonical = resolve_target(NATIVE, threads)
    target = tvm.target.Target(json.loads(canonical))
    imported = load(model)
    return SharedSetup(imported, lower(imported.module, target, patterns=False), target, canonical, threads)


def structural_hash(scheduled: tvm.IRModule) -> str:
    """The structural hash of a scheduled program, apart from what ties it to its network."""
    digest: int = tvm_ffi.structural_hash(standalone(scheduled["main"]))
    return f"{digest & (1 << 64) - 1:016x}"
