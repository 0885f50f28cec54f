"""The search of one job: a fold over what was selected and measured, and the decisions that follow from it.

Free of clock, compiler and global randomness.  `know`, `begin`, `observe` and `adopt` take in what was committed, once
for each event; `plan`, `select` and `train` decide and change nothing.  So the same events lead to the same decisions,
however often they are asked for.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from kintune.measure.outcome import Outcome
from kintune.search.budget import rank
from kintune.search.cost_model import CostModel, Trees, relative_speeds
from kintune.search.family import Subject, family_of
from kintune.search.foresee import sibling
from kintune.search.plan import Entry, Round
from kintune.search.propose import Proposal, propose
from kintune.search.space import Draft, SearchSpace
from kintune.search.strategy import Strategy
from kintune.search.subgraph import SubgraphState
from kintune.space.candidate import UNTUNED, Candidate

__all__ = ["Session"]

_SURVEY = (1, 3, 4)  # candidates of the rule that each subgraph gets in the rounds of the survey
_NO_FEATURES: NDArray[np.float32] = np.zeros(0, np.float32)
_LEAST_ROWS = 12  # samples below which a family has no model


class Session:
    """The search over the subgraphs of one network."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        space: SearchSpace,
        strategy: Strategy,
        *,
        seed: int,
        threads: int,
    ) -> None:
        kin = family_of(strategy.families)
        self.states = {s.workload: SubgraphState(s, kin(s)) for s in subjects}
        self.models: dict[str, CostModel] = {}
        self.round = 0
        self._space = space
        self._seed = seed
        self._strategy = strategy
        self._threads = threads
        self._surveyed = 0
        self._last: Round | None = None
        self._pending: dict[Candidate, NDArray[np.float32]] = {}

    # -- decisions --------------------------------------------------------------------------------------------

    def plan(self, trials_left: int | None = None) -> Round | None:
        """The next round, of at most `trials_left` candidates; None when no subgraph is expected to gain."""
        _, entries = self._survey()
        if not entries:
            entries = self._foresee() or self._steepest()
        if trials_left is not None:
            entries = _at_most(entries, trials_left)
        return Round(self.round, entries) if entries else None

    def select(self, plan: Round) -> tuple[list[Proposal], int]:
        """The candidates of a round, and how many drafts were no programs.

        A survey also times the untuned programs, last, for the gain they are the measure of; they cost no trial.
        """
        proposals: list[Proposal] = []
        untuned: list[Proposal] = []
        invalid = 0
        for entry in plan.entries:
            state = self.states[entry.workload]
            if entry.how == "rule":
                found, bad = self._by_rule(state, entry.size)
                plain = Candidate.untuned(entry.workload)
                if plain not in state.times_us:
                    untuned.append(Proposal(Draft(plain, _NO_FEATURES), None, "untuned"))
            else:
                model = self.models.get(state.family)
                found, bad = propose(
                    state, self._space, model, entry.size, self._rng(entry.workload), explore=entry.how == "search"
                )
                if entry.how == "foresee":
                    found = [proposal._replace(origin="foresee") for proposal in found]
            proposals += found
            invalid += bad
        return proposals + untuned, invalid

    def train(self, families: Iterable[str]) -> dict[str, Trees]:
        """Freshly trained models of those of the families that have samples enough."""
        trained: dict[str, Trees] = {}
        for family in families:
            if self._is_modelled(family):
                features, labels = self.samples(family)
                trained[family] = Trees.train(features, labels, seed=self._seed, threads=self._threads)
        return trained

    def samples(self, family: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """All samples of a family: features (n, width) and labels (n,), in the order of measuring."""
        members = [s for s in self.states.values() if s.family == family and math.isfinite(s.best_us)]
        rows = [(i, c, f) for i, s in enumerate(members) for c, f in s.features.items()]
        if not rows:
            return np.zeros((0, 0), np.float32), np.zeros(0, np.float32)
        workloads = np.array([i for i, _, _ in rows], dtype=np.int64)
        times = np.array([members[i].times_us[c] for i, c, _ in rows], dtype=np.float64)
        best = np.array([s.best_us for s in members], dtype=np.float64)
        return np.stack([f for _, _, f in rows]), relative_speeds(workloads, times, best)

    def latency_us(self) -> float:
        """The weighted sum of the best known kernel times: the network's estimated latency."""
        return sum(s.subject.weight * s.best_us for s in self.states.values())

    def untuned_us(self) -> float:
        """The same for the untuned programs."""
        return sum(s.subject.weight * s.untuned_us for s in self.states.values())

    # -- events -----------------------------------------------------------------------------------------------

    def know(self, candidate: Candidate, outcome: Outcome, features: NDArray[np.float32] | None) -> None:
        """A fact from the records: measured before this run."""
        state = self.states.get(candidate.workload)
        if state is not None:
            state.observe(candidate, outcome, features, counts=False)

    def suggest(self, candidate: Candidate) -> None:
        """A candidate that was good under another compiler or protocol: no fact, but among the first to measure."""
        state = self.states.get(candidate.workload)
        if state is not None and candidate not in state.suggestions:
            state.suggestions.append(candidate)

    def begin(self, plan: Round, picks: Mapping[Candidate, NDArray[np.float32]]) -> None:
        """A selection has been committed; `picks` maps its candidates to their features."""
        if all(entry.how == "rule" for entry in plan.entries):
            level, _ = self._survey()
            self._surveyed = level + 1
        self._last = plan
        self._pending = dict(picks)
        for entry in plan.entries:
            found = sum(c.workload == entry.workload for c in picks)
            if found < entry.size and entry.how != "rule":
                self.states[entry.workload].exhausted = found == 0
        if not picks:
            self._close_round()

    def observe(self, candidate: Candidate, outcome: Outcome) -> None:
        """An outcome of the current round has been committed."""
        features = self._pending.pop(candidate, None)
        self.states[candidate.workload].observe(candidate, outcome, features, counts=candidate.sketch != UNTUNED)
        if not self._pending:
            self._close_round()

    def adopt(self, models: Mapping[str, CostModel]) -> None:
        """Newly trained models have been committed."""
        self.models.update(models)

    @property
    def pending(self) -> list[Candidate]:
        """Candidates of the current round that have no outcome yet, in the order of selection."""
        return list(self._pending)

    def touched(self) -> list[str]:
        """The families of the last round, each once."""
        entries = self._last.entries if self._last else ()
        return list(dict.fromkeys(self.states[e.workload].family for e in entries))

    # -- inside -----------------------------------------------------------------------------------------------

    def _close_round(self) -> None:
        last = self._last
        if last is None:
            return
        for entry in last.entries:
            if entry.how == "rule":
                self.states[entry.workload].history.append(self.states[entry.workload].best_us)
            else:
                self.states[entry.workload].close_round(entry.size / self._strategy.round_size)
        self.round += 1

    def _survey(self) -> tuple[int, tuple[Entry, ...]]:
        """Breadth first: every subgraph gets its candidates of the rule, those that weigh most first.

        The first level of the survey, not begun before, at which something is missing, and what; nothing at its end.
        """
        for level in range(self._surveyed, len(_SURVEY)):
            wanted = sum(_SURVEY[: level + 1])
            entries = [
                Entry(s.subject.workload, min(missing, _SURVEY[level]), "rule")
                for s in self.states.values()
                if (missing := wanted - s.tried) > 0 and self._rules_left(s)
            ]
            if entries:
                return level, tuple(sorted(entries, key=lambda e: (-self._work(e.workload), e.workload)))
        return len(_SURVEY), ()

    def _rules_left(self, state: SubgraphState) -> bool:
        return bool(self._untried(state))

    def _untried(self, state: SubgraphState) -> list[Candidate]:
        """What a survey has still to measure: what others suggest, then what the rule proposes."""
        preferred = [*state.suggestions, *self._space.rules(state.subject.workload, sum(_SURVEY))]
        return [c for c in dict.fromkeys(preferred) if c not in state.times_us]

    def _work(self, workload: str) -> float:
        subject = self.states[workload].subject
        return subject.weight * subject.flops

    def _by_rule(self, state: SubgraphState, count: int) -> tuple[list[Proposal], int]:
        drafts: dict[Candidate, Draft] = {}
        invalid = 0
        for draft in self._space.verify(self._untried(state)[: count + 2]):
            if draft is None:
                invalid += 1
            elif draft.candidate not in state.times_us:
                drafts.setdefault(draft.candidate, draft)
        suggested = set(state.suggestions)
        chosen = list(drafts.values())[:count]
        return [Proposal(d, None, "suggested" if d.candidate in suggested else "rule") for d in chosen], invalid

    def _foresee(self) -> tuple[Entry, ...]:
        """After a full round and its update: the steepest sibling, with the few that the fresh model ranks best."""
        last = self._last
        if self._strategy.foresee == "none" or last is None or [e.how for e in last.entries] != ["search"]:
            return ()
        tuned = self.states[last.entries[0].workload]
        other = sibling(tuned, self.states.values()) if self._is_modelled(tuned.family) else None
        return (Entry(other.subject.workload, self._strategy.foresee_size, "foresee"),) if other else ()

    def _is_modelled(self, family: str) -> bool:
        """Whether the family has samples enough for a model: known from events alone, wherever the model itself is."""
        members = (s for s in self.states.values() if s.family == family and math.isfinite(s.best_us))
        return sum(len(member.features) for member in members) >= _LEAST_ROWS

    def _steepest(self) -> tuple[Entry, ...]:
        ranked = rank(self.states.values())
        return (Entry(ranked[0].subject.workload, self._strategy.round_size, "search"),) if ranked else ()

    def _rng(self, workload: str) -> np.random.Generator:
        material = hashlib.sha256(f"{self._seed}/{workload}/{self.round}".encode()).digest()
        return np.random.default_rng(int.from_bytes(material[:8], "little"))


def _at_most(entries: Sequence[Entry], trials: int) -> tuple[Entry, ...]:
    kept: list[Entry] = []
    for entry in entries:
        size = min(entry.size, trials)
        if size > 0:
            kept.append(msgspec.structs.replace(entry, size=size))
            trials -= size
    return tuple(kept)
