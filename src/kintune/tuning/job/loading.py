"""Loads the model of a job: as it is, quantised, or partitioned, with what its processor and the user allow.

A program of PyTorch is exported to ONNX first where an option works on ONNX graphs, or the program cannot be imported.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TypeAlias

import msgspec
import tvm

from kintune.compiler.graph.workload import StandaloneWorkload
from kintune.core.capabilities import FOR_INT8
from kintune.core.config import JobSpec
from kintune.core.model import spell_shapes
from kintune.core.stage_results import EXPORTED_FILE, QUANTISED_DATA, QUANTISED_FILE
from kintune.errors import KintuneError, ModelError, OrderError, ShapeError, UnsupportedOperators, UnsupportedValues
from kintune.models.assumed_shapes import assumed, assumes_ranges, narrower
from kintune.models.onnx_path import onnx_path_of
from kintune.models.ref import EXPORTED
from kintune.models.torch_to_onnx import exported_to_onnx, exporter
from kintune.tuning.job.job_files import JobFiles
from kintune.tuning.job.networks import Networks, load_networks
from kintune.tuning.job.partitioning import RefusedByOnnxRuntime, can_partition, load_partitioned
from kintune.tuning.job.quantised_file import QuantisedModel
from kintune.tuning.job.quantising import quantise
from kintune.tuning.job.quantising_weights import quantise_weights

__all__ = ["load_model", "load_quantised", "may_run_in_onnxruntime", "sums_of_bytes"]

_log = logging.getLogger(__name__)

_Loaded: TypeAlias = "tuple[Networks, tuple[str, ...], QuantisedModel | None]"
"""The networks to tune, the nodes handed over to onnxruntime, and the quantised model or None."""


def load_model(spec: JobSpec, target: tvm.target.Target) -> tuple[JobSpec, _Loaded]:
    """Returns the specification with shapes for all inputs, and the networks, as `load_quantised` does.

    Extents that nobody names become ranges.  Where the network is not the same for all extents of these, fewer
    extents are open; in the end none is, and other shapes run in onnxruntime if that may be.  So it is where a first
    result has failed, and this one is made conservatively.

    Raises:
        OrderError: as for `load_quantised`.
        ModelError: the model cannot be used.
    """
    calibrated = bool(spec.calibration_files)
    if not assumes_ranges(spec.model, spec.options, spec.device_type.capabilities, calibrated=calibrated):
        return spec, load_quantised(spec, target)
    chosen = assumed(spec.model)
    if not chosen.assumed:
        return spec, load_quantised(spec, target)
    notes: list[str] = []
    unsupported = False  # for whatever shapes
    for ref in (chosen, *narrower(chosen)):
        shapes = spell_shapes({name: ref.any_shapes[name] for name in ref.assumed})
        if ref.ranges and (spec.conservative or unsupported):
            notes = notes or [f"not for {shapes}: a result for these was wrong, or could not be compiled"]
            continue
        tried = msgspec.structs.replace(spec, model=ref)
        if not ref.ranges and may_run_in_onnxruntime(spec):
            options = msgspec.structs.replace(spec.options, other_shapes="onnxruntime")
            tried = msgspec.structs.replace(tried, options=options)
        elif spec.handed_over:
            continue
        try:
            networks, handed_over, made = load_quantised(tried, target)
        except ModelError as error:
            unsupported = unsupported or isinstance(error, UnsupportedOperators)
            _log.info(f"not with {shapes}: {error}")
            why = _said(error, spec).partition("; leave out")[0]
            if not any(note.endswith(f": {why}") for note in notes):
                notes.append(f"not for {shapes}: {why}")
            continue
        note = f"the model's file leaves shapes open, for which Kintune chose {shapes}; --shape names others"
        if tried.options.other_shapes != spec.options.other_shapes:
            note += "; onnxruntime runs inputs of any other shape"
        return tried, (networks._replace(notes=(note, *notes, *networks.notes)), handed_over, made)
    raise ShapeError(f"{spec.model.source}: name shapes with --shape, since those that were chosen fail: {notes[-1]}")


def load_quantised(spec: JobSpec, target: tvm.target.Target) -> _Loaded:
    """Returns the networks to tune, the nodes handed over to onnxruntime, and the quantised model or None.

    The model is quantised where the user has asked for it and the processor can use it.  The networks' `onnx_path`
    stays that of the user's model, which other runtimes run.

    Raises:
        OrderError: the model is a program of PyTorch, and PyTorch, or its exporter to ONNX, is not installed.
        ModelError: the model cannot be used.
    """
    if spec.model.kind != EXPORTED:
        return _load_file(spec, target)
    options = spec.options
    if spec.calibration_files or options.weights or options.other_shapes == "onnxruntime" or spec.handed_over:
        return _load_by_onnx(spec, target, "an option works on ONNX graphs")
    try:
        return _load_file(spec, target)
    except ShapeError:
        raise
    except ModelError as error:
        try:
            return _load_by_onnx(spec, target, f"as it is, {_said(error, spec)}")
        except (ModelError, OrderError) as refused:
            _log.info(f"not loaded by way of ONNX either: {refused}")
            if str(refused) == str(error):
                raise
            raise ModelError(f"{error}; {_said(refused, spec)}") from refused


def _said(error: KintuneError, spec: JobSpec) -> str:
    """What an error says, without the model's name."""
    return str(error).removeprefix(f"{spec.model.source}: ")


