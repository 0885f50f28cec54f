"""The rules by which this process lowers operators of TVM as Kintune does: set while something is lowered or compiled.

They are `lowering_rules` (elementary functions on whole vectors, NaN, exact quotients), `norm_rules` and `pieces`.
TVM knows one set of rules for all of a process, so that others who use it there would have ours.  Hence `own_rules`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache, partial

import tvm

from kintune.compiler.graph.lowering_rules import elementary_rules, nan_rules, nan_tests, quotient_rules
from kintune.compiler.graph.norm_rules import norm_rules
from kintune.compiler.graph.pieces import piece_rules
from kintune.runtime.target import capabilities
from kintune.runtime.tvm_state import OperatorAttribute, SharedChange, attributes_set

__all__ = ["own_rules"]


def own_rules(target: tvm.target.Target) -> AbstractContextManager[None]:
    """Return the context within which operators are lowered, and programs compiled, for this target.

    Blocks may lie within others, and several threads be inside, but not for targets with and without LLVM's kernels.
    """
    return _RULES[capabilities(target).llvm_kernels]


@cache
def _rules() -> tuple[OperatorAttribute, ...]:
    """The rules for all targets; made while TVM's own are registered, to which they fall back."""
    return (*elementary_rules(), *nan_rules(), *quotient_rules(), *norm_rules(), *piece_rules())


def _set(by_vectors: bool) -> AbstractContextManager[None]:
    return attributes_set((*_rules(), nan_tests(by_vectors=by_vectors)))


_RULES = {by_vectors: SharedChange(partial(_set, by_vectors)) for by_vectors in (True, False)}
