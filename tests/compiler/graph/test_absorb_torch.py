"""Batch norms of PyTorch's exported programs fold into their convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.tools import require

if TYPE_CHECKING:
    from pathlib import Path

    import tvm

    from tests.support.networks import RunsProgram

torch = require("torch")
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]


def _block(inputs: int, outputs: int, groups: int, activation: Any) -> Any:
    conv = torch.nn.Conv2d(inputs, outputs, 3, padding=1, groups=groups, bias=False)
    return torch.nn.Sequential(conv, torch.nn.BatchNorm2d(outputs), activation)


def test_each_block_is_one_kernel(cpu: tvm.target.Target, run_program: RunsProgram, tmp_path: Path) -> None:
    from kintune.compiler.graph.assemble import assemble
    from kintune.compiler.graph.lower import lower
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        _block(3, 8, 1, torch.nn.SiLU()), _block(8, 8, 8, torch.nn.Hardswish()), _block(8, 4, 2, torch.nn.ReLU6())
    )
    for norm in (block[1] for block in net):
        for values in (norm.running_mean, norm.running_var, norm.weight.data, norm.bias.data):
            values.uniform_(0.5, 1.5)
    x = torch.randn(1, 3, 12, 10)
    torch.export.save(torch.export.export(net.eval(), (x,)), tmp_path / "net.pt2")
    lowered = lower(load(parse_ref(str(tmp_path / "net.pt2"))).module, cpu)
    calls = [workload.signature for workload in lowered.workloads for _ in range(workload.occurrences)]
    computed = [call for call in calls if "conv2d" in call]
    assert len(computed) == 3, calls
    assert {call.split("-")[0] for call in calls if call not in computed} <= {"transpose", "reshape"}, calls
    assert not any("sqrt" in call or call.startswith("conv2d-subtract") for call in calls)
    (found,) = run_program(assemble(lowered, {}, cpu), x.numpy())
    np.testing.assert_allclose(found, net(x).detach().numpy(), rtol=1e-4, atol=1e-5)
