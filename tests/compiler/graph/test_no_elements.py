"""Reductions of no elements are what PyTorch says, and nothing that a kernel has not written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tools import require

torch = require("torch")
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]


class Reductions(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any, w: Any) -> Any:
        return (
            *(x.sum(1), x.prod(1), x.mean(1), x.mean(), x.double().mean(1), *torch.std_mean(x, 1), x.var()),
            *((x > 0).any(1), (x > 0).all(1), x.logsumexp(1), torch.linalg.vector_norm(x, dim=1), x.nanmean(1)),
            *(x @ w, torch.nn.functional.mse_loss(x, x + 1), x.sum(0)),
        )


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_reductions_of_no_elements(tmp_path: Path) -> None:
    from kintune.models.importer import load
    from kintune.models.torch_export import export_module
    from kintune_lab.fuzz.compiling import Compiler

    inputs = torch.ones(3, 0), torch.ones(0, 4)
    executable = Compiler().compile(load(export_module(Reductions(), inputs, tmp_path)))
    found = executable.run({tensor.name: np.zeros(tensor.shape, tensor.dtype) for tensor in executable.inputs})
    for ours, theirs in zip(found.values(), Reductions()(*inputs), strict=True):
        np.testing.assert_array_equal(ours, theirs.numpy())
