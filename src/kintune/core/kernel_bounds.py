"""Which kernels of a result are known to access nothing but their own buffers, and how that is known."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

__all__ = ["KernelBounds"]


class KernelBounds(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many `kernels` a plan calls, and which of them were not proven to stay inside of their buffers.

    `unproven` has the accesses of such a kernel that may lie outside, a line each, by its name.  `tried` has the names
    of those that then ran between guard pages without a fault.
    """

    kernels: int
    unproven: dict[str, tuple[str, ...]] = {}
    tried: tuple[str, ...] = ()

    @property
    def proven(self) -> int:
        """The number of kernels that were proven."""
        return self.kernels - len(self.unproven)

    def with_tried(self, names: Iterable[str]) -> KernelBounds:
        """The same after these kernels ran between guard pages."""
        return msgspec.structs.replace(self, tried=tuple(sorted(set(names).intersection(self.unproven))))

    @staticmethod
    def described(plans: Iterable[KernelBounds]) -> str:
        """What is known of all plans, such as "412 of 415 kernels proven in bounds, 3 tried between guard pages".

        Empty where nothing is known.
        """
        known = list(plans)
        total = sum(each.kernels for each in known)
        proven, tried = sum(each.proven for each in known), sum(len(each.tried) for each in known)
        if not total:
            return ""
        parts = [f"{proven} of {total} kernels proven in bounds"]
        if tried:
            parts.append(f"{tried} tried between guard pages")
        if rest := total - proven - tried:
            parts.append(f"{rest} neither proven nor tried")
        return ", ".join(parts)
