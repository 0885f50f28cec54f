"""The narrower precisions of a job's network: which are tried, and which ship."""

from __future__ import annotations

import math

from kintune.core.stage_results import Packaged, ValidationResult
from kintune.tuning.job.finalists import Finalists
from kintune.tuning.job.precision_choice import PrecisionChoice

__all__ = ["Narrowing"]


class Narrowing:
    """The choice of precisions among the finalists; it permits them what is tried, and in the end what was chosen.

    `draft` is the network in the precisions that are tried, once it is compiled.
    """

    def __init__(self, budget: float | None, reference: float | None = None) -> None:
        """`budget` is the error allowed at the network's outputs; None where nothing may be narrower than fp32.

        With a `reference`, the user's score of the original model, it is what may be lost of that.
        """
        self._reference = reference
        self.draft: Packaged | None = None
        self._budget = budget
        self._choice: PrecisionChoice | None = None
        self._finalists: Finalists | None = None

    def begin(self, finalists: Finalists) -> None:
        """Begin the choice, unless it has begun; all finalists were timed again."""
        if self._budget is not None and self._choice is None:
            self._choice, self._finalists = PrecisionChoice(finalists.alternatives(), self._budget), finalists
            self._permit()

    @property
    def is_trying(self) -> bool:
        """Whether a network in narrower precisions is to be tried."""
        return self._choice is not None and self._choice.attempt is not None

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
        """Take in what came of what was tried; None if it failed."""
        self.draft = None
        if self._choice is not None:
            self._choice.observe(math.inf if result is None else self._error(result))
            self._permit()

    def _error(self, result: ValidationResult) -> float:
        """The error, or what was lost of the score; infinite if there was nothing to compare with."""
        if self._reference is not None:
            return math.inf if result.score is None else max(0.0, self._reference - result.score)
        return math.inf if result.norm_error is None else result.norm_error

    def settle(self) -> None:
        """Try nothing more: the user wants the result now, or it is packaged."""
        if self._choice is not None and self.is_trying:
            self._choice.give_up()
            self._permit()

    def refuse(self) -> None:
        """Take in that what was chosen has too large an error on other inputs."""
        if self._choice is not None:
            self._choice.refuse()
            self._permit()

    def _permit(self) -> None:
        if self._choice is not None and self._finalists is not None:
            attempt = self._choice.attempt
            self._finalists.permit(self._choice.settled if attempt is None else attempt)
