"""`kintune check`: fail if a tuned model is slower than onnxruntime, or computes something else."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from kintune.cli.document import JsonTarget, echo, json_option, write_document
from kintune.cli.options import constant_option
from kintune.cli.run import read_arrays
from kintune.core.model import Combination, ModelRef, spell_shapes
from kintune.core.report import doubts_of
from kintune.core.stage_requests import ValidationContext, ValidationItem
from kintune.core.stage_results import ValidationResult
from kintune.core.verdict import Verdict
from kintune.errors import InputError, UncertainResult
from kintune.files import check_readable
from kintune.hardware.cores import choose_cores
from kintune.hardware.locks import cores_lock
from kintune.models import zoo
from kintune.models.constants import parse_constants
from kintune.models.ref import parse_ref
from kintune.profiling.timing import read_original
from kintune.runtime.executable import Executable
from kintune.runtime.inputs import load_fitting
from kintune.runtime.package import Manifest, read_manifests
from kintune.runtime.requirements import why_none_here
from kintune.terminal.comparison import ratio_of_medians
from kintune.terminal.formatting import milliseconds
from kintune.terminal.summary import extreme_lines
from kintune.validate.baseline_protocol import BaselineContext
from kintune.validate.baselines import KINTUNE, BaselineModel
from kintune.validate.latency_check import BASELINE, LatencyCheck, check_latency
from kintune.validate.validation import validate_executable

__all__ = ["CheckedShapes", "LatencyCheckDocument", "command"]

_SLOWER = 1
_WAY_MS = 0.01  # that a call may take more where onnxruntime runs all of the model


class CheckedShapes(msgspec.Struct, frozen=True):
    """The result for one combination of shapes; `shapes` are by input."""

    shapes: dict[str, tuple[int, ...]]
    latency: LatencyCheck


class LatencyCheckDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `kintune check --json`: `ratio` is the largest of all combinations.

    `at_most` is what was asked for; a result that runs in onnxruntime as a whole may take a few microseconds more, for
    the way there.  `passed` says that no ratio is above what is allowed, as far as the rounds tell; `uncertain` has a
    line on each combination of which they do not tell it.

    `verdict` says whether the outputs are right, by the `bound` that decided; `disagreement` says how they are wrong.
    `not_compared` has a line on each output that could not be compared, and `extreme_inputs` names the sets of extreme
    inputs on which the outputs were compared as well.
    """

    schema_version: int = 1
    executable: str
    model: str
    baseline: str
    threads: int
    at_most: float
    ratio: float
    passed: bool
    combinations: tuple[CheckedShapes, ...]
    uncertain: tuple[str, ...] = ()
    verdict: Verdict = Verdict.NOT_COMPARED
    disagreement: str = ""
    bound: str = ""
    not_compared: tuple[str, ...] = ()
    extreme_inputs: tuple[str, ...] = ()


@click.command("check", short_help="Fail if a tuned model is slower than onnxruntime, or wrong.")
@click.argument("executable", metavar="FILE.kt")
@click.option(
    "--at-most",
    type=float,
    default=1.0,
    show_default=True,
    metavar="RATIO",
    help="The largest allowed ratio to onnxruntime's latency.",
)
@click.option(
    "--model",
    metavar="MODEL",
    help="Its original ONNX file, or zoo:NAME.  [default: NAME.onnx beside FILE.kt]",
)
@constant_option
@click.option("--input", "inputs", metavar="FILE.npz", help="Run on these inputs.  [default: random ones]")
@click.option("--threads", type=click.IntRange(1, 4096), help="Threads of both.  [default: as tuned]")
@click.option("--seconds", type=float, default=10.0, show_default=True, help="How long both are timed together.")
@click.option("--strict", is_flag=True, help="Fail if an output was not compared or the timings do not tell.")
@json_option
def command(
    executable: str,
    at_most: float,
    model: str | None,
    constants: tuple[str, ...],
    inputs: str | None,
    threads: int | None,
    seconds: float,
    strict: bool,
    json_target: JsonTarget,
) -> int:
    """Time the tuned model FILE.kt and onnxruntime on the original in turns, on this machine, and compare the outputs.

    The exit code is 1 if it takes more than --at-most of onnxruntime's latency, or computes something else, which
    fails a job of continuous integration.  Where the timings do not tell, it passes, and says so; --strict fails then.
    A model that runs with several combinations of shapes must pass with each.

    FILE.kt holds machine code: run only what you trust.
    """
    _check_numbers(at_most, seconds)
    manifest = _manifest(executable)
    cores = choose_cores(threads or min(manifest.threads, len(choose_cores(0))))
    ref = _original(executable, manifest, model, constants)
    combinations = manifest.combinations
    if inputs is not None:
        read_arrays(inputs)
        combinations = (combinations[load_fitting(combinations, inputs)[0]],)
    checked = []
    is_all_there = manifest.hybrid is not None and not manifest.hybrid.regions
    slack_ms = _WAY_MS if is_all_there else 0.0
    with cores_lock(cores, lambda holder: click.echo(f"waiting for the cores, held by process {holder}", err=True)):
        for combination in combinations:
            context = _context(executable, ref, combination, inputs, cores)
            found = check_latency(context, seconds / len(combinations), at_most, slack_ms)
            checked.append(CheckedShapes(combination.shapes, found))
        compared = _compare(executable, manifest, ref, inputs, len(cores))
    document = LatencyCheckDocument(
        executable=executable,
        model=manifest.model_name,
        baseline=BASELINE,
        threads=len(cores),
        at_most=at_most,
        ratio=max(each.latency.ratio for each in checked),
        passed=all(each.latency.passed for each in checked) and compared.verdict is not Verdict.WRONG,
        combinations=tuple(checked),
        uncertain=tuple(_uncertain(each, len(checked)) for each in checked if not each.latency.is_known),
        verdict=compared.verdict,
        disagreement=compared.disagreement,
        bound=compared.bound,
        not_compared=compared.not_compared,
        extreme_inputs=compared.extremes,
    )
    write_document(json_target, document)
    for line in _lines(document):
        echo(line, json_target)
    if strict and document.passed and (doubts := doubts_of(msgspec.structs.asdict(document))):
        raise UncertainResult(f"{executable} was checked", doubts)
    return 0 if document.passed else _SLOWER


