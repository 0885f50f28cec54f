"""Chooses the candidates of a subgraph to measure next: evolution, verification, choice by the cost model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from kintune.core.candidate import Candidate, Sketch
from kintune.search.bounds import bounds_of
from kintune.search.build_costs import Price
from kintune.search.cost_model import CostModel
from kintune.search.drafts import Drafts, Proposal
from kintune.search.evolve import cross, draw, mutate
from kintune.search.space import Draft, SearchSpace
from kintune.search.subgraph import SubgraphState

__all__ = ["Proposer", "breed", "choose", "propose"]

_PARENTS = 24  # measured candidates that may have children
_EXPLORE = 0.1  # share of a round that the model does not choose
_DRAFTS_PER_PICK = 1.5  # drafts of each generation, for each candidate to be chosen
_MADE_PER_PICK = 0.75  # the same if every draft must be replayed to get its features
_GENERATIONS = 2
_FRESH = (0.1, 0.05)  # share of each generation that is drawn at random
_RULES = 512  # candidates of the rule that may be in the first generation, at most
_SEEDED = 0.4  # share of the first generation for them, at most
_CARRIED_FIRST = 0.125  # share of a round for the best transferred candidates, whatever their scores
_LEADERS = 3  # fastest programs whose equivalent variants are drafts as well
_CHEAP = 0.9  # discount below which a draft is drawn after all others
_ATTEMPTS = 20  # draws per wanted draft before a space counts as exhausted


class Proposer(Protocol):
    """Chooses the candidates of a subgraph to measure; deterministic for equal arguments."""

    def __call__(
        self,
        state: SubgraphState,
        space: SearchSpace,
        model: CostModel | None,
        count: int,
        rng: np.random.Generator,
        *,
        explore: bool = True,
        rules: bool = True,
        carried: Sequence[Candidate] = (),
        experience: int = 0,
        price: Price | None = None,
    ) -> tuple[list[Proposal], int]:
        """Return at most `count` candidates that were not measured yet, best first, and the number of invalid drafts.

        With `explore`, some of them are drawn at random instead of chosen by the model.  Without `rules`, none comes
        from the rule.  `carried` are candidates transferred from other subgraphs, the most promising first.
        `experience` is the number of samples that the model was trained on.  `price` discounts scores by build time.
        """
        ...


def propose(
    state: SubgraphState,
    space: SearchSpace,
    model: CostModel | None,
    count: int,
    rng: np.random.Generator,
    *,
    explore: bool = True,
    rules: bool = True,
    carried: Sequence[Candidate] = (),
    experience: int = 0,
    price: Price | None = None,
    drafts: float | None = None,
) -> tuple[list[Proposal], int]:
    """Implements `Proposer` by evolution in two generations of `drafts` drafts for each candidate to be chosen.

    Candidates with analytic features are ranked by them, and only the chosen ones are replayed.  The others are
    replayed to be ranked, so by default there are fewer of them.  With `explore`, a tenth is drawn from the drafts that
    the model did not choose.  An eighth is for the best transferred candidates, in any case.
    """
    del experience
    workload = state.subject.workload
    sketches = space.sketches(workload)
    if not sketches:
        return [], 0
    per_pick = _drafts_per_pick(space, workload) if drafts is None else drafts
    wanted = math.ceil(count * (per_pick if model is not None else max(1.0, per_pick)))
    pool = Drafts(space, workload, state.times_us, state.fastest(_LEADERS))
    digests = {sketch.digest for sketch in sketches}
    parents = [parent for parent in state.fastest(_PARENTS) if parent.sketch in digests]
    seeds = [s for s in space.rules(workload, _RULES) if s not in pool.seen] if rules else []
    scores: dict[Candidate, float] = {}
    for generation in range(_GENERATIONS):
        children = breed(sketches, parents, wanted, pool.seen | pool.drafts.keys(), rng, fresh=_FRESH[generation])
        if generation == 0:
            children = _with_seeds(seeds, children, int(wanted * _SEEDED), rng)
            children = [*((candidate, "carried") for candidate in carried if candidate not in pool.seen), *children]
        pool.add(children)
        unscored = [c for c in pool.drafts if c not in scores]
        if model is None or not unscored:
            break
        predicted = model.predict(np.stack([pool.drafts[c][0].features for c in unscored]))
        scores.update(zip(unscored, (float(p) for p in predicted), strict=True))
        ranked = sorted(scores, key=lambda c: (-scores[c], c))
        parents = _unique(ranked[: _PARENTS // 2] + parents)[:_PARENTS]
    found: list[Proposal] = []
    for last in (False, True):
        if last and len(found) < count:
            pool.fetch_aside()
        while len(found) < count and pool.drafts:
            first = not found
            chosen = choose(
                pool.drafts, scores, count - len(found), rng, explore=explore and first, price=price, carried=first
            )
            found += pool.settle(chosen)
    return _rescored(found, scores, model), pool.invalid


def _drafts_per_pick(space: SearchSpace, workload: str) -> float:
    """Return the default of `drafts`: replaying is cheap compared with a build for a GPU, but not for a CPU."""
    threaded = any(bounds_of(sketch) for sketch in space.sketches(workload))
    return _DRAFTS_PER_PICK if threaded or space.fields(workload) else _MADE_PER_PICK


def _rescored(
    proposals: Sequence[Proposal], scores: Mapping[Candidate, float], model: CostModel | None
) -> list[Proposal]:
    """Return the proposals with new scores for those that became other programs when they were replayed."""
    others = [p for p in proposals if p.draft.candidate not in scores]
    if model is None or not others:
        return list(proposals)
    predicted = model.predict(np.stack([p.draft.features for p in others]))
    again = {p.draft.candidate: float(score) for p, score in zip(others, predicted, strict=True)}
    return [p._replace(predicted=again.get(p.draft.candidate, p.predicted)) for p in proposals]


def breed(
    sketches: Sequence[Sketch],
    parents: Sequence[Candidate],
    wanted: int,
    seen: set[Candidate],
    rng: np.random.Generator,
    *,
    fresh: float,
) -> list[tuple[Candidate, str]]:
    """Return new candidates with their origins: a share `fresh` is random, the others descend from `parents`.

    The first parents are chosen more often.
    """
    children: dict[Candidate, str] = {}
    for _ in range(wanted * _ATTEMPTS):
        if len(children) >= wanted:
            break
        if not parents or rng.random() < fresh:
            child, origin = draw(sketches[int(rng.integers(len(sketches)))], rng), "random"
        else:
            parent = parents[_favoured(len(parents), rng)]
            if rng.random() < 0.2:
                parent = cross(parent, parents[_favoured(len(parents), rng)], rng)
            child, origin = mutate(parent, sketches, rng), "evolved"
        if child not in seen:
            children.setdefault(child, origin)
    return list(children.items())


def _with_seeds(
    seeds: Sequence[Candidate], children: list[tuple[Candidate, str]], count: int, rng: np.random.Generator
) -> list[tuple[Candidate, str]]:
    """Return the children with up to `count` of them replaced by random `seeds`."""
    chosen = [seeds[int(i)] for i in rng.permutation(len(seeds))[:count]]
    kept = children[: max(0, len(children) - len(chosen))]
    return [*kept, *((seed, "rule") for seed in chosen if seed not in {child for child, _ in kept})]


def _favoured(length: int, rng: np.random.Generator) -> int:
    """Return a random index below `length`; the first ones are more likely."""
    return int(length * rng.random() ** 2)


def choose(
    pool: dict[Candidate, tuple[Draft, str]],
    scores: dict[Candidate, float],
    count: int,
    rng: np.random.Generator,
    *,
    explore: bool,
    price: Price | None = None,
    carried: bool = True,
) -> list[Proposal]:
    """Return at most `count` of the drafts in `pool`, with their origins: those of the highest scores, best first.

    If `carried`, an eighth is for the best transferred ones, whatever their scores.  With `explore`, a tenth is drawn
    from the rest; without scores everything is drawn.  With a `price`, scores are discounted, and drafts that take long
    to build are drawn last.
    """
    factors = _factors(pool, price)
    worth = {c: scores[c] * factor for c, factor in factors.items() if c in scores}
    transferred = [c for c, (_, origin) in pool.items() if origin == "carried"] if carried else []
    if scores:
        transferred.sort(key=lambda c: (-worth.get(c, 0.0), c))  # those that were put aside have no scores
    first = transferred[: math.ceil(count * _CARRIED_FIRST)]
    candidates = [c for c in sorted(pool, key=lambda c: (-worth.get(c, 0.0), c)) if c not in first]
    count -= len(first)
    by_model = 0 if not scores else count - int(count * _EXPLORE) if explore else count
    chosen, rest = candidates[:by_model], candidates[by_model:]
    drawn = [rest[int(i)] for i in rng.permutation(len(rest))]
    chosen += sorted(drawn, key=lambda c: factors[c] < _CHEAP)[: count - len(chosen)]
    return [Proposal(pool[c][0], scores.get(c), pool[c][1]) for c in [*first, *chosen]]


def _factors(pool: dict[Candidate, tuple[Draft, str]], price: Price | None) -> dict[Candidate, float]:
    """Return the discount of each draft; 1.0 for a draft without features."""
    described = [c for c, (draft, _) in pool.items() if draft.features.size] if price is not None else []
    if price is None or not described:
        return dict.fromkeys(pool, 1.0)
    found = price(np.stack([pool[c][0].features for c in described]))
    return dict.fromkeys(pool, 1.0) | dict(zip(described, (float(factor) for factor in found), strict=True))


def _unique(candidates: Sequence[Candidate]) -> list[Candidate]:
    return list(dict.fromkeys(candidates))
