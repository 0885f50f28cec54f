"""How a search proceeds: every factor that an experiment may want to switch."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

__all__ = ["Budget", "Foresee", "Strategy"]

Foresee: TypeAlias = Literal["none", "published", "guarded"]
"""What happens after a full round: nothing; a small round for the steepest sibling, as FamilySeer does; or the same as
long as what the family's model predicts holds."""

Budget: TypeAlias = Literal["gradient", "balanced", "prospect"]
"""Who gets the next round: the subgraph with the steepest expected gain, or the one with the fewest trials.  With
"prospect" it is the steepest one, as far as what the device reaches at its best leaves a gain, and its round is sized
by that."""


class Strategy(msgspec.Struct, frozen=True):
    """The factors of a search.

    `families` names the family algorithm.  A full round has `round_size` candidates, shared by the `width` steepest
    subgraphs; a foresee round has `foresee_size`.  Before any gets a full round, every subgraph gets as many candidates
    as `survey` has for each of its rounds; an empty one leaves the survey out.  `rules` lets the rule propose
    candidates; `carry` carries good programs over to siblings.  With `thrift`, a candidate that is dear to build must
    promise more than others.  Up to `again` of a subgraph's fastest programs are timed again in each of its rounds, one
    for eight new ones at most.  With `draft`, candidates are evolved and ranked in bulk by their decisions before any
    is made.
    """

    families: str = "op"
    foresee: Foresee = "guarded"
    carry: bool = True
    rules: bool = True
    survey: tuple[int, ...] = (1, 3, 4)
    budget: Budget = "gradient"
    round_size: int = 32
    foresee_size: int = 16
    width: int = 1
    thrift: bool = True
    draft: bool = False
    again: int = 3
