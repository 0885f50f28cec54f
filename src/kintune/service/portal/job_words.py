"""A job in words: its headline, what was asked for, its errors, its precision, and how to use the result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from kintune.core.constraints import described, fields_of
from kintune.core.hybrid import Hybrid
from kintune.core.latency_target import UNTUNED_NETWORK, parse_target
from kintune.core.report import BaselineVerdict, FastestBaseline, ProgressReport, RunReport
from kintune.runtime.exports.wheel import package_name
from kintune.service.job_repository import Job
from kintune.service.job_request import JobRequest
from kintune.service.job_status import JobStatus
from kintune.service.portal.shape_words import alternatives_of
from kintune.terminal.comparison import describe_against, describe_share
from kintune.terminal.formatting import counted, milliseconds

__all__ = [
    "LABELS",
    "Snippet",
    "describe_error",
    "describe_precision",
    "describe_request",
    "describe_where",
    "headline",
    "left_out",
    "outlook_of",
    "plain_reason",
    "saved_progress",
    "snippets",
    "spoken",
    "target_ms",
]


LABELS = {name: field.label for name, field in fields_of(JobRequest).items()}
"""What the form of a new job calls each field of a request."""

_SINGULAR = {"constant": "constants", "shape": "shapes"}
_FIELD = re.compile(r"(?:--)?(\w+):? ")
_OPTION = re.compile(r"--([a-z][a-z-]*[a-z])")
_LEAVE_OUT = re.compile(r"leave --.* out")
_WORD = re.compile(r"\A[a-z]+(?= )")
_UNIT = re.compile(r"(?<=\d) (?=[a-z]+\b)")
_UNBROKEN = "\N{NO-BREAK SPACE}"


class Snippet(NamedTuple):
    """Lines to copy, for people with a program in `language`; `needs` says what must be there first."""

    key: str
    language: str
    needs: str
    lines: str


def headline(name: str, job: Job, report: ProgressReport | None) -> str:
    """A job in a line, without what it is compared with: `resnet50: 1.32 ms`; numbers stay with their units."""
    if job.state is JobStatus.DONE:
        said = "done, not timed as a whole" if job.latency_ms is None else milliseconds(job.latency_ms)
    elif report is not None and report.best_ms is not None and not job.state.over:
        said = f"estimated {milliseconds(report.best_ms)}{' without what runs in onnxruntime' * report.partial}"
    else:
        said = job.state.value
    return f"{name}: {_UNIT.sub(_UNBROKEN, said)}"


def spoken(line: str) -> tuple[str, str]:
    """The field that a line about a request begins with, "" if none, and the line in words of the form."""
    found = _FIELD.match(line)
    name = _SINGULAR.get(found[1], found[1]) if found else ""
    if found is None or name not in LABELS:
        return "", plain_reason(line)
    said = plain_reason(line[found.end() :])
    return name, _WORD.sub(lambda first: first[0].capitalize(), said)


def plain_reason(reason: str) -> str:
    """A reason without advice to leave out options of the command line; the others are named as in the form."""
    kept = (clause for clause in reason.split("; ") if not _LEAVE_OUT.fullmatch(clause))
    return _OPTION.sub(_in_form, "; ".join(kept))


def _in_form(option: re.Match[str]) -> str:
    name = option[1].replace("-", "_")
    return LABELS.get(_SINGULAR.get(name, name), name.replace("_", " "))


def saved_progress(job: Job) -> ProgressReport | None:
    """Where a search stood when it was last written down; None where this version cannot read it."""
    try:
        return None if job.progress is None else msgspec.json.decode(job.progress, type=ProgressReport)
    except msgspec.MsgspecError:
        return None  # of another version


def outlook_of(fastest: FastestBaseline | None) -> tuple[str, str]:
    """How the network compares with the fastest runtime, in a clause, and whether that is "good" or "bad"."""
    if fastest is None:
        return "", ""
    if fastest.verdict is None:
        return describe_share(fastest), ""
    kind = {BaselineVerdict.FASTER: "good", BaselineVerdict.SLOWER: "bad"}.get(fastest.verdict, "")
    return describe_against(fastest), kind


def describe_request(wanted: JobRequest) -> str:
    """What was asked for: `until 0.8 of onnxruntime, 30 minutes at most, bf16 with an error of 0.01`."""
    parts = []
    if not wanted.search:
        parts.append("compiled only")
    if wanted.until is not None:
        parts.append(f"until {parse_target(wanted.until).described}")
    if wanted.minutes is not None:
        parts.append(f"{wanted.minutes:g} minute{'' if wanted.minutes == 1 else 's'} at most")
    if wanted.trials is not None:
        parts.append(f"{counted(wanted.trials, 'program')} at most")
    narrow = [f"precision {wanted.precision}"] if wanted.precision != "fp32" else []
    narrow += [f"large weights in {wanted.weights} bits"] if wanted.weights is not None else []
    if narrow:
        most = "" if wanted.max_error is None else f" with an error of at most {wanted.max_error:g}"
        parts.append(f"{' and '.join(narrow)}{most}")
    usual = JobRequest()
    if (wanted.rtol, wanted.atol) != (usual.rtol, usual.atol):
        parts.append(f"outputs within {wanted.rtol:g} relative and {wanted.atol:g} absolute")
    if wanted.calibrate:
        parts.append(f"quantised with {counted(len(wanted.calibrate), 'set')} of inputs")
    if wanted.inputs:
        parts.append(f"outputs compared on {counted(len(wanted.inputs), 'set')} of inputs")
    for name, shape in wanted.shapes.items():
        parts.append(f"{name} is {' or '.join(map(spell, alternatives_of(shape)))}")
    parts += [f"{name} is fixed" for name in wanted.constants]
    return ", ".join([*parts, *described(wanted)]) or "as fast as it gets"


def spell(shape: tuple[int | str, ...]) -> str:
    """A shape as people write it: `1x3x224x224`."""
    return "x".join(map(str, shape)) or "a number"


def describe_error(report: RunReport) -> tuple[str, str]:
    """How far its outputs are from the model's, in words, and "bad" or "warn" unless that is as it should be."""
    error = report.max_rel_error if report.max_rel_error is not None else report.max_abs_error
    if error is None:
        return "its outputs were not compared", "bad" if report.within_tolerance is False else "warn"
    kind = "relative error" if report.max_rel_error is not None else "error"
    size = "no error at all" if error == 0 else f"largest {kind} {_short(error)}"
    if report.within_tolerance is False:
        return f"{size}, NOT within the tolerance", "bad"
    if report.not_compared:
        return f"{size} in what could be compared", "warn"
    if report.norm_error is not None and report.narrow:
        return f"{size} of a single value; what counts is the error of the outputs as a whole", ""
    sets = counted(len(report.extreme_inputs), "set")
    more = f"; right on {sets} of extreme inputs" if report.extreme_inputs else ""
    return f"{size}, within the tolerance{more}", ""


