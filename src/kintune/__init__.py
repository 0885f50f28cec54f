"""Kintune makes deep-learning models fast on your hardware.

    import kintune as kt

    model  = kt.load("resnet18.onnx")
    result = model.tune(trials=1000)
    exe    = result.open()

The names below are imported when they are first used, so that `import kintune` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kintune.core.version import __version__

if TYPE_CHECKING:
    from kintune.api import Model, Result, load, profile, tune_all
    from kintune.core.config import TuneConfig
    from kintune.core.profile import Profile
    from kintune.core.report import ProgressReport, RunReport
    from kintune.errors import InputError, KintuneError
    from kintune.runtime.executable import Executable
    from kintune.runtime.merging import merge
    from kintune.runtime.opening import open
    from kintune.service.client import Client
    from kintune_runtime import Evaluation

__all__ = [
    "Client",
    "Evaluation",
    "Executable",
    "InputError",
    "KintuneError",
    "Model",
    "Profile",
    "ProgressReport",
    "Result",
    "RunReport",
    "TuneConfig",
    "__version__",
    "load",
    "merge",
    "open",
    "profile",
    "tune_all",
]

_HOMES = {
    "Client": "kintune.service.client",
    "Evaluation": "kintune_runtime",
    "Executable": "kintune.runtime.executable",
    "InputError": "kintune.errors",
    "KintuneError": "kintune.errors",
    "Model": "kintune.api",
    "Profile": "kintune.core.profile",
    "ProgressReport": "kintune.core.report",
    "Result": "kintune.api",
    "RunReport": "kintune.core.report",
    "TuneConfig": "kintune.core.config",
    "load": "kintune.api",
    "merge": "kintune.runtime.merging",
    "open": "kintune.runtime.opening",
    "profile": "kintune.api",
    "tune_all": "kintune.api",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
