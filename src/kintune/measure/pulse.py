"""Whether a device is what it is said to be, and as well as it was: the time of a reference kernel tells."""

from __future__ import annotations

import time
from collections.abc import Callable

from kintune.errors import DeviceUnwell

__all__ = ["check_pulse"]

_PAUSES_S = (0.2, 1.0, 3.0)


def check_pulse(
    measure: Callable[[], float], known_us: float, alike: float, sleep: Callable[[float], None] = time.sleep
) -> None:
    """See that the reference kernel takes what it is known to take, up to the factor `alike` either way.

    What is only disturbed gets some seconds to calm down.

    Raises:
        DeviceUnwell: it does not.
    """
    ratio = measure() / known_us
    for pause in _PAUSES_S:
        if 1 / alike < ratio < alike:
            return
        sleep(pause)
        ratio = measure() / known_us
    if not 1 / alike < ratio < alike:
        raise DeviceUnwell(f"the reference kernel takes {ratio:.2f} times as long as on devices of this type")
