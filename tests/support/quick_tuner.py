"""A contestant for tests: `python -m tests.support.quick_tuner --fd N`.

It builds in its own process.  The stock builder starts processes for each round, which parse every tensor intrinsic
that the compiler knows before they build anything: some 15 seconds that no test needs to wait.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder.local_builder import default_build, default_export

from kintune.compiler.space.generator import load_intrinsics
from kintune.wire import worker_loop as worker
from kintune_lab.tuners.measurement import STOCK_TOOLS, StockTools
from kintune_lab.tuners.messages import TUNER
from kintune_lab.tuners.process import TunerHandler

__all__ = ["QUICK_TOOLS", "main"]


@derived_object
class _Builder(ms.builder.PyBuilder):  # type: ignore[misc]
    """Builds as the stock builder's processes do."""

    def build(self, build_inputs: Sequence[Any]) -> list[Any]:
        return [_built(build_input) for build_input in build_inputs]


def _built(build_input: Any) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # stock builds by a function that its compiler calls deprecated
            path = default_export(default_build(build_input.mod, build_input.target, None))
    except Exception as error:  # as the stock builder
        return ms.builder.BuilderResult(None, str(error))
    return ms.builder.BuilderResult(path, None)


QUICK_TOOLS = StockTools(lambda _threads: _Builder(), STOCK_TOOLS.runner)
"""The stock runner, and a builder without processes."""


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the race closes the channel."""
    load_intrinsics()
    worker.main(TUNER, lambda _arguments: (b"", TunerHandler(QUICK_TOOLS)), argv)


if __name__ == "__main__":
    main()
