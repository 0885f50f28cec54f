"""The tuning loop of FamilySeer (arXiv 2201.00194): select, measure, learn, and use at once what was learnt.

1. *Plan* a round: a full one for the subgraph whose tuning is expected to speed up the network most, or, after such a
   round, a short one for a sibling of its family (foresee tuning).  *Select* its candidates by the family's cost model.
2. *Measure* the candidates: build each, and time it on the device.
3. *Learn*: group the subgraphs into families anew, and train the models of those that were measured.

The loop is implemented here only.  `next_steps` returns the next steps.  A tuning job hands them to a scheduler, which
runs them in several processes, and commits each result before it takes it in.  `rounds` runs the steps in this process,
for replays on recorded measurements, for comparisons with other tuners, and for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, TypeAlias

from kintune.core.candidate import UNTUNED, Candidate
from kintune.core.outcome import Outcome
from kintune.core.plan import Round
from kintune.search.drafts import Proposal
from kintune.search.rounds import Learnt
from kintune.search.session import SearchSession

__all__ = ["Learn", "Measure", "RoundDone", "Select", "Step", "Timed", "next_steps", "rounds"]


class Select(NamedTuple):
    """Choose the candidates of `plan`."""

    plan: Round


class Measure(NamedTuple):
    """Measure the `candidates` that round `number` still waits for."""

    number: int
    candidates: list[Candidate]


class Learn(NamedTuple):
    """Learn from the rounds that were measured."""


Step: TypeAlias = Select | Measure | Learn


def next_steps(
    session: SearchSession,
    *,
    trials_left: int | None = None,
    inflight: int = 1,
    measuring: Collection[int] = (),
    is_busy: bool = False,
) -> list[Step]:
    """Return the steps that may begin now; the search is over if there are none and none is running.

    At most `trials_left` more candidates are selected (None: any number), in at most `inflight` rounds at once.
    `measuring` are the rounds that are being measured, and `is_busy` says that a selection or an update is running.
    """
    steps: list[Step] = [Measure(n, pending) for n, pending in session.open_rounds.items() if n not in measuring]
    if is_busy:
        return steps
    if session.unlearnt:
        return [*steps, Learn()]
    if len(session.open_rounds) >= inflight or (trials_left is not None and trials_left <= 0):
        return steps
    plan = session.plan(trials_left)
    return steps if plan is None else [*steps, Select(plan)]


class Timed(NamedTuple):
    """The outcome of a candidate; `build_s` are the seconds that its build took, 0 if unknown."""

    candidate: Candidate
    outcome: Outcome
    build_s: float = 0.0


class RoundDone(NamedTuple):
    """A finished round: its plan, what was selected and measured, and what was learnt (None without candidates)."""

    plan: Round
    proposals: list[Proposal]
    measured: list[Timed]
    learnt: Learnt | None


def rounds(
    session: SearchSession,
    measure: Callable[[list[Candidate]], Iterable[Timed]],
    *,
    trials: int | None = None,
    with_untuned: bool = True,
    stage: Callable[[str], AbstractContextManager[object]] = lambda _: nullcontext(),
) -> Iterator[RoundDone]:
    """Run the loop, one round at a time, until `trials` are used up or no subgraph is expected to gain any more.

    `measure` returns an outcome for each candidate.  Untuned programs and those that are timed again are not trials;
    without `with_untuned`, untuned programs are not measured.  `stage` is entered for "select" and for "update", so
    that a caller can time them.
    """
    spent = 0
    while steps := next_steps(session, trials_left=None if trials is None else trials - spent):
        (step,) = steps
        if isinstance(step, Select):
            with stage("select"):
                plan, (proposals, _) = step.plan, session.select(step.plan)
                if not with_untuned:
                    proposals = [proposal for proposal in proposals if proposal.origin != "untuned"]
                picks = {proposal.draft.candidate: proposal.draft.features for proposal in proposals}
                spent += sum(c.sketch != UNTUNED and not session.knows(c) for c in picks)
                session.begin(plan, picks, {p.draft.candidate: p.predicted for p in proposals})
            if not picks:
                yield RoundDone(plan, proposals, [], None)
        elif isinstance(step, Measure):
            measured = list(measure(step.candidates))
            for candidate, outcome, build_s in measured:
                session.built(candidate, build_s)
                session.observe(candidate, outcome)
        else:
            with stage("update"):
                learnt = session.learn()
                session.adopt(learnt.models, learnt.families, learnt.rounds)
            yield RoundDone(plan, proposals, measured, learnt)
