"""Which nodes go over to onnxruntime after a network has failed.  Without side effects."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from kintune.core.stage_results import Prepared, ValidationResult
from kintune.hardware.toolchain import LINKING_FAILED

__all__ = ["EVERYTHING", "handover_note", "next_handover", "returned_note"]

EVERYTHING = "*"
"""Stands for all nodes of a model."""

_MOST = 8  # nodes found one by one, after which the whole model runs in onnxruntime


def next_handover(prepared: Prepared, culprit: str, cause: str = "") -> tuple[str, ...]:
    """Return the nodes to hand over next, since the network fails because of the node `culprit`; empty if none may be.

    An empty culprit was not found; then, or if it is not the first time, the whole model goes over.  Where the `cause`
    is a linker that does not work, no node is at fault, and none goes.
    """
    if cause.startswith(LINKING_FAILED):
        return ()
    over = prepared.handed_over
    if not prepared.can_hand_over or EVERYTHING in over:
        return ()
    return (EVERYTHING,) if not culprit or culprit in over or len(over) >= _MOST else (*over, culprit)


def handover_note(handed_over: Sequence[str], before: Sequence[str], cause: str) -> str:
    """Return a note for the user on what runs in onnxruntime from now on; `cause` says what was wrong, in a line."""
    new = [node for node in handed_over if node not in before]
    what = "the whole model" if EVERYTHING in new else ", ".join(new)
    return f"{what} runs in onnxruntime: " + (f"compiled, {cause}" if cause else "it fails when compiled")


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
