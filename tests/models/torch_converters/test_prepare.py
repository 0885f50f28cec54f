from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.tools import require
from tests.support.torch_values import draw

torch = require("torch")
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]


def test_powers_of_two_are_written_out(compare: Callable[..., Any]) -> None:
    def net(x: Any, power: Any) -> Any:
        return torch.ldexp(x, torch.tensor(3)), torch.ldexp(x, power)

    compare(net, draw(3, 5), torch.tensor([1, -2, 3, 0, -140]), tolerance=1e-7)
