"""The report of a tuning run without a result: the counterpart of `RunReport`, and the schema of both."""

from __future__ import annotations

import os
from inspect import cleandoc
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from kintune.core.config import Options
from kintune.core.report import REPORT_SCHEMA, CampaignReport, ModelIdentity, RunReport, SubgraphReport

__all__ = ["AnyReport", "FailureReport", "decode_report", "remove_report", "report_path", "report_schema"]


_SUFFIX = ".kt"


class FailureReport(msgspec.Struct, frozen=True, kw_only=True):
    """A tuning run of which nothing came: why, and what it had measured until then.

    `error` is the class of the error and `cause` its line; `story` has what happened to the job at last.  `trials` were
    measured in `seconds` of active run time, in all sessions of the run.  `subgraphs` are those that were found,
    with the best program of each; their families are left out.  A run that could not begin has no `run_id`.
    """

    schema_version: int = REPORT_SCHEMA
    run_id: str = ""
    model: ModelIdentity
    target: str
    options: Options
    seeds: dict[str, int] = {}
    versions: dict[str, str] = {}
    error: str
    cause: str
    story: tuple[str, ...] = ()
    trials: int = 0
    seconds: float = 0.0
    subgraphs: tuple[SubgraphReport, ...] = ()
    output: str
    log: str | None = None
    resumed: bool = False

    @property
    def failures(self) -> dict[str, int]:
        """Failed candidates of all subgraphs, by cause, most frequent first."""
        counts: dict[str, int] = {}
        for subgraph in self.subgraphs:
            for cause, count in subgraph.failures.items():
                counts[cause] = counts.get(cause, 0) + count
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


AnyReport: TypeAlias = RunReport | FailureReport | CampaignReport


class _Kind(msgspec.Struct, frozen=True):
    """The keys by which the kinds of documents differ."""

    policy: str | None = None
    error: str | None = None


def report_path(output: str) -> Path:
    """Returns where the report of a run lies whose executable is written to `output`: `MODEL.report.json`."""
    path = Path(output)
    return path.with_name(f"{path.stem if path.suffix == _SUFFIX else path.name}.report.json")


def remove_report(output: str | os.PathLike[str]) -> None:
    """Remove the report that lies beside an executable, since another executable has replaced that one.

    Raises:
        OSError: the disk refuses.
    """
    report_path(os.fspath(output)).unlink(missing_ok=True)


def decode_report(content: bytes) -> AnyReport:
    """Returns the report of a JSON document.

    Raises:
        msgspec.DecodeError: it is no JSON document, or not one of a report.
    """
    kind = msgspec.json.decode(content, type=_Kind)
    if kind.policy is not None:
        return msgspec.json.decode(content, type=CampaignReport)
    if kind.error is not None:
        return msgspec.json.decode(content, type=FailureReport)
    return msgspec.json.decode(content, type=RunReport)


def report_schema() -> dict[str, Any]:
    """Returns the JSON schema of the reports that `kintune tune` writes."""
    kinds = (RunReport, FailureReport, CampaignReport)
    references, definitions = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Report of kintune tune",
        "description": "A finished run, a run of which nothing came, or several models that were tuned at once.",
        "oneOf": list(references),
        "$defs": definitions,
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(schema))  # without tuples
    for each in plain["$defs"].values():
        if "description" in each:
            each["description"] = cleandoc(each["description"])  # as Python itself does from 3.13 on
    return plain
