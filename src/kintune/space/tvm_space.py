"""The search space of a network's workloads, on MetaSchedule's sketches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

import tvm

from kintune.errors import BuildError
from kintune.search.space import Draft
from kintune.space.candidate import Candidate, Sketch
from kintune.space.features import FeatureExtractor
from kintune.space.lower import Replayer
from kintune.space.rules import Machine, rule_candidates

__all__ = ["TvmSpace"]


class TvmSpace:
    """Implements `kintune.search.space.SearchSpace` over `modules` (by workload digest) and their sketches.

    Replays on `threads` threads; TVM lets go of the interpreter while it works.
    """

    def __init__(
        self,
        modules: Mapping[str, tvm.IRModule],
        sketches: Sequence[Sketch],
        target: tvm.target.Target,
        machine: Machine,
        threads: int,
    ) -> None:
        self._modules = modules
        self._target = target
        self._machine = machine
        self._threads = threads
        self._sketches: dict[str, list[Sketch]] = {workload: [] for workload in modules}
        self._by_digest = {sketch.digest: sketch for sketch in sketches}
        self._rules: dict[tuple[str, int], list[Candidate]] = {}
        for sketch in sketches:
            self._sketches.setdefault(sketch.workload, []).append(sketch)

    def sketches(self, workload: str) -> Sequence[Sketch]:
        """The sketches of a workload."""
        return self._sketches[workload]

    def rules(self, workload: str, limit: int) -> Sequence[Candidate]:
        """At most `limit` candidates of the rule, the most promising first."""
        key = (workload, limit)
        if key not in self._rules:
            self._rules[key] = rule_candidates(self._sketches[workload], self._machine, limit)
        return self._rules[key]

    def verify(self, candidates: Sequence[Candidate]) -> Sequence[Draft | None]:
        """Replay and describe; None for what makes no program."""
        drafts: list[Draft | None] = []
        with ThreadPoolExecutor(self._threads) as pool:
            for workload, group in groupby(candidates, key=lambda c: c.workload):
                members = list(group)
                shares = [members[i :: self._threads] for i in range(self._threads)]
                done = list(pool.map(self._verify_share, [workload] * len(shares), shares))
                drafts += [done[i % self._threads][i // self._threads] for i in range(len(members))]
        return drafts

    def _verify_share(self, workload: str, candidates: Sequence[Candidate]) -> list[Draft | None]:
        replay = Replayer(self._modules[workload], self._target)
        extract = FeatureExtractor(replay.context)
        drafts: list[Draft | None] = []
        for candidate in candidates:
            try:
                replayed = replay(self._by_digest[candidate.sketch], candidate)
                drafts.append(Draft(replayed.candidate, extract([replayed.schedule])[0]))
            except (BuildError, KeyError):
                drafts.append(None)
        return drafts
