"""The drafter: ranks tens of thousands of candidates by analytic features, and replays only the best of them.

Replaying a candidate takes ten to twenty milliseconds; ranking one by analytic features takes some microseconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kintune.core.candidate import Candidate, Tile
from kintune.search.build_costs import Price
from kintune.search.cost_model import CostModel
from kintune.search.draft.evolution import Judge, Ranked, evolve
from kintune.search.drafts import Proposal
from kintune.search.features.encoding import Encoding, Population
from kintune.search.features.field import Field
from kintune.search.propose import breed, choose, propose
from kintune.search.space import Draft, SearchSpace
from kintune.search.subgraph import SubgraphState

__all__ = ["draft"]

_SPARE = 1.1  # candidates that are verified, for each one to be measured
_EXPLORED = 0.15  # additional ones from the better half at random: the model must learn from others, too
_BATCHES = 4  # batches that are verified at most until there are enough valid candidates
_POPULATION = 4096  # candidates of a generation, at most
_PER_PICK = (3.0, 64.0)  # candidates of a generation for each to be measured: with few samples, with many
_GENERATIONS = (1, 5)  # with few samples, with many
_MATURE = 256.0  # number of samples that counts as many
_PARENTS = 48  # measured candidates among the seeds
_RULES = 256  # candidates of the rule among the seeds
_LOOKED_AT = 16  # ranked candidates that are considered, for each to be measured
_A_TURN = 8  # candidates of one register tile in a row
_LEADING, _TRAILING = 0.5, 0.1  # share of sketches without analytic features: if the best is theirs, if not
_FRESH = 0.1  # share of these that is drawn at random


def draft(
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
    """Implements `kintune.search.propose.Proposer`: evolve in bulk, verify the best, let the model choose.

    Without a model, the estimate among the analytic features ranks.  If no sketch of the workload has analytic
    features, `propose` is used; if only some have them, the others get a share of the candidates.
    """
    fields = space.fields(state.subject.workload)
    if not fields:
        return propose(state, space, model, count, rng, explore=explore, rules=rules, carried=carried, price=price)
    origins = {**_rule_seeds(state, space, rules=rules), **dict.fromkeys(carried, "carried")}
    first = {c: "carried" for c in carried if c not in state.times_us}
    first.update(_without_features(state, space, fields, count, rng))
    best: list[tuple[float, Candidate]] = []
    for field in fields:
        ranked = _rank(field, state, list(origins), model, count / len(fields), experience, rng)
        best += _diversified(field.encoding, ranked, _LOOKED_AT * count, state)
        first.update(dict.fromkeys(_explored(field.encoding, ranked, count, state, rng) if explore else (), "drafted"))
    best.sort(key=lambda pair: (-pair[0], pair[1]))
    survivors = {c: origins.get(c, "drafted") for _, c in best}
    pool, invalid = _verified(first, survivors, math.ceil(count * _SPARE), state, space)
    return choose(pool, _scores(pool, model), count, rng, explore=explore, price=price), invalid


def _verified(
    first: dict[Candidate, str], best: dict[Candidate, str], wanted: int, state: SubgraphState, space: SearchSpace
) -> tuple[dict[Candidate, tuple[Draft, str]], int]:
    """Verify all of `first`, and candidates of `best` in order until `wanted` of these are valid.

    Returns the valid ones, which were not measured before, with their origins, and the number of invalid ones.
    """
    pool: dict[Candidate, tuple[Draft, str]] = {}
    invalid = 0
    left = [item for item in best.items() if item[0] not in first]
    batch, missing = list(first.items()), wanted
    for _ in range(_BATCHES):
        batch, left = [*batch, *left[:missing]], left[missing:]
        if not batch:
            break
        for (candidate, origin), verified in zip(batch, space.verify([c for c, _ in batch]), strict=True):
            if verified is None:
                invalid += 1
            elif verified.candidate not in state.times_us and verified.candidate not in pool:
                pool[verified.candidate] = (verified, origin)
                missing -= candidate not in first
        batch = []
    return pool, invalid


def _rule_seeds(state: SubgraphState, space: SearchSpace, *, rules: bool) -> dict[Candidate, str]:
    """Return candidates of the rule, which are seeds whether they were measured or not."""
    return dict.fromkeys(space.rules(state.subject.workload, _RULES), "rule") if rules else {}


def _rank(
    field: Field,
    state: SubgraphState,
    seeds: Sequence[Candidate],
    model: CostModel | None,
    count: float,
    experience: int,
    rng: np.random.Generator,
) -> Ranked:
    """Return a field's candidates, evolved from the fastest ones and the seeds, ranked by the model.

    The population grows with the model's samples, since a model of few samples overrates candidates unlike them.
    """
    own = list(dict.fromkeys(c for c in [*state.fastest(_PARENTS), *seeds] if c in field.encoding))
    maturity = min(1.0, experience / _MATURE)
    each = _PER_PICK[0] + maturity * (_PER_PICK[1] - _PER_PICK[0])
    return evolve(
        field.encoding,
        field.encoding.encode(own),
        _judge(field, model),
        rng,
        size=min(_POPULATION, len(own) + math.ceil(each * count)),
        generations=_GENERATIONS[0] + int(maturity * (_GENERATIONS[1] - _GENERATIONS[0])),
    )


def _judge(field: Field, model: CostModel | None) -> Judge:
    def judge(population: Population) -> NDArray[np.float32]:
        features = field.features(population)
        return field.estimate(features) if model is None else model.predict(features)

    return judge


def _diversified(encoding: Encoding, ranked: Ranked, most: int, state: SubgraphState) -> list[tuple[float, Candidate]]:
    """Return at most `most` unmeasured candidates, best first, but with register tiles taking turns.

    The best `_A_TURN` of each register tile come first, then the next as many, and so on: otherwise most candidates
    would be variants of a single tile, about which the model may be wrong.  Each turn lowers the score by 1.
    """
    register = [
        column.stop - 1
        for axis, column in zip(encoding.axes, encoding.columns, strict=True)
        if isinstance(axis, Tile) and axis.spatial
    ]
    looked_at = ranked.population.take(np.arange(min(len(ranked.population), most + state.tried)))
    tiles = np.ascontiguousarray(looked_at.rows[:, register])
    turns: Counter[bytes] = Counter()
    found: list[tuple[int, int, Candidate]] = []
    for number, candidate in enumerate(encoding.candidates(looked_at)):
        if candidate not in state.times_us:
            tile = tiles[number].tobytes()
            found.append((turns[tile] // _A_TURN, number, candidate))
            turns[tile] += 1
    ordered = sorted(found)[:most]
    return [(float(ranked.scores[number]) - turn, candidate) for turn, number, candidate in ordered]


def _explored(
    encoding: Encoding, ranked: Ranked, count: int, state: SubgraphState, rng: np.random.Generator
) -> list[Candidate]:
    """Return some random unmeasured candidates of the better half."""
    half = max(1, len(ranked.population) // 2)
    numbers = rng.permutation(half)[: math.ceil(count * _EXPLORED)]
    return [c for c in encoding.candidates(ranked.population.take(numbers)) if c not in state.times_us]


def _without_features(
    state: SubgraphState, space: SearchSpace, fields: Sequence[Field], count: int, rng: np.random.Generator
) -> dict[Candidate, str]:
    """Return candidates of the sketches without analytic features; more of them if the best program is theirs."""
    plain = [s for s in space.sketches(state.subject.workload) if not any(s in f.encoding.sketches for f in fields)]
    if not plain:
        return {}
    digests = {sketch.digest for sketch in plain}
    leading = state.best is not None and state.best.sketch in digests
    parents = [candidate for candidate in state.fastest(_PARENTS) if candidate.sketch in digests]
    wanted = math.ceil(count * (_LEADING if leading else _TRAILING))
    return dict(breed(plain, parents, wanted, set(state.times_us), rng, fresh=_FRESH))


def _scores(pool: dict[Candidate, tuple[Draft, str]], model: CostModel | None) -> dict[Candidate, float]:
    """Return the model's scores of the drafts; none without a model."""
    if model is None or not pool:
        return {}
    predicted = model.predict(np.stack([verified.features for verified, _ in pool.values()]))
    return dict(zip(pool, (float(score) for score in predicted), strict=True))
