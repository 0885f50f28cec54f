"""The request of a tuning run, and the key that identifies its run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kintune.core.candidate import FULL_PRECISION, digest_of
from kintune.core.capabilities import Capabilities, capabilities_named
from kintune.core.config import DEFAULT_TRIALS, Metric, Options, Strategy, TuneConfig, named_files, refuse_random_sets
from kintune.core.constraints import check_fields
from kintune.core.latency_target import COMPARED, COMPARED_NARROW, FASTEST, parse_target
from kintune.core.measurement_protocol import OPERANDS, MeasurementProtocol
from kintune.core.model import ModelRef, spell_shapes
from kintune.core.narrow_options import check_narrow_options
from kintune.core.version import ELEMENTARY, FEATURES, __version__
from kintune.errors import InputError, ModelError
from kintune.files import check_writable, readable_files, sha256_of
from kintune.hardware.software import TVM_VERSION
from kintune.models.combinations import refuse_beside_ranges
from kintune.models.constants import describe_constants
from kintune.models.ref import EXPORTED, ONNX, ZOO
from kintune.wire.confinement import require_isolation

__all__ = [
    "TuneRequest",
    "check_until",
    "options_of",
    "refuse_several_shapes",
    "request_of",
    "run_key",
    "weights_beside",
]


class TuneRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Tune `model` for `target` with `threads` threads (None: all of the device's cores) and write it to `output`.

    `device` is "cpu" (all physical cores, on which nothing else runs while they measure), a set of cores such as
    "cpu:1", or a GPU such as "cuda:0".  `records` is the location of the records (None: the user's own).  `inputs` are
    `.npz` files, a set of inputs each, for the proof; so are those of `calibration`, with which the model is quantised,
    and which serve for the proof where there are no others.  `log` is the file for details (None: one in the user's log
    directory).  `fresh` ignores unfinished runs and what is known.  Of several models that are tuned at once, one of
    `priority` 2 gets twice as much of scarce resources as one of priority 1.  `digests` are the SHA-256 digests of
    files that are named here, by path, as far as they are known.  With `isolate`, whatever reads the model, compiles it
    or runs what was compiled is confined (`kintune.wire.confinement`).  The model's weights lie `beside` it in these
    files, with the digest `external` ("": there are none); None where that is not known yet.
    """

    model: ModelRef
    target: str = "native"
    threads: int | None = None
    device: str = "cpu"
    options: Options = Options(trials=1000)
    records: str | None = None
    output: str
    fresh: bool = False
    inputs: tuple[str, ...] = ()
    calibration: tuple[str, ...] = ()
    log: str | None = None
    priority: float = 1.0
    digests: Mapping[str, str] = {}
    isolate: bool = False
    beside: tuple[str, ...] | None = None
    external: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the files that are read for it, as far as they are known."""
        return named_files(self.model, self.beside or (), self.inputs or self.calibration, self.calibration)


def request_of(model: ModelRef, config: TuneConfig, *, search: bool = True) -> TuneRequest:
    """Return the request to tune `model` as `config` says, or, without `search`, to compile it.

    Raises:
        InputError: a value is out of its limits, or a file that is named cannot be used.
    """
    check_fields(config)
    refuse_random_sets(config, is_given=(config.inputs, config.calibrate) != (None, None))
    can = _capabilities(config)
    if config.until is not None:
        check_until(config.until, model, _compared(config), "" if can.other_runtimes else can.a_device)
    refuse_several_shapes(model, can)
    if config.other_shapes == "onnxruntime":
        _check_other_shapes(model, config)
    if model.ranges:
        quantises = config.calibrate is not None or bool(config.weights)
        refuse_beside_ranges(quantises=quantises, other_shapes=config.other_shapes)
    _check_precision(config, model)
    if config.isolate:
        _check_isolation(config, model)
    inputs = () if config.inputs is None else readable_files(config.inputs, ".npz", "the inputs")
    calibration = () if config.calibrate is None else readable_files(config.calibrate, ".npz", "the calibration files")
    more = {
        "model": model,
        "options": options_of(config, search=search, metric=_metric(config, model)),
        "output": str(check_writable(config.output or f"{model.name}.kt", "the output")),
        "inputs": tuple(map(str, inputs)),
        "calibration": tuple(map(str, calibration)),
        "log": None if config.log is None else str(check_writable(config.log, "the log", stream=True)),
    }
    same = {name: getattr(config, name) for name in config.__struct_fields__ if name in TuneRequest.__struct_fields__}
    return TuneRequest(**{**same, **more})


def _check_isolation(config: TuneConfig, model: ModelRef) -> None:
    """Check that the processes of a run can be confined.

    Raises:
        InputError: they cannot, for this model or device.
        OrderError: this machine lacks what it takes.
    """
    if not _capabilities(config).confined:
        raise InputError("isolate is for CPUs, since a GPU's driver needs files of the system; leave it out")
    if model.kind == ZOO:
        raise InputError(f"isolate is for models in files; zoo:{model.source} is Kintune's own, so leave it out")
    if config.metric is not None:
        raise InputError("isolate and metric do not go together: a metric is a program of yours that reads your data")
    require_isolation()


def refuse_several_shapes(model: ModelRef, device: Capabilities) -> None:
    """Refuse several combinations of shapes, and ranges, for a device whose results have a single one.

    Raises:
        InputError: the model has several.
    """
    if (model.more_shapes or model.ranges) and not device.several_shapes:
        raise InputError(
            f"{model.name}: several shapes in one result are for this machine's CPU and for others' of its kind; for "
            f"{device.a_device}, tune {spell_shapes(model.shapes)} and the others one by one"
        )


def check_until(until: str, model: ModelRef, compare: Sequence[str], device: str = "") -> None:
    """Check that the target of a search can be told, once the runtimes in `compare` were timed on this model.

    On a `device` that is named, no other runtime is timed.

    Raises:
        InputError: it does not read as a target, or its baseline is not timed: the line says why.
    """
    from kintune.validate.baselines import BaselineModel, make_baseline  # these import numpy

    target = parse_target(until)
    if not target.needs_baselines:
        return
    if device:
        raise InputError(
            f"until {until!r}: other runtimes are not timed on {device}; give milliseconds, or untuned*0.1"
        )
    if target.baseline != FASTEST and target.baseline not in compare:
        raise InputError(
            f"until {until!r}: {target.baseline} is not timed here; there is {', '.join(compare) or 'none'}"
        )
    exported = model.kind == EXPORTED
    files = BaselineModel(exported=model.source) if exported else BaselineModel(onnx=model.source)
    names = compare if target.baseline == FASTEST else [target.baseline]
    reasons = {name: make_baseline(name).unavailable(files) for name in names}
    if all(reasons.values()):
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items()) or "none is to be compared"
        raise InputError(f"until {until!r} cannot be determined for {model.name}: {why}")


def _check_precision(config: TuneConfig, model: ModelRef) -> None:
    """Check that options about precision go together, and with the device and the model.

    Raises:
        InputError: they do not; the line says why.
        OrderError: a program of PyTorch has to be exported to ONNX for them, and what that takes is not installed.
    """
    if not _capabilities(config).narrow:
        if config.precision != "fp32":
            raise InputError(f"precision {config.precision}: narrower precisions are for CPUs; leave it out")
        if config.weights is not None:
            raise InputError(f"weights of {config.weights} bits are for CPUs; leave weights out")
    check_narrow_options(
        config.precision,
        weights=config.weights,
        max_error=config.max_error,
        calibrated=config.calibrate is not None,
        scored=config.metric is not None,
        dashes="--",
        how_to_calibrate="give --calibrate FILE.npz or a directory of such files",
    )
    asked = {"--weights": config.weights is not None, "--calibrate": config.calibrate is not None}
    asked["--other-shapes"] = config.other_shapes == "onnxruntime"
    if model.kind == EXPORTED and any(asked.values()):
        from kintune.models.torch_export import require_exporter  # it imports numpy

        require_exporter(f"{model.name}: {next(option for option in asked if asked[option])}")


def _compared(config: TuneConfig) -> tuple[str, ...]:
    """The runtimes to compare with: those in fp32, and where the result may be narrower, those that are as well."""
    return COMPARED if config.precision == "fp32" else (*COMPARED, *COMPARED_NARROW)


def _capabilities(config: TuneConfig) -> Capabilities:
    return capabilities_named(config.device, config.target)


def _check_other_shapes(model: ModelRef, config: TuneConfig) -> None:
    if model.kind == ZOO:
        raise InputError(f"{model.name}: other shapes run in onnxruntime only if the model is a file")
    if not _capabilities(config).other_runtimes:
        raise InputError(f"{model.name}: other shapes run in onnxruntime only if the result is for a CPU")
    if not config.onnxruntime:
        raise InputError("other shapes cannot run in onnxruntime if no node may; leave one of the two options out")


def _metric(config: TuneConfig, model: ModelRef) -> Metric | None:
    """The user's own score; that of the original model is computed when a run begins.

    Raises:
        InputError: it does not fit the other options or the model.
    """
    if config.metric is None or config.max_drop is None:
        if (config.metric, config.max_drop) != (None, None):
            raise InputError("metric and max_drop go together: give both, or leave both out")
        return None
    if config.max_error is not None:
        raise InputError("metric and max_error are two measures of one thing: leave one of the two out")
    if model.kind == ZOO:
        raise InputError(f"{model.name}: a metric scores models in files; this one is none")
    if model.constants:
        bound = next(iter(model.constants))
        raise InputError(
            f"{model.name}: a metric runs the original model, which has the input {bound}, and the tuned one, which "
            "would not; leave out --constant or --metric"
        )
    module, _, function = config.metric.rpartition(":")
    if not module or not function.isidentifier():
        raise InputError(f"metric {config.metric!r}: write MODULE:FUNCTION or FILE.py:FUNCTION")
    if module.endswith(".py") and not os.path.isfile(module):
        raise InputError(f"metric {config.metric}: there is no file {module}")
    return Metric(module, function, os.getcwd(), config.max_drop)


def options_of(config: TuneConfig, *, search: bool = True, metric: Metric | None = None) -> Options:
    """Return the options of a run that tunes, or without `search` compiles, as `config` says.

    Raises:
        InputError: its target does not read as one.
    """
    limited = (config.trials, config.minutes, config.until) != (None, None, None)
    trials = config.trials if limited or not search else DEFAULT_TRIALS
    strategy = Strategy(families=config.families, foresee=config.foresee, carry=config.carry)
    if (size := config.round_size) is not None:
        foresee_size = max(1, min(strategy.foresee_size, size // 2))
        strategy = msgspec.structs.replace(strategy, round_size=size, foresee_size=foresee_size)
    return Options.of(
        config,
        trials=trials,
        until=None if config.until is None else str(parse_target(config.until)),
        strategy=strategy,
        kin=config.kin,
        search=search,
        metric=metric,
        compare=_compared(config),
    )


def run_key(request: TuneRequest, threads: int, cpu: str, owner: str = "") -> str:
    """Return the run key: a digest of the owner, the model, the options, and the measurement conditions.

    A model in a file is identified by its content, so that a copy has the same key and an edited file has another one.
    Weights that a user's own ONNX file keeps beside it belong to that content, and so do the inputs on which the errors
    of a narrower precision are measured.  The key differs for another version of
    Kintune, and for another processor, compiler, protocol or feature extraction, since decisions of such a run could
    not be repeated here, nor its times compared.
    """
    model = request.model
    source = _content(request, model.source) if os.path.exists(model.source) else model.source
    parts = (model.kind, source, sorted(model.shapes.items()), sorted(model.options.items()))
    protocol = (MeasurementProtocol(threads=threads).version, OPERANDS)
    device = (request.target, threads, cpu, TVM_VERSION, ELEMENTARY, protocol, FEATURES, __version__)
    mine: tuple[object, ...] = (owner,) if owner else ()
    if weights := weights_beside(model) if request.external is None else request.external:
        mine = (*mine, "weights", weights)
    if model.constants:
        mine = (*mine, "constants", describe_constants(model.constants))
    if model.more_shapes:
        mine = (*mine, "shapes", [sorted(shapes.items()) for shapes in model.more_shapes])
    if model.ranges:
        mine = (*mine, "ranges", sorted(model.ranges.items()))
    if request.calibration:
        mine = (*mine, "calibration", [_content(request, path) for path in request.calibration])
    is_narrow = request.options.precision != FULL_PRECISION or request.options.weights
    if request.inputs and is_narrow:  # errors measured on them decide
        mine = (*mine, "inputs", [_content(request, path) for path in request.inputs])
    return digest_of(msgspec.msgpack.encode((parts, device, request.options, *mine)))


def weights_beside(model: ModelRef) -> str:
    """Return the digest of weights in other files; empty where there are none, or where the job will refuse them."""
    from kintune.models.digest import external_digest  # these import numpy

    if model.kind != ONNX or not model.own:  # others' models may not name files
        return ""
    try:
        return external_digest(Path(model.source), own=True)
    except ModelError:
        return ""


def _content(request: TuneRequest, path: str) -> str:
    if path in request.digests:
        return request.digests[path]
    with open(path, "rb") as file:
        return sha256_of(file).hex()
