from __future__ import annotations

import pytest

from kintune.core.model import Tensor

pytestmark = pytest.mark.tvm


@pytest.mark.parametrize(
    ("target", "cpu"), [('{"kind": "llvm", "mcpu": "x86-64-v2"}', "A CPU"), ("cuda -arch=sm_90", "")]
)
def test_the_manifest_names_the_cpu_but_no_gpu(target: str, cpu: str) -> None:
    """A GPU's architecture is its instruction set."""
    from kintune.compiler.graph.executable import describe_build
    from kintune.runtime.target import resolve_target

    manifest = describe_build(
        model_name="m", model_digest="0", target=resolve_target(target, 1), threads=1,
        inputs=[Tensor("x", (1,), "float32")], outputs=[], chosen={}, cpu="A CPU",
    )  # fmt: skip
    assert manifest.cpu == cpu
