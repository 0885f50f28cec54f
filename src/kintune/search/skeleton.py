"""What is alike in the sketches of different workloads; free of TVM."""

from __future__ import annotations

import json
from collections import Counter
from functools import lru_cache

from kintune.core.candidate import Sketch

__all__ = ["likeness"]


def likeness(left: Sketch, right: Sketch) -> float:
    """How much of two sketches is the same steps, whatever they are applied to: from 0.0 to 1.0, all of them.

    Steps count by kind; an annotation also by its key.  Their order follows from their kinds, mostly.
    """
    ours, theirs = _steps(left.trace), _steps(right.trace)
    shared = sum((ours & theirs).values())
    return 2 * shared / max(1, ours.total() + theirs.total())


@lru_cache(maxsize=4096)
def _steps(trace: bytes) -> Counter[str]:
    try:
        instructions = json.loads(trace)["insts"]
    except (ValueError, KeyError, TypeError):
        return Counter([trace.decode(errors="replace")])  # of a space that writes its traces otherwise
    return Counter(
        f"{kind}:{attributes[0]}" if kind == "Annotate" else str(kind) for kind, _, attributes, _ in instructions
    )
