"""The search space of a network's workloads, on MetaSchedule's sketches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import NamedTuple

import numpy as np
import tvm
from numpy.typing import NDArray

from kintune.compiler.faults import left_out
from kintune.compiler.programs.registry import program_named
from kintune.compiler.space.features import FeatureExtractor
from kintune.compiler.space.loop_analysis import access_patterns, tiled_block
from kintune.compiler.space.replay import Replayer
from kintune.core.candidate import Candidate, Decision, Sketch, fits
from kintune.errors import BuildError
from kintune.search.features.field import Field, fields_of
from kintune.search.processor import Processor
from kintune.search.rules import rule_candidates
from kintune.search.sketch_program import by_program, in_turns
from kintune.search.space import Draft
from kintune.search.training_rows import of_stores

__all__ = ["TvmSpace"]


class _Replayed(NamedTuple):
    """A candidate as it was replayed, and the compiler's features of it; None where its field computes them."""

    candidate: Candidate
    features: NDArray[np.float32] | None


class TvmSpace:
    """Implements `kintune.search.space.SearchSpace` over `modules` (by workload digest) and their sketches.

    Replays on `threads` threads; TVM releases the interpreter's lock while it works.  A candidate for which `permits`
    returns false makes no program.
    """

    def __init__(
        self,
        modules: Mapping[str, tvm.IRModule],
        sketches: Sequence[Sketch],
        target: tvm.target.Target,
        machine: Processor,
        threads: int,
        permits: Callable[[Sketch, Candidate], bool] | None = None,
    ) -> None:
        self._permits = permits
        self._modules = modules
        self._target = target
        self._machine = machine
        self._threads = threads
        self._sketches: dict[str, list[Sketch]] = {workload: [] for workload in modules}
        self._by_digest = {sketch.digest: sketch for sketch in sketches}
        self._rules: dict[tuple[str, int], list[Candidate]] = {}
        self._fields: dict[str, tuple[Field, ...]] = {}
        self._replayers: dict[tuple[str, int], tuple[Replayer, FeatureExtractor]] = {}
        for sketch in sketches:
            self._sketches.setdefault(sketch.workload, []).append(sketch)

    def sketches(self, workload: str) -> Sequence[Sketch]:
        """The sketches of a workload."""
        return self._sketches[workload]

    def fields(self, workload: str) -> Sequence[Field]:
        """The sketches that tile the workload's core block at several levels."""
        if workload not in self._fields:
            sketches = by_program(self._sketches[workload]).get("", [])
            block = next(filter(None, map(tiled_block, sketches)), None)
            module = self._modules[workload]
            found = () if block is None else fields_of(sketches, access_patterns(module, block), self._machine)
            self._fields[workload] = tuple(found)
        return self._fields[workload]

    def rules(self, workload: str, limit: int) -> Sequence[Candidate]:
        """At most `limit` candidates of the rule, the most promising first; programs of our own take turns with the
        others.
        """
        key = (workload, limit)
        if key not in self._rules:
            groups = by_program(self._sketches[workload])
            found = [self._rule_of(workload, name, sketches, limit) for name, sketches in groups.items()]
            self._rules[key] = in_turns(found, limit)
        return self._rules[key]

    def _rule_of(self, workload: str, program: str, sketches: Sequence[Sketch], limit: int) -> Sequence[Candidate]:
        if not program:
            return rule_candidates(sketches, self._machine, limit)
        written, variant = program_named(program)
        decided: Sequence[tuple[Decision, ...]] = ()
        with left_out(f"the rule of program {written.name} fails"):
            decided = written.rule(self._modules[workload], variant, self._machine)
        return [Candidate(workload, sketch.digest, decisions) for sketch in sketches for decisions in decided][:limit]

    def verify(self, candidates: Sequence[Candidate]) -> Sequence[Draft | None]:
        """A draft of each candidate, after a replay where its field needs one; None for what makes no program."""
        described: dict[int, Draft | None] = {}
        waiting: list[int] = []
        for field, numbers in self._by_field(candidates):
            if field is not None and field.settled:
                described.update(zip(numbers, self._describe(field, [candidates[i] for i in numbers]), strict=True))
            else:
                waiting += numbers
        waiting.sort()
        described.update(zip(waiting, self._replay([candidates[i] for i in waiting]), strict=True))
        return [described[i] for i in range(len(candidates))]

    def _by_field(self, candidates: Sequence[Candidate]) -> Iterator[tuple[Field | None, list[int]]]:
        groups: dict[Field | None, list[int]] = {}
        for number, candidate in enumerate(candidates):
            fields = self.fields(candidate.workload) if candidate.workload in self._modules else ()
            groups.setdefault(next((f for f in fields if candidate in f.encoding), None), []).append(number)
        yield from groups.items()

    @staticmethod
    def _describe(field: Field, candidates: Sequence[Candidate]) -> list[Draft | None]:
        """Drafts with the features of a field; None for candidates that do not fit its axes.

        Candidates must be settled, or be those of a field that needs no replay.
        """
        fitting = [c for c in candidates if fits(field.encoding.axes, c.decisions)]
        rows = field.features(field.encoding.encode(fitting)) if fitting else ()
        batches = {c: Draft(c, row) for c, row in zip(fitting, rows, strict=True)}
        return [batches.get(candidate) for candidate in candidates]

    def _replay(self, candidates: Sequence[Candidate]) -> list[Draft | None]:
        """Replay; candidates outside of all fields are described by the compiler's features."""
        replayed: list[_Replayed | None] = []
        with ThreadPoolExecutor(self._threads) as pool:
            for workload, group in groupby(candidates, key=lambda c: c.workload):
                members = list(group)
                shares = [members[i :: self._threads] for i in range(self._threads)]
                done = list(pool.map(self._replay_share, [workload] * len(shares), range(len(shares)), shares))
                replayed += [done[i % self._threads][i // self._threads] for i in range(len(members))]
        bare = [r.candidate for r in replayed if r is not None and r.features is None]
        batches: dict[Candidate, Draft | None] = {}
        for field, numbers in self._by_field(bare):
            members = [bare[i] for i in numbers]
            batches.update(zip(members, self._describe(field, members), strict=True) if field is not None else ())
        return [
            None if r is None else batches[r.candidate] if r.features is None else Draft(r.candidate, r.features)
            for r in replayed
        ]

    def _replay_share(self, workload: str, number: int, candidates: Sequence[Candidate]) -> list[_Replayed | None]:
        """Replay the share of thread `number`, which has a replayer of its own; None for what makes no program."""
        if not candidates:
            return []
        if (workload, number) not in self._replayers:
            made = Replayer(self._modules[workload], self._target)
            self._replayers[workload, number] = made, FeatureExtractor(made.context)
        replay, extract = self._replayers[workload, number]
        found: list[_Replayed | None] = []
        for candidate in candidates:
            described = any(candidate in field.encoding for field in self.fields(workload))
            try:
                sketch = self._by_digest[candidate.sketch]
                if self._permits is not None and not self._permits(sketch, candidate):
                    found.append(None)
                elif described:
                    found.append(_Replayed(replay.settle(sketch, candidate), None))
                else:
                    schedule, taken = replay(sketch, candidate)
                    found.append(_Replayed(taken, of_stores(extract([schedule]))[0]))
            except (BuildError, KeyError):
                found.append(None)
        return found
