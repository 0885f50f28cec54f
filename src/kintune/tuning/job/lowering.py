"""Lowers an imported network, without layout conversion where that fails."""

from __future__ import annotations

import logging
import traceback

import tvm

from kintune.compiler.graph.lower import Lowered, lower
from kintune.compiler.graph.source_nodes import first_failing_node
from kintune.errors import KintuneError, ModelError, cause_line
from kintune.models.model import ImportedModel

__all__ = ["lower_network"]

_log = logging.getLogger(__name__)


def lower_network(
    model: ImportedModel, target: tvm.target.Target, *, conservative: bool, any_size: bool = False
) -> tuple[Lowered, bool, tuple[str, ...]]:
    """Lower the network; returns the result, whether it was lowered conservatively, and notes for the user.

    With `any_size`, nothing is decided by how large a tensor is.

    Raises:
        ModelError: it cannot be lowered in either way; the log has the messages of the compiler.
    """
    try:
        lowered = lower(model.module, target, conservative=conservative, positions=model.positions, any_size=any_size)
        return lowered, conservative, ()
    except KintuneError:
        raise
    except Exception as error:  # the compiler raises any kind of exception
        traceback.print_exc()
        cause = cause_line(error)
        if not conservative:
            _log.warning("lowering it without layout conversion")
            lowered, _, _ = lower_network(model, target, conservative=True, any_size=any_size)
            note = f"layouts were left as they are, which may cost speed: converting them failed ({cause})"
            return lowered, True, (note,)
        node = first_failing_node(model, lambda module: lower(module, target, conservative=True))
        raise ModelError(f"{model.name}: {node or 'it'} cannot be compiled: {cause}") from error
