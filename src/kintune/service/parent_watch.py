"""A part of the service ends with its supervisor, however that one ends.

The supervisor holds the writing end of a pipe and never writes; the parts hold the reading end.  The kernel closes the
writing end when the supervisor is gone, and whoever reads then learns of it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence

__all__ = ["hold"]


def hold(arguments: Sequence[str]) -> None:
    """Be ended by SIGTERM when the pipe whose descriptor is the first of `arguments`, if there is one, is closed."""
    if arguments:
        threading.Thread(target=_wait, args=(int(arguments[0]),), name="lifeline", daemon=True).start()


def _wait(descriptor: int) -> None:
    os.read(descriptor, 1)
    os.kill(os.getpid(), signal.SIGTERM)
