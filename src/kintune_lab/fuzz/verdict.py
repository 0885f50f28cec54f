"""How a drawn graph went."""

from __future__ import annotations

from enum import Enum

import msgspec

__all__ = ["FAULTS", "GraphVerdict", "VerdictKind"]


class VerdictKind(str, Enum):
    """What became of a graph.

    `REFUSED`: the importer refuses it in one line.  `NOT_COMPARED`: rounding alone decides its outputs, or a reference
    ends the process.  The others are faults: other values than the references', an error that is not the user's, an
    end of the process, and no end within the time.
    """

    RIGHT = "right"
    REFUSED = "refused"
    NOT_COMPARED = "not compared"
    WRONG = "wrong"
    INTERNAL = "internal error"
    CRASHED = "crashed"
    HUNG = "hung"


FAULTS = (VerdictKind.WRONG, VerdictKind.INTERNAL, VerdictKind.CRASHED, VerdictKind.HUNG)


class GraphVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """The verdict on a graph, or on the nodes `kept` of it.

    `refused` has the operators of nodes that were left out, each with the importer's reason, `disputed` what the two
    references differ about, `operators` those of the compared nodes.  `programs` were chosen for subgraphs, `unbuilt`
    are those of candidates that were refused while they were built.
    """

    kind: VerdictKind
    reason: str = ""
    kept: tuple[int, ...] = ()
    operators: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    disputed: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    unbuilt: tuple[str, ...] = ()
    opset: int = 0
    seconds: float = 0.0
