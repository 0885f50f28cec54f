"""Which nodes go over to onnxruntime, because the network fails with them or they are slow.  It has no side effects."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from kintune.core.stage_results import Prepared, SlowPart, ValidationResult
from kintune.core.uncertainty import describe_ms
from kintune.hardware.toolchain import LINKING_FAILED

__all__ = ["EVERYTHING", "Handover", "may_hand_over", "returned_note", "slow_line"]

EVERYTHING = "*"
"""Stands for all nodes of a model."""

_MOST_NAMED = 3  # nodes in a note
_MOST_TOLD = 2  # slow parts in a note
_MOST = 8  # nodes found one by one, after which the whole model runs in onnxruntime
_MOST_SLOW = 2  # handovers of slow parts: the network is prepared again for each


class Handover:
    """The handing over of nodes to onnxruntime; the network is prepared again for each.

    Parts with which onnxruntime is far faster go over once the network, which is only compiled, was found good.
    """

    def __init__(self) -> None:
        self._slow: tuple[SlowPart, ...] = ()  # the parts to hand over next
        self._of_slow = 0  # handovers so far

    def takes_slow(self, prepared: Prepared | None, slow: Sequence[SlowPart]) -> bool:
        """Take in the slow parts of a good network; returns whether some of them are to be handed over."""
        nodes = _slow_nodes(prepared, slow) if prepared is not None else ()
        if not nodes or (self._of_slow >= _MOST_SLOW and EVERYTHING not in nodes):
            return False
        self._slow = tuple(slow)
        self._of_slow += 1
        return True

    def next(self, prepared: Prepared, culprit: str | None, cause: str) -> tuple[str, ...]:
        """Return the nodes to run in onnxruntime from now on; empty if none may, or if nothing more is to go over.

        The network fails because of the node `culprit`, which is empty if it was not found, None if it does not fail or
        was not searched for.  The `cause` of the failure is a line.
        """
        if self._slow:
            return _slow_nodes(prepared, self._slow)
        return () if culprit is None else _failing_nodes(prepared, culprit, cause)

    def end(self, handed_over: Sequence[str], before: Sequence[str], cause: str) -> list[str]:
        """Take in that the network was prepared again; returns a note for the user if other nodes were handed over.

        `cause` says in a line what was wrong with it, if it failed.
        """
        slow, self._slow = self._slow, ()
        if handed_over == before:
            return []
        return [_note(handed_over, before, "; ".join(map(slow_line, slow[:_MOST_TOLD])) or cause)]


def may_hand_over(prepared: Prepared) -> bool:
    """Return whether onnxruntime can run more of the network than it does."""
    return prepared.can_hand_over and EVERYTHING not in prepared.handed_over


def _failing_nodes(prepared: Prepared, culprit: str, cause: str) -> tuple[str, ...]:
    """Return the nodes to hand over next, since the network fails because of the node `culprit`; empty if none may be.

    An empty culprit was not found; then, or if it is not the first time, the whole model goes over.  Where the `cause`
    is a linker that does not work, no node is at fault, and none goes.
    """
    over = prepared.handed_over
    if cause.startswith(LINKING_FAILED) or not may_hand_over(prepared):
        return ()
    return (EVERYTHING,) if not culprit or culprit in over or len(over) >= _MOST else (*over, culprit)


def _slow_nodes(prepared: Prepared, slow: Sequence[SlowPart]) -> tuple[str, ...]:
    """Return the nodes to hand over next, since onnxruntime is far faster with these parts; empty if none may be."""
    over, far = prepared.handed_over, [part for part in slow if part.onnxruntime_us is not None]
    nodes = dict.fromkeys(node for part in far for node in part.nodes)
    new = tuple(node for node in nodes if node not in over)
    if not new or not may_hand_over(prepared):
        return ()
    return (EVERYTHING,) if EVERYTHING in new else (*over, *new)


def slow_line(part: SlowPart) -> str:
    """What a slow part takes, in a clause: `Conv.3 takes 620 ms, and 25 ms in onnxruntime`."""
    took = f"{part.title} takes {describe_ms(part.us / 1e3)}"
    if part.onnxruntime_us is not None:
        return f"{took}, and {describe_ms(part.onnxruntime_us / 1e3)} in onnxruntime"
    return f"{took}, at {part.gflops:.2g} GFLOP/s: there is no fast kernel for it"


def _note(handed_over: Sequence[str], before: Sequence[str], cause: str) -> str:
    """Return a note for the user on what runs in onnxruntime from now on; `cause` says what was wrong, in a line."""
    new = [node for node in handed_over if node not in before]
    more = f" and {len(new) - _MOST_NAMED} more nodes" if len(new) > _MOST_NAMED else ""
    what = "the whole model" if EVERYTHING in new else f"{', '.join(new[:_MOST_NAMED])}{more}"
    run = "runs" if len(new) == 1 else "run"
    return f"{what} {run} in onnxruntime: " + (f"compiled, {cause}" if cause else "it fails when compiled")


def returned_note(proof: ValidationResult) -> str:
    """Return a note for the user on what went back to onnxruntime because it gained nothing; empty if nothing did."""
    if proof.plans:
        count = len(proof.each) - len(proof.plans)
        return (
            f"{count} of {len(proof.each)} combinations of shapes {'is' if count == 1 else 'are'} slower compiled"
            f" than in onnxruntime, and {'runs' if count == 1 else 'run'} there"
        )
    if proof.regions is None:
        return ""
    if proof.regions:
        kept = "1 region runs" if len(proof.regions) == 1 else f"{len(proof.regions)} regions run"
        return f"{kept} compiled, faster than in onnxruntime; the others went back to onnxruntime"
    if not proof.lost_ms:
        return "no region is faster than onnxruntime: the model runs in onnxruntime"
    lost = statistics.median(proof.lost_ms)
    return f"compiled, the model takes {lost:.3g} ms, no less than in onnxruntime: it runs in onnxruntime"
