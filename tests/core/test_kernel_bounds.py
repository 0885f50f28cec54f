"""How many kernels are known to stay inside of their buffers, in words."""

from __future__ import annotations

import pytest

from kintune.core.kernel_bounds import KernelBounds

UNPROVEN = {"a": ("a[i]",), "b": ("b[i]", "b[j]"), "c": ("c[i]",)}


@pytest.mark.parametrize(
    ("plans", "said"),
    [
        ((), ""),
        ((KernelBounds(0),), ""),
        ((KernelBounds(3),), "3 of 3 kernels proven in bounds"),
        ((KernelBounds(9, UNPROVEN, ("a", "b", "c")),), "6 of 9 kernels proven in bounds, 3 tried between guard pages"),
        (
            (KernelBounds(9, UNPROVEN, ("a",)), KernelBounds(1)),
            "7 of 10 kernels proven in bounds, 1 tried between guard pages, 2 neither proven nor tried",
        ),
        ((KernelBounds(4, UNPROVEN),), "1 of 4 kernels proven in bounds, 3 neither proven nor tried"),
    ],
)
def test_what_is_known_of_all_kernels(plans: tuple[KernelBounds, ...], said: str) -> None:
    assert KernelBounds.described(plans) == said


def test_only_what_was_not_proven_is_tried() -> None:
    found = KernelBounds(9, UNPROVEN).with_tried(["c", "other", "a", "c"])
    assert (found.tried, found.proven, found.kernels) == (("a", "c"), 6, 9)
