"""Requirements: whether this machine has what an executable needs.  Does not import TVM."""

from __future__ import annotations

from collections.abc import Sequence

from kintune.hardware.cpu import host_extensions, host_machine
from kintune.runtime.package import Manifest

__all__ = ["is_gpu_here", "why_none_here", "why_not_here"]


def why_not_here(manifest: Manifest) -> str | None:
    """Returns why this machine cannot run the program, and what to do; None when it can."""
    if manifest.machine != host_machine():
        return f"built for {manifest.machine}, this machine is {host_machine()}; build it here"
    if manifest.capabilities.one_architecture:
        if is_gpu_here(manifest):
            return None
        found = _architecture_here()
        has = "none" if found is None else f"one of {found}"
        device = manifest.capabilities.a_device
        return f"built for {device} of {', '.join(manifest.isa)}, this machine has {has}; build it for this machine"
    here = host_extensions()
    lacking = [] if here is None else [name for name in manifest.isa if name not in here]
    if not lacking:
        return None
    return f"built for a CPU with {', '.join(lacking)}, which this one lacks; build it for this machine"


def why_none_here(manifests: Sequence[Manifest]) -> str | None:
    """Returns why this machine cannot run any of a file's variants, and what to do; None when it can."""
    reasons = [why_not_here(manifest) for manifest in manifests]
    if None in reasons:
        return None
    if len(reasons) == 1:
        return reasons[0]
    told = [f"variant {number} is {(reason or '').partition(';')[0]}" for number, reason in enumerate(reasons)]
    return f"{'; '.join(told)}; build it for this machine, and add it with `kintune merge`"


def is_gpu_here(manifest: Manifest) -> bool:
    """Returns whether this machine's first GPU is of the architecture that the program was built for."""
    return manifest.isa == (_architecture_here(),)


def _architecture_here() -> str | None:
    """The architecture of this machine's first GPU; None without one.

    The import is here, and not at the top, so that results for CPUs open sooner.
    """
    from kintune.hardware.gpus import architecture_here

    return architecture_here()
