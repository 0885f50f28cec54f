"""The result gets its name: looked at first, never half-written."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

from kintune.core.payloads import ALONE_FILE, UNPROVEN, UNTUNED_FILE, Proof, Summary
from kintune.errors import JobFailed, NumericsError, StorageError

__all__ = ["discard", "ship"]


def ship(output: str, summary: Summary) -> dict[str, str]:
    """Move the executable to `output` if its proof holds; what was skipped, with reasons, is the answer.

    If the untuned network proved faster than the tuned one, that one ships.

    Raises NumericsError when the outputs differ, JobFailed when there is no proof, and StorageError when the file
    cannot be written.
    """
    proof, packaged = summary.proof, summary.packaged
    if packaged is None or proof is None:
        raise JobFailed("the result could not be proven, so it was not written; the run's log says why")
    if proof.within_tolerance is False:
        raise NumericsError(
            f"the tuned network does not compute what {' and '.join(proof.compared_with)} computes, so it was not "
            f"written: {proof.disagreement}"
        )
    skipped = dict(proof.skipped)
    source = packaged.tuned
    if packaged.untuned is not None and _slower(proof):
        source = packaged.untuned
        skipped["tuned"] = "slower than the untuned network, which was written instead"
    try:
        os.replace(source, output)
    except OSError as error:
        raise StorageError(
            f"{output} cannot be written: {error.strerror}; the same command goes on from here"
        ) from error
    return skipped


def discard(output: str) -> None:
    """Remove what lies beside `output` for the proof alone."""
    for suffix in (UNPROVEN, UNTUNED_FILE, ALONE_FILE):
        Path(f"{output}{suffix}").unlink(missing_ok=True)


def _slower(proof: Proof) -> bool:
    tuned, untuned = proof.latency_ms.get("tuned"), proof.latency_ms.get("untuned")
    return bool(tuned and untuned) and statistics.median(tuned or ()) > statistics.median(untuned or ())
