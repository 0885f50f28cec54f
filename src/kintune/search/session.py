"""The search of one job: its state, built from events, and the decisions that follow from the state.

It uses no clock, no compiler and no global random numbers.  `know`, `suggest`, `teach`, `leave_out`, `limit`, `begin`,
`built`, `observe` and `adopt` take in committed events, each once.  `plan`, `select`, `learn` and `train` decide and
change nothing.  So the same events lead to the same decisions, however often these are computed.

Several rounds may be open at once, of different subgraphs: while one is measured, the next can be chosen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.config import Strategy
from kintune.core.knowledge import Knowledge
from kintune.core.outcome import Outcome
from kintune.core.plan import Round, RoundEntry, at_most
from kintune.search.budget import rank, sized
from kintune.search.build_costs import BuildCosts, Price
from kintune.search.cost_model import CostModel, Trees, Trust
from kintune.search.draft.drafter import draft
from kintune.search.drafts import Proposal
from kintune.search.family import Samples, Subject, families
from kintune.search.foresee import sibling
from kintune.search.pretrained import ENOUGH, PretrainedFamilies, PretrainedFamily
from kintune.search.propose import Proposer, propose
from kintune.search.remeasurement import leaders
from kintune.search.rounds import Learnt, OpenRound
from kintune.search.space import Draft, SearchSpace
from kintune.search.subgraph import SubgraphState
from kintune.search.training_rows import count, gather
from kintune.search.transfer import TransferredPrograms
from kintune.search.warmup import Warmup

__all__ = ["SearchSession"]

_NO_FEATURES: NDArray[np.float32] = np.zeros(0, np.float32)
_LEAST_ROWS = 12  # samples below which a family has no model of its own
_FRESH = 8  # new programs of a round for each known one that is timed again
_LEADERS = 8  # fastest programs, whose median build time is not expensive


class SearchSession:
    """The search over the subgraphs of one network.

    `seed` determines all random choices, and `threads` is the number of threads that train models.  `proposer` chooses
    the candidates of full and foresee rounds; by default it is `draft` or `propose`, as `strategy` says.

    `states` has the subgraphs by workload digest, `models` the trained models by family.  `begun` is the number of the
    next round, `round` the number of rounds that are measured.
    """

    def __init__(
        self,
        subjects: Sequence[Subject],
        space: SearchSpace,
        strategy: Strategy,
        *,
        seed: int,
        threads: int,
        proposer: Proposer | None = None,
    ) -> None:
        self._families = families(strategy.families, seed=seed, threads=threads)
        nothing = [Samples(s, np.zeros((0, 0), np.float32), np.zeros(0, np.float32)) for s in subjects]
        assigned = self._families.group(nothing, {})
        self.states = {s.workload: SubgraphState(s, assigned[s.workload]) for s in subjects}
        self.models: dict[str, CostModel] = {}
        self.round = 0
        self.begun = 0
        self._space = space
        self._strategy = strategy
        self._seed = seed
        self._threads = threads
        self._propose = proposer or (draft if strategy.draft else propose)
        self._transferred = TransferredPrograms(space)
        self._pretrained = PretrainedFamilies()
        self._trust = Trust()
        self._warmup = Warmup(space, strategy, self._transferred)
        self._warmup_level = 0
        self._costs = BuildCosts(seed=seed, threads=threads)
        self._open: dict[int, OpenRound] = {}
        self._last: Round | None = None
        self._unlearnt: list[Round] = []

    # -- decisions --------------------------------------------------------------------------------------------

    def plan(self, trials_left: int | None = None) -> Round | None:
        """Return the next round, of at most `trials_left` candidates, of subgraphs without an open round.

        None if no such subgraph is expected to gain, or if open rounds must be measured before a warm-up round.
        """
        _, entries = self._warmup.plan(list(self.states.values()), self._warmup_level)
        if entries and self._open:
            return None
        if not entries:
            busy = {entry.workload for opened in self._open.values() for entry in opened.plan.entries}
            entries = self._foresee(busy)
            if not entries or self._strategy.width > 1:
                entries = (*self._search({*busy, *(entry.workload for entry in entries)}), *entries)
        if trials_left is not None:
            entries = at_most(entries, trials_left)
        return Round(self.begun, entries) if entries else None

    def select(self, plan: Round) -> tuple[list[Proposal], int]:
        """Return the candidates of a round and the number of invalid drafts.

        The first of each subgraph are its fastest known programs, to be timed again.  A warm-up round ends with the
        untuned programs, against which the gain is measured.  Neither of these count as trials.
        """
        states = list(self.states.values())
        number = plan.number
        proposals: list[Proposal] = []
        untuned: list[Proposal] = []
        invalid = 0
        for entry in plan.entries:
            state = self.states[entry.workload]
            model = self._model(state.family)
            if entry.how == "rule":
                found, bad = self._warmup.choose(state, states, model, entry.size, self._rng(number, entry.workload))
                plain = Candidate.untuned(entry.workload)
                if plain not in state.times_us:
                    untuned.append(Proposal(Draft(plain, _NO_FEATURES), None, "untuned"))
            else:
                found, bad = self._propose(
                    state,
                    self._space,
                    model,
                    entry.size,
                    self._rng(number, entry.workload),
                    explore=entry.how == "search",
                    rules=self._strategy.rules,
                    carried=self._transferred.carried(state, states) if self._strategy.carry else (),
                    experience=self._experience(state.family),
                    price=self._price(state),
                )
                if entry.how == "foresee":
                    found = [p if p.origin == "carried" else p._replace(origin="foresee") for p in found]
                found = [*leaders(state, min(self._strategy.again, len(found) // _FRESH)), *found]
            proposals += found
            invalid += bad
        return proposals + untuned, invalid

    def learn(self) -> Learnt:
        """Return what follows from the last rounds: new families, if they depend on measurements, and new models.

        Models are trained for the families that were measured or whose members have changed.
        """
        now = {workload: state.family for workload, state in self.states.items()}
        if self._families.dynamic:
            evidence = [Samples(s.subject, *gather([s])[:2]) for s in self.states.values()]
            now.update(self._families.group(evidence, now))
        moved = {workload: key for workload, key in now.items() if key != self.states[workload].family}
        touched = [now[entry.workload] for plan in self._unlearnt for entry in plan.entries]
        left = [self.states[workload].family for workload in moved]
        models = self._train(dict.fromkeys([*touched, *left, *moved.values()]), now)
        return Learnt(models, moved, tuple(plan.number for plan in self._unlearnt))

    def train(self, families: Iterable[str]) -> dict[str, Trees]:
        """Train models of those of the families that have enough samples."""
        return self._train(families, {workload: state.family for workload, state in self.states.items()})

    def samples(self, family: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return all samples of a family: features (n, width) and labels (n,), in order of measurement."""
        rows = gather([s for s in self.states.values() if s.family == family])
        return rows.features, rows.labels

    def latency_us(self) -> float:
        """Return the estimated latency of the network: the sum of the best known kernel times by occurrence."""
        return sum(s.subject.weight * s.best_us for s in self.states.values())

    def untuned_us(self) -> float:
        """Return the same for the untuned programs."""
        return sum(s.subject.weight * s.untuned_us for s in self.states.values())

    # -- events -----------------------------------------------------------------------------------------------

    def know(self, candidate: Candidate, outcome: Outcome, features: NDArray[np.float32] | None) -> None:
        """Take in a measurement from the records, made before this run."""
        state = self.states.get(candidate.workload)
        if state is not None:
            state.observe(candidate, outcome, features, counts=False)
            state.told.add(candidate)

    def suggest(self, candidate: Candidate) -> None:
        """Take in a candidate that was good under other conditions; it is among the first to be measured."""
        state = self.states.get(candidate.workload)
        if state is not None and candidate not in state.suggestions:
            state.suggestions.append(candidate)

    def teach(self, knowledge: Knowledge) -> None:
        """Take in programs to transfer and pretrained models from earlier jobs; called at most once."""
        self._transferred.teach(knowledge.programs)
        self._pretrained.teach(knowledge.models)

    def leave_out(self, workloads: Collection[str]) -> None:
        """Remove these workloads from the search; none of them may have an open round."""
        for workload in workloads:
            self.states.pop(workload, None)

    def limit(self, bounds_us: Mapping[str, float]) -> None:
        """Take in lower bounds of the time of each workload, in microseconds, from the device's peak.

        They are used only by the "prospect" budget, so that no other search depends on whether a peak is recorded.
        """
        for workload, bound_us in bounds_us.items():
            if workload in self.states and self._strategy.budget == "prospect":
                self.states[workload].bound_us = bound_us

    def begin(
        self,
        plan: Round,
        picks: Mapping[Candidate, NDArray[np.float32]],
        predicted: Mapping[Candidate, float | None] | None = None,
    ) -> None:
        """Open a round that was selected; `picks` maps its candidates to their features, `predicted` to scores."""
        if all(entry.how == "rule" for entry in plan.entries):
            level, _ = self._warmup.plan(list(self.states.values()), self._warmup_level)
            self._warmup_level = level + 1
        self._last = None
        self.begun = plan.number + 1
        before = {entry.workload: self.states[entry.workload].best_us for entry in plan.entries}
        scores = {c: score for c, score in (predicted or {}).items() if score is not None}
        known = frozenset(c for c in picks if c in self.states[c.workload].times_us)
        fresh = tuple(c for c in picks if c not in known)
        self._open[plan.number] = opened = OpenRound(plan, dict(picks), scores, before, known, fresh)
        for entry in plan.entries:
            found = sum(c.workload == entry.workload for c in fresh)
            if entry.how == "search":
                self.states[entry.workload].exhausted = found == 0
        if not picks:
            self._close(opened)

    def built(self, candidate: Candidate, seconds: float) -> None:
        """Note the seconds until a candidate of an open round was built, or its build was given up."""
        opened = next((each for each in self._open.values() if candidate in each.pending), None)
        if opened is not None and candidate.sketch != UNTUNED and seconds > 0:
            self._costs.note(opened.pending[candidate], seconds)
            self.states[candidate.workload].build_s[candidate] = seconds

    def dearest_first(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates in the order of `BuildCosts.dearest_first`."""
        pending = {c: row for each in self._open.values() for c, row in each.pending.items() if c.sketch != UNTUNED}
        return self._costs.dearest_first(candidates, pending)

    def build_patience_s(self, most: float) -> float:
        """Return the time limit in seconds for the build of a candidate, at most `most`."""
        return self._costs.patience_s(most)

    def observe(self, candidate: Candidate, outcome: Outcome) -> None:
        """Take in an outcome of an open round."""
        opened = next((each for each in self._open.values() if candidate in each.pending), None)
        features = None if opened is None else opened.pending.pop(candidate)
        if opened is None or candidate not in opened.known:
            self.states[candidate.workload].observe(candidate, outcome, features, counts=candidate.sketch != UNTUNED)
        elif outcome.ok:  # else its earlier time stays; finalists are timed again anyway
            opened.again_us[candidate] = outcome.median_us
        if opened is not None and not opened.pending:
            self._close(opened)
            self._unlearnt.append(opened.plan)

    def adopt(
        self,
        models: Mapping[str, CostModel],
        families: Mapping[str, str] | None = None,
        rounds: Collection[int] | None = None,
    ) -> None:
        """Take in the result of an update: trained models, and the new families of workloads that changed theirs.

        `rounds` are the rounds that it was learnt from; None means all that are measured.  The old model of a family
        whose members changed is dropped.
        """
        self._unlearnt = [plan for plan in self._unlearnt if rounds is not None and plan.number not in rounds]
        for workload, family in (families or {}).items():
            for changed in (self.states[workload].family, family):
                self.models.pop(changed, None)
            self.states[workload].family = family
        self.models.update(models)

    def awaits(self, candidate: Candidate) -> bool:
        """Return whether the candidate is in an open round and has no outcome yet."""
        return any(candidate in opened.pending for opened in self._open.values())

    def knows(self, candidate: Candidate) -> bool:
        """Return whether the candidate was measured before."""
        return candidate in self.states[candidate.workload].times_us

    @property
    def trials_under_way(self) -> int:
        """Number of trials of the open rounds without an outcome."""
        return sum(c.sketch != UNTUNED and c not in each.known for each in self._open.values() for c in each.pending)

    @property
    def pending(self) -> list[Candidate]:
        """Candidates of the open rounds without an outcome, in order of selection."""
        return [candidate for opened in self._open.values() for candidate in opened.pending]

    @property
    def open_rounds(self) -> dict[int, list[Candidate]]:
        """The open rounds by number, with the candidates that are pending in each."""
        return {number: list(opened.pending) for number, opened in self._open.items()}

    @property
    def unlearnt(self) -> bool:
        """Whether there is a measured round that no update has learnt from."""
        return bool(self._unlearnt)

    # -- internals --------------------------------------------------------------------------------------------

    def _close(self, opened: OpenRound) -> None:
        for entry in opened.plan.entries:
            state = self.states[entry.workload]
            if entry.how == "rule":
                state.history.append(state.best_us)
            else:
                if not state.history:  # the first round of a subgraph that the records know
                    state.history.append(opened.before[entry.workload])
                again_us = {c: time for c, time in opened.again_us.items() if c.workload == entry.workload}
                opened.before[entry.workload] = state.correct(again_us, set(opened.fresh))
                self._judge(entry, opened)
                state.close_round(entry.size / self._strategy.round_size)
        del self._open[opened.plan.number]
        self._last = opened.plan
        self.round += 1

    def _judge(self, entry: RoundEntry, opened: OpenRound) -> None:
        state = self.states[entry.workload]
        scored = [(score, state.times_us[c]) for c, score in opened.predicted.items() if c.workload == entry.workload]
        self._trust.judge(
            state.family,
            [score for score, _ in scored],
            [time for _, time in scored],
            foreseen=entry.how == "foresee",
            improved=state.best_us < opened.before[entry.workload],
        )

    def _foresee(self, busy: Collection[str]) -> tuple[RoundEntry, ...]:
        """Return the foresee rounds after a full round and its update, one for each subgraph that was tuned."""
        last = self._last
        if self._strategy.foresee == "none" or last is None:
            return ()
        searched = [entry.workload for entry in last.entries if entry.how == "search"]
        if len(searched) < len(last.entries) and self._strategy.width == 1:
            return ()
        chosen: dict[str, RoundEntry] = {}
        for workload in searched:
            tuned = self.states[workload]
            size = self._strategy.foresee_size
            if self._strategy.foresee == "guarded":
                size = self._trust.size(tuned.family, size)
            taken = {*searched, *chosen, *busy}
            other = sibling(tuned, self.states.values(), taken) if size and self._is_modelled(tuned.family) else None
            if other is not None:
                chosen[other.subject.workload] = RoundEntry(other.subject.workload, size, "foresee")
        return tuple(chosen.values())

    def _search(self, taken: Collection[str]) -> tuple[RoundEntry, ...]:
        """Return the entries of a full round, which up to `width` subgraphs share."""
        states = list(self.states.values())
        if self._strategy.budget == "balanced":
            ranked = sorted((s for s in states if not s.exhausted), key=lambda s: (s.trials, s.subject.workload))
        else:
            ranked = rank(states)
        shared = [s for s in ranked if s.subject.workload not in taken][: self._strategy.width]
        size = self._strategy.round_size // max(1, len(shared))
        sizes = {s.subject.workload: sized(size, s) if self._strategy.budget == "prospect" else size for s in shared}
        return tuple(RoundEntry(workload, size, "search") for workload, size in sizes.items() if size)

    def _model(self, family: str) -> CostModel | None:
        """Return the family's own model, or else its pretrained one; None without either."""
        model = self.models.get(family)
        if model is None and (prior := self._prior(family)) is not None:
            return prior.model
        return model

    def _prior(self, family: str) -> PretrainedFamily | None:
        return self._pretrained.of(family, [s.subject for s in self.states.values() if s.family == family])

    def _experience(self, family: str) -> int:
        """Return the number of samples that the family's model was trained on; a pretrained model counts `ENOUGH`."""
        own = count(state for state in self.states.values() if state.family == family)
        return own + (ENOUGH if self._prior(family) is not None else 0)

    def _price(self, state: SubgraphState) -> Price | None:
        """Return the discount for long builds; None if the strategy has none or too few programs were built."""
        if not self._strategy.thrift:
            return None
        return self._costs.price([state.build_s[c] for c in state.fastest(_LEADERS) if c in state.build_s])

    def _is_modelled(self, family: str) -> bool:
        """Return whether the family has a model; depends on events alone, even if the model is in another process."""
        members = [state for state in self.states.values() if state.family == family]
        return count(members) >= _LEAST_ROWS or self._prior(family) is not None

    def _train(self, families: Iterable[str], assigned: Mapping[str, str]) -> dict[str, Trees]:
        trained: dict[str, Trees] = {}
        for family in families:
            members = [state for workload, state in self.states.items() if assigned[workload] == family]
            if count(members) >= _LEAST_ROWS:
                prior = self._pretrained.of(family, [state.subject for state in members])
                trained[family] = PretrainedFamilies.train(
                    gather(members), prior, seed=self._seed, threads=self._threads
                )
        return trained

    def _rng(self, number: int, workload: str) -> np.random.Generator:
        material = hashlib.sha256(f"{self._seed}/{workload}/{number}".encode()).digest()
        return np.random.default_rng(int.from_bytes(material[:8], "little"))
