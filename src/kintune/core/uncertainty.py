"""Finds the numbers of a result that are out of proportion, and says so in a line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kintune.core.kernel_call import own_kernel
from kintune.core.profile import Profile, ProfiledCall
from kintune.core.report import BaselineVerdict, FastestBaseline, Latencies, Spread

__all__ = ["describe_ms", "is_restless", "uncertain_calls", "uncertain_comparison", "uncertain_latency"]

_RESTLESS = 0.5  # of the median: the spread of 8 of 10 runs
_FAR = 4.0  # times its time alone that a call may take inside the network
_FAR_SHARE = 0.05  # of a run: what is less does not matter
_FAR_US = 20.0
_GAP = 2.0  # times the sum of its kernels that a network may take
_GAP_MS = 0.05
_GAP_OF_CALL_MS = 0.01
_MOST_NAMED = 3


def is_restless(spread: Spread, median_ms: float) -> bool:
    """Return whether 8 of 10 runs lie further apart than half of their median."""
    return spread.runs > 1 and spread.p90 - spread.p10 > _RESTLESS * median_ms


def uncertain_latency(latency: Latencies) -> list[str]:
    """Return lines on the latency of a result, and on how it compares with the fastest other runtime.

    The median of restless runs is one, and so is a gain that is smaller than its spread.
    """
    lines = []
    spread = latency.spread.get("tuned")
    if latency.tuned is not None and spread is not None and is_restless(spread, latency.tuned):
        lines.append(
            f"{describe_ms(latency.tuned)}: 8 of 10 runs took {describe_ms(spread.p10)} to {describe_ms(spread.p90)}; "
            "other programs use the cores, or the clock rate changes"
        )
    fastest = latency.fastest_baseline
    if fastest is not None and fastest.name in latency.paired and not fastest.tells:
        lines.append(uncertain_comparison(fastest, latency.paired[fastest.name].rounds))
    return lines


def uncertain_comparison(fastest: FastestBaseline, rounds: int) -> str:
    """Return a line on a ratio that is less certain than the gain or the loss is large, after so many rounds."""
    ratio = fastest.interval
    if ratio is None:
        return f"{fastest.name}: not known"
    what = "which is faster" if fastest.verdict is BaselineVerdict.UNCERTAIN else "how much"
    return (
        f"of {fastest.name}'s time it takes {ratio.low:.2f} to {ratio.high:.2f} by {rounds} rounds in turns, which do "
        f"not tell {what}"
    )


def uncertain_calls(profile: Profile, kernels_ms: float | None, alone_us: Mapping[str, float]) -> list[str]:
    """Return lines on calls that take far longer inside the network than alone, or on the network if it does.

    `kernels_ms` is the sum of the kernels' times alone, None where that is not all of the network; `alone_us` has the
    microseconds of one run of a kernel alone, by its name.
    """
    far = _far(profile.calls, profile.run_ms, alone_us)
    lines = [
        f"{call.title} takes {describe_ms(call.us / 1e3)} here and {describe_ms(us / 1e3)} alone"
        for call, us in far[:_MOST_NAMED]
    ]
    if len(far) > _MOST_NAMED:
        lines.append(f"{len(far) - _MOST_NAMED} more operators take over {_FAR:g} times as long here as alone")
    if not far and kernels_ms:
        most_ms = kernels_ms + max(_GAP_MS, _GAP_OF_CALL_MS * len(profile.calls))
        if profile.run_ms > max(_GAP * kernels_ms, most_ms):
            lines.append(
                f"a run takes {describe_ms(profile.run_ms)}, and its kernels {describe_ms(kernels_ms)} where they were "
                "timed alone"
            )
    return lines


def _far(
    calls: Sequence[ProfiledCall], run_ms: float, alone_us: Mapping[str, float]
) -> list[tuple[ProfiledCall, float]]:
    """The calls that are out of proportion, with their times alone, by what they take too long."""
    least_us = max(_FAR_US, _FAR_SHARE * run_ms * 1e3)
    timed = [(call, alone_us.get(own_kernel(call.kernel), 0.0)) for call in calls]
    far = [(call, us) for call, us in timed if us and call.us > _FAR * us and call.us - us > least_us]
    return sorted(far, key=lambda each: each[1] - each[0].us)


def describe_ms(value: float) -> str:
    """Milliseconds with three digits, or seconds, or microseconds: `4.18 s`, `32.5 ms`, `240 us`."""
    if value >= 1e3:
        return f"{value / 1e3:.3g} s"
    return f"{value:.3g} ms" if value >= 1.0 else f"{value * 1e3:.3g} us"
