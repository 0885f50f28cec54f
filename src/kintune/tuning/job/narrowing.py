"""The narrower precisions of a job's network: which are tried, and which ship."""

from __future__ import annotations

import math

from kintune.core.config import Options
from kintune.core.keeping import Keeping
from kintune.core.paired_ratio import paired_ratio
from kintune.core.stage_results import Packaged, ValidationResult
from kintune.tuning.job.finalists import Finalists
from kintune.tuning.job.precision_choice import MOST_ALONE, PrecisionChoice

__all__ = ["Narrowing"]

_FASTER = 0.99
"""A network that is tried is faster if it takes at most this share of the time of the one timed beside it."""

_HURRIED = (
    "the time was too short to try all subgraphs in narrower precisions: with more --minutes the result may be faster"
)

_FEWER_ALONE = 12
"""Alternatives that are tried alone where the network is only compiled, which is to take about a minute."""


class Narrowing:
    """The choice of precisions among the finalists; it permits them what is tried, and in the end what was chosen.

    `draft` is the network in the precisions that are tried, once it is compiled.

    With `by_rule` no program was timed.  So the first network that is tried is timed beside the one in fp32, and where
    it is no faster, everything stays in fp32.

    When the precisions are chosen, the network is tried once more with all tensors between kernels in bf16 that can be,
    and then with those that are rounded anyway.  They are kept where the error is within the limit of the choice and
    the network is faster.
    """

    def __init__(
        self,
        budget: float | None,
        reference: float | None = None,
        *,
        by_rule: bool = False,
        seconds: float = math.inf,
    ) -> None:
        """`budget` is the error allowed at the network's outputs; None where nothing may be narrower than fp32.

        With a `reference`, the user's score of the original model, it is the loss of score that is allowed.  `seconds`
        is the time that the job is to take in all.
        """
        self._seconds = seconds
        self._reference = reference
        self._by_rule = by_rule
        self.draft: Packaged | None = None
        self._budget = budget
        self._choice: PrecisionChoice | None = None
        self._finalists: Finalists | None = None
        self._keeps = Keeping.NONE
        self._untried = [Keeping.ALL, Keeping.EXACT]

    @classmethod
    def of(cls, options: Options) -> Narrowing:
        """Returns the choice for a job with these options."""
        metric = options.metric
        reference = None if metric is None else metric.reference
        seconds = math.inf if options.minutes is None else 60 * options.minutes
        return cls(options.error_budget, reference, by_rule=not options.search, seconds=seconds)

    def begin(self, finalists: Finalists) -> None:
        """Begin the choice, unless it has begun; all finalists were timed again."""
        if self._budget is not None and self._choice is None:
            most_alone = _FEWER_ALONE if self._by_rule else MOST_ALONE
            self._choice = PrecisionChoice(finalists.alternatives(), self._budget, most_alone)
            self._finalists = finalists
            self._permit()

    @property
    def is_trying(self) -> bool:
        """Whether a network in narrower precisions is to be tried."""
        return self._tries_precisions or self._tries_tensors

    @property
    def may_try(self) -> bool:
        """Whether a network in narrower precisions is, or may yet be, tried."""
        return self.is_trying or (self._budget is not None and self._choice is None)

    @property
    def is_timed(self) -> bool:
        """Whether what is tried is to be timed beside the network in fp32."""
        return self._by_rule and self._tries_precisions and not self.tried

    @property
    def _tries_precisions(self) -> bool:
        return self._choice is not None and self._choice.attempt is not None

    @property
    def _tries_tensors(self) -> bool:
        return bool(self.chosen) and not self._tries_precisions and bool(self._untried)

    @property
    def keeping(self) -> Keeping:
        """Which tensors are kept in bf16 between kernels: what is tried, or was chosen."""
        if self._tries_tensors:
            return self._untried[0]
        return self._keeps if self.chosen else Keeping.NONE

    @property
    def tried(self) -> int:
        """How many networks were tried."""
        return self._choice.tried if self._choice is not None else 0

    @property
    def chosen(self) -> dict[str, str]:
        """The precisions of workloads (digests) that are narrower than fp32."""
        return self._choice.settled if self._choice is not None else {}

    def compiled(self, finalists: Finalists, draft: Packaged | None) -> None:
        """Take in the network that is tried; None if it cannot be compiled."""
        self.begin(finalists)
        self.draft = draft
        if draft is None:
            self.observe(None)

    def observe(self, result: ValidationResult | None) -> None:
        """Take in the validation of the network that was tried; None if it failed."""
        self.draft = None
        error = math.inf if result is None else self._error(result)
        if self._tries_tensors:
            tried = self._untried.pop(0)
            if result is None:  # there is nothing to keep, or it fails
                self._untried = []
            elif self._choice_allows(error) and _is_faster(result):
                self._keeps, self._untried = tried, []
        elif self._choice is not None:
            if self.is_timed and result is not None and result.beside_ms and not _is_faster(result):
                self._choice.give_up()
            else:
                self._choice.observe(error)
            self._permit()

    def _choice_allows(self, error: float) -> bool:
        return self._choice is not None and error <= self._choice.limit

    def _error(self, result: ValidationResult) -> float:
        """The error, or what was lost of the score; infinite if there was nothing to compare with."""
        if self._reference is not None:
            return math.inf if result.score is None else max(0.0, self._reference - result.score)
        return math.inf if result.norm_error is None else result.norm_error

    def settle(self) -> None:
        """Try nothing more: the user wants the result now, or it is packaged."""
        if self._choice is not None and self._tries_precisions:
            self._choice.give_up()
            self._permit()
        self._untried = []

    def hurry(self, at: float) -> list[str]:
        """Try no more alternatives alone once the time of the job is over; return a note for the user if that is so.

        `at` is what it has taken, in seconds.  A network that is compiled already is tried yet.
        """
        if at <= self._seconds or self._choice is None or self.draft is not None or not self._choice.hurry():
            return []
        self._permit()
        return [_HURRIED]

    def refuse(self) -> None:
        """Take in that what was chosen has too large an error on other inputs.

        Tensors that are not rounded anyway are the first to be given up.
        """
        kept, self._keeps, self._untried = self._keeps, Keeping.NONE, [Keeping.EXACT]
        if kept is not Keeping.ALL and self._choice is not None:
            self._choice.refuse()
            self._permit()

    def _permit(self) -> None:
        if self._choice is not None and self._finalists is not None:
            attempt = self._choice.attempt
            self._finalists.permit(self._choice.settled if attempt is None else attempt)


def _is_faster(result: ValidationResult) -> bool:
    """Whether what was tried is faster than what was timed beside it."""
    if len(result.beside_ms) != 2 or not all(result.beside_ms):
        return False
    return paired_ratio(*result.beside_ms) <= _FASTER
