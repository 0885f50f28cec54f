"""The reports of runs as files: beside each executable, or where `--json` says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kintune.cli.document import JsonTarget, write_document
from kintune.core.config import TuneConfig
from kintune.core.failure_report import FailureReport, report_path
from kintune.core.report import CampaignReport, FailedRun, ModelIdentity, RunReport
from kintune.core.version import __version__
from kintune.errors import InputError, KintuneError
from kintune.tuning.front.request import options_of

if TYPE_CHECKING:
    from kintune import api

__all__ = ["RunReports"]

_Ending: TypeAlias = RunReport | KintuneError


class RunReports:
    """Writes the reports of the runs of some models, of those that failed as well.

    With `--json FILE` there is one document there: the report, or of several models the reports of all.  Without, there
    is one for each model beside its executable.
    """

    def __init__(self, models: Sequence[api.Model], config: TuneConfig, json_target: JsonTarget, policy: str) -> None:
        self._models = models
        self._config = config
        self._json_target = json_target
        self._policy = policy
        self._failures: dict[int, FailureReport] = {}

    def failed(self, number: int, report: FailureReport) -> None:
        """Take the report of a run without a result."""
        self._failures[number] = report

    def written(self, number: int) -> Path | None:
        """Where the report of a model lies by itself; None with `--json`."""
        return None if self._json_target else report_path(str(self._outputs()[number]))

    def write(self, endings: Sequence[_Ending]) -> InputError | None:
        """Write the reports of all models; returns an error instead of raising it, since results are printed first."""
        try:
            if not self._json_target:
                for number, ending in enumerate(endings):
                    write_document(str(self.written(number)), self._report(number, ending))
            elif len(endings) == 1:
                write_document(self._json_target, self._report(0, endings[0]))
            else:
                write_document(self._json_target, self._campaign(endings))
        except InputError as error:
            return error
        return None

    def _report(self, number: int, ending: _Ending) -> RunReport | FailureReport:
        if isinstance(ending, RunReport):
            return ending
        told = self._failures.get(number)
        if told is not None:
            return told
        return FailureReport(
            model=ModelIdentity(self._models[number].name, ""),
            target=self._config.target,
            options=options_of(self._config),
            versions={"kintune": __version__},
            error=type(ending).__name__,
            cause=" ".join(str(ending).split()),
            output=str(self._outputs()[number]),
            log=self._config.log,
        )

    def _campaign(self, endings: Sequence[_Ending]) -> CampaignReport:
        return CampaignReport(
            policy=self._policy,
            runs=tuple(ending for ending in endings if isinstance(ending, RunReport)),
            failed=tuple(
                FailedRun(model.name, type(ending).__name__, str(ending))
                for model, ending in zip(self._models, endings, strict=True)
                if isinstance(ending, KintuneError)
            ),
        )

    def _outputs(self) -> list[Path]:
        from kintune.api import outputs_of

        return [Path(output).absolute() for output in outputs_of(self._models, self._config.output)]