def describe_precision(report: RunReport) -> str:
    """What it computes in; where that is narrower than the model, the error of the outputs as a whole."""
    narrow = report.narrow
    if not narrow:
        return "as the model"
    kinds = sorted(set(narrow.values()))
    said = f"{' and '.join(kinds)} in {len(narrow)} of {counted(len(report.subgraphs), 'operator')}"
    if report.norm_error is None:
        return said
    held_back = f"{counted(report.held_back, 'set')} of inputs held back"
    on = f"on {held_back if report.held_back else 'the inputs of the choice'}"
    allowed = f" of {report.options.max_error:.2g} allowed"
    return f"{said}; error of the outputs {report.norm_error:.2g} of their norm{allowed}, {on}"


def left_out(number: int) -> str:
    """A sentence on operators or calls that a table has no rows for."""
    return "1 faster one is left out." if number == 1 else f"{number} faster ones are left out."


def describe_where(hybrid: Hybrid | None) -> str:
    """What runs where."""
    if hybrid is None:
        return "as compiled kernels, without onnxruntime"
    if not hybrid.regions:
        return f"entirely in onnxruntime ({hybrid.left}): no part can be compiled, or none was faster compiled"
    number = len(hybrid.regions)
    regions = "one region as compiled kernels" if number == 1 else f"{number} regions as compiled kernels"
    if not hybrid.operators:
        return f"{regions}; onnxruntime runs other shapes" if hybrid.other_shapes else regions
    return f"{regions}, the rest in onnxruntime ({hybrid.left})"


def target_ms(job: Job, report: RunReport) -> float | None:
    """The latency that was asked for, where it can be told of the network as a whole."""
    until = job.wanted.until
    if until is None or len(job.wanted.combinations()) > 1:
        return None
    latency = report.latency_ms
    untuned = {} if latency.untuned is None else {UNTUNED_NETWORK: latency.untuned}
    known: Mapping[str, float] = {**latency.rivals, **report.baselines_before_ms, **untuned}
    return parse_target(until).milliseconds(known)


def snippets(name: str, has_onnxruntime_part: bool) -> tuple[Snippet, ...]:
    """How to run a result of this name in Python, in C and in onnxruntime, after the download."""
    package = package_name(name)
    python = (
        "import kintune_runtime\nimport numpy as np\n\n"
        f'with kintune_runtime.open("{name}.kt") as model:\n'
        "    inputs = {each.name: np.ones(each.shape, each.dtype) for each in model.inputs}\n"
        "    for output, array in model.run(inputs).items():\n"
        "        print(output, array.shape)\n"
    )
    wheel = f"python -m pip install {package}-*.whl\npython -c 'import {package}; print({package}.load().inputs)'\n"
    onnx = (
        "import numpy as np\nimport onnxruntime\n\n"
        "options = onnxruntime.SessionOptions()\n"
        f'options.register_custom_ops_library("{name}-onnx/libkintune_onnx.so")\n'
        f'session = onnxruntime.InferenceSession("{name}-onnx/{name}.onnx", options)\n'
        "inputs = {each.name: np.ones(each.shape, np.float32) for each in session.get_inputs()}\n"
        "outputs = session.run(None, inputs)\n"
    )
    c = (
        f"unzip {name}-c.zip && cd {name}-c\n"
        "cc example.c -L. -lkintune '-Wl,-rpath,$ORIGIN' -o example\n./example  # times the model\n"
    )
    found = [
        Snippet("python", "Python", "the file .kt, and kintune-runtime (numpy is all that it needs)", python),
        Snippet("wheel", "Python, from a wheel", "the wheel, which has the runtime inside", wheel),
        Snippet("c", "C and C++", "the archive for C", c),
        Snippet("onnx", "onnxruntime", "the archive for onnxruntime, unpacked", onnx),
    ]
    return tuple(each for each in found if each.key != "c" or not has_onnxruntime_part)


def _short(value: float) -> str:
    """A small number with one digit: `3e-06` is "3e-6"."""
    return re.sub(r"e([+-])0*(\d)", lambda found: f"e{found[1].replace('+', '')}{found[2]}", f"{value:.0e}")
