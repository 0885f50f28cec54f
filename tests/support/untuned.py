"""Networks that are compiled with the compiler's default schedules."""

from __future__ import annotations

import json
from typing import Any

from kintune.core.model import ModelRef

__all__ = ["build_untuned"]


def build_untuned(reference: ModelRef, *, by_vm: bool = False) -> Any:
    """The network ready to run on this machine, on one thread."""
    import tvm

    from kintune.compiler.graph.executable import build_executable, build_vm_executable, describe_build
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.runtime.target import resolve_target

    model = load(reference)
    text = resolve_target("native", 1)
    target = tvm.target.Target(json.loads(text))
    manifest = describe_build(
        model_name=model.name,
        model_digest=model.digest,
        target=text,
        threads=1,
        inputs=model.inputs,
        outputs=model.outputs,
        checks=model.checks,
        chosen={},
    )
    build = build_vm_executable if by_vm else build_executable
    return build(lower(model.module, target), {}, target, manifest)
