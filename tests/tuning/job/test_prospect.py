"""The remaining stages that a job announces while it runs."""

from __future__ import annotations

from collections import Counter

import msgspec

from kintune.core.config import JobSpec, Options, Strategy
from kintune.core.messages import OfferStages
from kintune.core.stage_results import StageName
from tests.support.rehearsal import Rehearsal
from tests.support.toy_tools import ToyTools, toy_spec


class Listening(Rehearsal):
    """Keeps what was offered, and what was said to lie ahead then."""

    def __init__(self, spec: JobSpec) -> None:
        self.offers: list[OfferStages] = []
        super().__init__(ToyTools, spec)

    def _hear(self, sayings: object) -> None:
        said = list(sayings)  # type: ignore[call-overload]
        self.offers += [saying for saying in said if isinstance(saying, OfferStages)]
        super()._hear(said)


def played(trials: int, inflight: int = 1, survey: tuple[int, ...] = ()) -> Listening:
    options = Options(trials=trials, strategy=Strategy(round_size=6, foresee_size=3, survey=survey, foresee="none"))
    listening = Listening(msgspec.structs.replace(toy_spec(options), inflight=inflight))
    listening.run()
    return listening


def test_nothing_can_be_told_before_the_model_is_known() -> None:
    assert played(12).offers[0].ahead is None


def test_what_lies_ahead_is_what_comes() -> None:
    offers = played(30).offers
    for position, offer in enumerate(offers[1:], start=2):
        coming = Counter(w.stage.duration_key for later in offers[position:] for w in later.works)
        ahead = offer.ahead or {}
        for kind in (StageName.SELECT, StageName.UPDATE, StageName.PROFILE, StageName.PROVE):
            assert abs(ahead.get(f"toy/{kind}", 0) - coming[f"toy/{kind}"]) <= 1, (position, kind)


def test_how_long_the_proof_takes_is_told_once_the_untuned_programs_were_timed() -> None:
    told = [offer.seconds for offer in played(12, survey=(1,)).offers]
    assert told[0] == {}
    assert set(told[-1]) == {f"toy/{StageName.PROVE}"}
    assert 1.0 < told[-1][f"toy/{StageName.PROVE}"] < 10.0  # the toys take microseconds: starting processes is most


def test_the_last_offer_has_nothing_after_it() -> None:
    assert played(12).offers[-1].ahead == {}


def test_who_follows_is_told_of_every_stage() -> None:
    for offer in played(12).offers:
        for work in offer.works:
            leads_to_a_device = work.stage.then is not None and work.stage.then.device is not None
            assert leads_to_a_device == (work.stage.kind in (StageName.BUILD, StageName.DRAFT, StageName.PACKAGE))