def _check_numbers(at_most: float, seconds: float) -> None:
    for name, value in (("--at-most", at_most), ("--seconds", seconds)):
        if not 0 < value < float("inf"):
            raise InputError(f"{name} must be more than 0, and is {value:g}")


def _manifest(executable: str) -> Manifest:
    """Returns the manifest of the variant that runs here.

    Raises:
        InputError: it cannot be read, or does not run here.
    """
    check_readable(executable, "FILE.kt")
    manifests = read_manifests(executable)
    if not (can := manifests[0].capabilities).other_runtimes:
        raise InputError(f"{executable}: is for {can.a_device}, where onnxruntime is not timed")
    if (why := why_none_here(manifests)) is not None:
        raise InputError(f"{executable}: {why}")
    if len(manifests) == 1:
        return manifests[0]
    opened = Executable.open(executable)
    opened.close()
    return opened.manifest


def _original(executable: str, manifest: Manifest, model: str | None, constants: tuple[str, ...]) -> ModelRef:
    """Returns the model that onnxruntime runs.

    Raises:
        InputError: it is not named, and none of the executable's name is there.
    """
    fixed = parse_constants(constants)
    if model is not None:
        return parse_ref(model, constants=fixed)
    name = manifest.model_name
    beside = Path(executable).absolute().parent / f"{name}.onnx"
    if os.path.exists(beside):
        return parse_ref(str(beside), constants=fixed)
    if name in zoo.names():
        return parse_ref(f"zoo:{name}", constants=fixed)
    raise InputError(f"{executable}: was built from {name}; name its ONNX file with --model, there is no {beside}")


def _context(
    executable: str, ref: ModelRef, combination: Combination, inputs: str | None, cores: tuple[int, ...]
) -> BaselineContext:
    original = read_original(ref, combination)
    subject = BaselineModel(os.path.abspath(executable), onnx=original.path, constants=original.constants)
    given = None if inputs is None else os.path.abspath(inputs)
    return BaselineContext(KINTUNE, subject, combination.inputs, given, 0, len(cores), cores)


def _compare(executable: str, manifest: Manifest, ref: ModelRef, inputs: str | None, threads: int) -> ValidationResult:
    """Compares the outputs with those of onnxruntime on the original, with each combination of shapes."""
    original = read_original(ref, manifest.combinations[0])
    given = () if inputs is None else (os.path.abspath(inputs),)
    item = ValidationItem(
        os.path.abspath(executable),
        onnx=original.path,
        constants=original.constants,
        inputs=given,
        input_names=tuple(map(os.path.basename, given)),
        timed=False,
        extremes=True,
    )
    allowed = None if manifest.narrow is None else manifest.narrow.max_error
    return validate_executable(ValidationContext(threads, max_error=allowed), item)


def _uncertain(each: CheckedShapes, count: int) -> str:
    interval, with_these = each.latency.interval, f"with {spell_shapes(each.shapes)} " if count > 1 else ""
    return (
        f"{with_these}it takes {interval.low:.3f} to {interval.high:.3f} of {BASELINE}'s latency, and "
        f"{each.latency.allowed:.3g} is allowed: {interval.rounds} rounds in turns do not tell whether it is more"
    )


def _lines(document: LatencyCheckDocument) -> list[str]:
    lines = []
    for each in document.combinations:
        found = each.latency
        with_these = f" with {spell_shapes(each.shapes)}" if len(document.combinations) > 1 else ""
        lines.append(
            f"{document.model}{with_these}: {milliseconds(found.kintune_ms)}, {document.baseline} "
            f"{milliseconds(found.onnxruntime_ms)}: {found.ratio:.3f} of it "
            f"(8 of 10 of {found.rounds} rounds between {found.low:.3f} and {found.high:.3f})"
        )
        if said := ratio_of_medians(found.kintune_ms / max(found.onnxruntime_ms, 1e-9), found.interval):
            lines.append(f"  {said}")
    if any(each.latency.allowed > document.at_most for each in document.combinations):
        lines.append(f"It runs in onnxruntime as a whole, so {_WAY_MS * 1e3:g} us more are allowed for the way there.")
    lines += [f"Uncertain: {line}." for line in document.uncertain]
    if document.verdict is Verdict.WRONG:
        lines.append(f"Its outputs are WRONG: {document.disagreement}.")
    elif document.verdict is Verdict.RIGHT:
        lines.append(f"Its outputs are right{f': {document.bound}' if document.bound else ''}.")
        lines += extreme_lines(document.extreme_inputs)
    lines += [f"Not compared: {line}." for line in document.not_compared]
    if document.verdict is Verdict.WRONG and all(each.latency.passed for each in document.combinations):
        return lines
    verdict = "failed" if not document.passed else "not decided, which passes" if document.uncertain else "passed"
    lines.append(f"At most {document.at_most:g} of {document.baseline}'s latency is allowed: {verdict}.")
    return lines
