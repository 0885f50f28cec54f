"""Validates a tuned network: checks that it computes what the model computes, and times it beside baselines.

It runs in the device worker, which stays idle meanwhile; every runtime has a process of its own.  See
docs/design/validation.md.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from kintune.core.stage_requests import ValidationContext, ValidationItem
from kintune.core.stage_results import ValidationResult
from kintune.core.verdict import Verdict
from kintune.errors import NumericsError
from kintune.models.constants import located
from kintune.runtime.inputs import load_fitting
from kintune.runtime.package import Manifest, read_manifest
from kintune.validate.baseline_process import BaselineProcess
from kintune.validate.baselines import FLUSHING
from kintune.validate.call_timing import time_calls
from kintune.validate.combined_results import combined
from kintune.validate.extreme_check import ExtremeCheck, ExtremeDifference
from kintune.validate.interleaved import QUICK_SECONDS, InterleavedTimes, time_interleaved
from kintune.validate.numerics import NOISE_FACTOR, NOTHING_COMPARED, Difference, ProgramComparison, judge_score
from kintune.validate.result_choice import ResultChoice
from kintune.validate.validation_run import REFERENCES, TUNED, UNTUNED, ValidationRun
from kintune.wire.staging import locate

__all__ = ["TUNED", "UNTUNED", "located_item", "validate", "validate_executable"]

_log = logging.getLogger(__name__)

_ON_CPU = "runs on the CPU here: its numbers are compared, its speed is not"


def validate(context: bytes, payload: bytes, board: str = "") -> bytes:
    """Handles one item of a PROVE stage: takes an encoded `ValidationContext` and `ValidationItem`, returns an encoded
    `ValidationResult`.

    With a `board`, the address of an RPC server, the network runs there.

    Raises:
        InputError: a file cannot be used.
        NumericsError: the compiled network does not run at all.
    """
    conditions = msgspec.msgpack.decode(context, type=ValidationContext)
    item = msgspec.msgpack.decode(payload, type=ValidationItem)
    return msgspec.msgpack.encode(validate_executable(conditions, located_item(item), board=board))


def validate_executable(
    conditions: ValidationContext, item: ValidationItem, clock: Callable[[], float] = time.monotonic, board: str = ""
) -> ValidationResult:
    """Validates one executable with each combination of shapes.  Baselines that fail are recorded in `skipped`.

    Raises:
        InputError: a file cannot be used.
        NumericsError: the compiled network does not run.
    """
    manifest = read_manifest(item.tuned)
    combinations = manifest.combinations
    fitting = [load_fitting(combinations, path)[0] for path in item.inputs]
    results: list[ValidationResult] = []
    for number in range(len(combinations)):
        own = [at for at, fits in enumerate(fitting) if fits == number]
        inputs = tuple(item.inputs[at] for at in own)
        names = tuple(item.input_names[at] for at in own if item.input_names)
        shaped = msgspec.structs.replace(item, inputs=inputs, input_names=names)
        scored = results[0].score if results else None  # the score is that of all combinations together
        results.append(_validate_combination(conditions, shaped, manifest, number, clock, board, scored))
    return results[0] if len(results) == 1 else combined([each.shapes for each in combinations], results)


def _hint(item: ValidationItem, manifest: Manifest) -> str:
    """Advice for a network that fails on drawn strings or integers, which may be no valid inputs; else empty."""
    drawn = [tensor.name for tensor in manifest.inputs if tensor.dtype.startswith(("string", "int", "uint"))]
    if item.inputs or not drawn:
        return ""
    return f" with values drawn for {', '.join(drawn)} (give values that the model takes, with --input or --constant)"


def _validate_combination(
    conditions: ValidationContext,
    item: ValidationItem,
    manifest: Manifest,
    number: int,
    clock: Callable[[], float],
    board: str,
    scored: float | None,
) -> ValidationResult:
    """Validates one executable with one combination of shapes, on the item's inputs.

    The user's score is computed unless it is known already.
    """
    lost_ms: tuple[float, ...] = ()
    with tempfile.TemporaryDirectory(prefix="kintune-proof-") as directory, ExitStack() as processes:
        run = ValidationRun(conditions, item, manifest, Path(directory), board, number)
        if item.only_alone:
            return _alone_result(item, run.compare_each_program())
        latency = run.run_untuned() if item.timed else {}
        choice = ResultChoice(run, clock)
        kept = choice.choose_regions()
        thread_counts = choice.choose_threads()
        region_threads = choice.choose_region_threads()
        tuned, *references = run.start_all(run.compared, processes)
        if tuned is None:
            raise NumericsError(f"the compiled network does not run{_hint(item, manifest)}: {run.skipped[TUNED]}")
        ran, changed = run.flush_references([each for each in references if each is not None], processes)
        extremes = ExtremeCheck(run)
        extremes.start(tuned, ran)  # first, since noise changes a reference's weights for good
        difference, compared = run.compare(ran)
        extreme = extremes.compare(difference)
        run.run_again([tuned, *ran])
        for reference in ran:
            reference.close()
        look_closer = _basis(difference) or difference.doubtful
        alone = run.compare_each_program() if look_closer else ProgramComparison()
        difference = _with_wrong_program(difference, alone, item)
        reached = scored
        if run.item.metric is not None:
            reached = run.score(run.item.metric) if scored is None else scored
            difference = judge_score(difference, run.item.metric, reached)
        difference = difference._replace(disagreement=difference.disagreement or extreme.disagreement)
        if item.timed and (run.given_draws or TUNED in extremes.ended):
            tuned.close()
            if (again := run.start(TUNED, processes)) is None:
                raise NumericsError(f"the compiled network does not run: {run.skipped[TUNED]}")
            tuned = again
        beside = run.time_beside(tuned, clock)
        interleaved = InterleavedTimes({}, {}, {})
        if item.timed:
            begun = clock()
            latency, interleaved, running = _time_interleaved(run, tuned, latency, processes, clock)
            interleaved = choice.look_again(interleaved, running, clock() - begun)
            lost_ms = interleaved.latency_ms.get(TUNED, ())
            if choice.should_hand_over(interleaved.rounds_ms) and choice.hand_over_all():
                kept, region_threads = (), ()
                interleaved, handed_over = _time_handed_over(run, interleaved, clock)
                difference, extreme = handed_over or difference, ExtremeDifference()
            else:
                lost_ms = ()
        calls = time_calls(run) if item.timed else None
    judged = difference.verdict is not Verdict.NOT_COMPARED
    if TUNED in interleaved.dropped:
        raise NumericsError(f"the compiled network stopped running: {interleaved.dropped[TUNED]}")
    return ValidationResult(
        latency_ms={**latency, **interleaved.latency_ms},
        rounds_ms=interleaved.rounds_ms,
        max_abs_error=difference.absolute if judged else None,
        max_rel_error=difference.relative if judged else None,
        verdict=difference.verdict,
        compared_with=compared,
        skipped={**run.skipped, **interleaved.dropped},
        disagreement=difference.disagreement,
        noise=difference.noise,
        basis=_basis(difference),
        **_alone_fields(item, alone),
        thread_counts=(thread_counts,) if thread_counts and not lost_ms else (),
        regions=kept,
        lost_ms=lost_ms,
        norm_error=difference.norm if judged else None,
        score=reached,
        region_threads=region_threads,
        fixed=choice.is_fixed,
        beside_ms=beside,
        calls=calls,
        notes=(changed,) if changed else (),
        not_compared=tuple(difference.not_compared.values()) if compared else (_without_reference(run),),
        bound=_bound(conditions, item, difference),
        doubtful=difference.doubtful,
        once_ms=run.once_ms,
        extremes=extreme.compared,
        wrong_on=extreme.wrong_on,
    )


def _alone_result(item: ValidationItem, alone: ProgramComparison) -> ValidationResult:
    """The result of nothing but the comparison of single subgraphs."""
    difference = _with_wrong_program(NOTHING_COMPARED, alone, item)
    return ValidationResult(
        {}, None, None, difference.verdict, (), {}, difference.disagreement, **_alone_fields(item, alone)
    )


def _alone_fields(item: ValidationItem, alone: ProgramComparison) -> dict[str, Any]:
    """What a result says of single subgraphs; those that were left out are listed in the log."""
    if alone.left_out:
        _log.info(f"not compared by themselves: {', '.join(item.titles.get(w, w) for w in alone.left_out)}")
    return {
        "alone": tuple(item.titles.get(workload, workload) for workload in alone.compared),
        "not_alone": {item.titles.get(workload, workload): why for workload, why in alone.left_out.items()},
        "wrong_alone": dict(alone.wrong),
    }


def _without_reference(run: ValidationRun) -> str:
    """Why no output was compared, in a line."""
    tried = "; ".join(f"{name}: {why}" for name, why in run.skipped.items() if name in (UNTUNED, *REFERENCES))
    return f"its outputs: no other runtime has run the model{f' ({tried})' if tried else ''}"


def _bound(conditions: ValidationContext, item: ValidationItem, difference: Difference) -> str:
    """The bound that decided, in a line; empty where the result says it elsewhere, or nothing was compared."""
    judged_by_norm = item.metric is not None or conditions.max_error is not None
    return "" if judged_by_norm or difference.verdict is not Verdict.RIGHT else difference.bound.text


def _basis(difference: Difference) -> str:
    """Explains in one line what was allowed beyond the tolerances; empty when nothing was."""
    if difference.noise is None or difference.verdict is not Verdict.RIGHT or difference.doubtful:
        return ""
    return (
        f"nearer than {NOISE_FACTOR:g} times what rounding alone does to this model: a few units in the last place of"
        f" inputs and weights move its outputs by {difference.noise:.2g} of their deviation"
    )


def _with_wrong_program(difference: Difference, alone: ProgramComparison, item: ValidationItem) -> Difference:
    """Returns the difference; where a subgraph is wrong by itself, the first of them is its disagreement."""
    for workload, how in alone.wrong.items():
        title = item.titles.get(workload, workload)
        return difference._replace(disagreement=f"{title} by itself, on what it gets in the network: {how}")
    return difference


def _time_interleaved(
    run: ValidationRun,
    tuned: BaselineProcess,
    latency: dict[str, tuple[float, ...]],
    processes: ExitStack,
    clock: Callable[[], float],
) -> tuple[dict[str, tuple[float, ...]], InterleavedTimes, list[BaselineProcess]]:
    """Times the tuned network, a quick untuned one and the baselines in turns.

    Returns also the latency of the untuned network that stays, which is empty when that is timed again, and the
    processes.
    """
    ours = [tuned]
    if not run.board and latency and latency[UNTUNED][0] < QUICK_SECONDS * 1e3:
        latency = {}
        if (untuned := run.start(UNTUNED, processes)) is not None:
            ours.append(untuned)
    baselines = [baseline for name in run.item.compare if (baseline := run.start(name, processes)) is not None]
    plain = next((each for each in baselines if each.name == "onnxruntime"), None)
    if plain is not None and (flushing := run.flushing_rival(plain, processes)) is not None:
        baselines.append(flushing)
    if not run.capabilities.other_runtimes:
        run.skip_all(baselines, _ON_CPU)
        baselines = []
    running = [*ours, *baselines]
    return latency, time_interleaved(running, run.conditions, clock), running


def _time_handed_over(
    run: ValidationRun, before: InterleavedTimes, clock: Callable[[], float]
) -> tuple[InterleavedTimes, Difference | None]:
    """Times the result that runs in onnxruntime altogether beside the others, in place of the one that was slower.

    Returns also the difference of its outputs from onnxruntime's, if both run.
    """
    with ExitStack() as processes:
        flushing = FLUSHING["onnxruntime"]
        names = [TUNED, *(name for name in (*run.item.compare, flushing) if name in before.latency_ms)]
        if run.has_flushed and flushing not in names:
            names.append(flushing)
        running = [process for name in names if (process := run.start(name, processes)) is not None]
        ran = {process.name for process in running}
        reference = flushing if flushing in ran else "onnxruntime"
        difference = run.compare_first(reference) if {TUNED, reference} <= ran and not run.given_draws else None
        found = time_interleaved(running, run.conditions, clock)
    both = InterleavedTimes(
        {**before.latency_ms, **found.latency_ms}, {**before.dropped, **found.dropped}, found.rounds_ms
    )
    return both, difference


def located_item(item: ValidationItem) -> ValidationItem:
    """Returns the item with the paths at which this process finds its files."""

    def found(path: str | None) -> str | None:
        return None if path is None else locate(path)

    return msgspec.structs.replace(
        item,
        tuned=locate(item.tuned),
        untuned=found(item.untuned),
        beside=found(item.beside),
        each_alone=tuple(map(found, item.each_alone)),
        onnx=found(item.onnx),
        exported=found(item.exported),
        inputs=tuple(map(locate, item.inputs)),
        constants={name: located(constant, locate) for name, constant in item.constants.items()},
    )