def _load_by_onnx(spec: JobSpec, target: tvm.target.Target, why: str) -> _Loaded:
    """Has a program of PyTorch exported to an ONNX file beside the job's output, and loads that."""
    program = spec.model.source
    ref = exported_to_onnx(spec.model, JobFiles.place_of(spec.output), EXPORTED_FILE)
    for suffix in (QUANTISED_DATA, ""):
        JobFiles.hand_over(f"{JobFiles.named_beside(ref.source, spec.output)}{suffix}")
    try:
        networks, handed_over, made = _load_file(msgspec.structs.replace(spec, model=ref), target)
    except KintuneError as error:
        names = {ref.source: program, os.path.basename(ref.source): os.path.basename(program)}
        for here, there in names.items():
            error.args = tuple(str(each).replace(here, f"{there}, as ONNX") for each in error.args)
        raise
    note = f"the result is made of the program as ONNX, to which {exporter()} has exported it: {why}"
    networks = networks._replace(exported_path=program, exporter=exporter(), notes=(note, *networks.notes))
    return networks, handed_over, made


def _load_file(spec: JobSpec, target: tvm.target.Target) -> _Loaded:
    """Loads an ONNX file, or imports a program of PyTorch as it is."""
    if not spec.calibration_files and not spec.options.weights:
        return *_load(spec, target), None
    if spec.calibration_files and not FOR_INT8.intersection(spec.device_type.isa):
        networks, handed_over = _load(spec, target)
        return networks._replace(notes=(*networks.notes, _NO_INT8)), handed_over, None
    placed = msgspec.structs.replace(spec, output=JobFiles.place_of(spec.output))
    made = quantise(placed) if spec.calibration_files else quantise_weights(placed)
    if made.quantised.int8:
        JobFiles.hand_over(f"{spec.output}{QUANTISED_FILE}")
    networks, handed_over = _load(msgspec.structs.replace(spec, model=made.ref), target)
    return networks._replace(onnx_path=str(onnx_path_of(spec.model))), handed_over, made


_NO_INT8 = (
    "The model was not quantised: this processor has no instructions for products of bytes (avx512_vnni, avx_vnni, "
    "asimddp or i8mm)."
)


def sums_of_bytes(workloads: Sequence[StandaloneWorkload]) -> tuple[str, ...]:
    """The workloads (digests) that sum products of bytes."""
    return tuple(workload.digest for workload in workloads if workload.sums_bytes)


def _load(spec: JobSpec, target: tvm.target.Target) -> tuple[Networks, tuple[str, ...]]:
    """The networks to tune, and the nodes that had to be handed over to onnxruntime for it.

    Raises:
        ModelError: the model cannot be used.
    """
    if spec.handed_over:
        conservative = spec.conservative
        networks = load_partitioned(spec.model, target, handed_over=spec.handed_over, conservative=conservative)
        return networks, spec.handed_over
    try:
        return load_networks(spec.model, target, conservative=spec.conservative), ()
    except ShapeError:
        raise
    except ModelError as error:
        if not (may_run_in_onnxruntime(spec) and can_partition(spec.model)):
            raise
        _log.info(f"not compiled as a whole: {error}")
        try:
            return load_partitioned(spec.model, target, conservative=spec.conservative), ()
        except ModelError as refused:
            _log.info(f"not compiled in parts either: {refused}")
            if isinstance(error, UnsupportedValues):  # then it is up to onnxruntime
                raise
            if type(error) is ModelError and isinstance(refused, RefusedByOnnxRuntime):  # a model with an error
                raise ModelError(f"{error}; onnxruntime does not take the model either: {refused.reason}") from refused
            raise error from refused


def may_run_in_onnxruntime(spec: JobSpec) -> bool:
    """Whether something may run in onnxruntime: the user allows it, and the result is for a CPU like this one."""
    return spec.options.onnxruntime and spec.device_type.capabilities.other_runtimes
