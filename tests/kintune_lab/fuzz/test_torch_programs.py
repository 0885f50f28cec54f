"""Which results of PyTorch's operators are not compared."""

from __future__ import annotations

import pytest

from tests.support.tools import require

torch = require("torch")
T = torch.tensor


@pytest.mark.parametrize(
    ("operator", "operands", "results", "expected"),
    [
        ("linalg.cholesky_ex", [T([[1.0]])], [T([[1.0]]), T(0)], False),
        ("linalg.cholesky_ex", [T([[-1.0]])], [T([[-1.0]]), T(1)], True),
        ("topk", [T([1.0, 2])], [T([2.0]), T([1])], False),
        ("topk", [T([2.0, 2])], [T([2.0]), T([1])], True),
        ("sort", [T([2.0, 2])], [T([2.0, 2]), T([1, 0])], True),
        ("sort:stable", [T([2.0, 2])], [T([2.0, 2]), T([0, 1])], False),
        ("grid_sampler_2d", [T([1.0]), T([0.5])], [T([1.0])], False),
        ("grid_sampler_2d", [T([1.0]).half(), T([0.5]).half()], [T([1.0]).half()], True),
        ("nn.functional.scaled_dot_product_attention:dropout_p", [T([1.0])], [T([0.0])], True),
        ("linalg.solve", [T([[1.0]]), T([2.0])], [T([2.0])], False),
        ("linalg.solve", [T([[1.0]]), T([torch.inf])], [T([torch.nan])], True),
        ("linalg.inv", [T([[1e-40]])], [T([[torch.inf]])], True),
        ("nn.functional.interpolate linear", [T([torch.inf])], [T([torch.nan])], True),
        ("linalg.vector_norm", [T([torch.inf])], [T(torch.inf)], False),
        ("bucketize", [T([0.5]), T([0.0, 1])], [T([1])], False),
        ("bucketize", [T([0.5]), T([1.0, 0])], [T([1])], True),
        ("polygamma polygamma_n_1", [T([-1.5, 2])], [T([9.4, 0.6])], False),
        ("polygamma polygamma_n_1", [T([-1.5, -2])], [T([9.4, 6.6e32])], True),
        ("byte", [T([-0.5, 255.5])], [T([0, 255], dtype=torch.uint8)], False),
        ("byte", [T([-1.5, 2])], [T([255, 2], dtype=torch.uint8)], True),
        ("fmod", [T([5.0]), T([0.3])], [T([0.2])], False),
        ("fmod", [T([5.0]), T([1e-40])], [T([torch.nan])], True),
        ("exp", [T([9.0]).half()], [T([8103.0]).half()], False),
        ("exp", [T([99.0]).half()], [T([torch.inf]).half()], True),
    ],
)
def test_what_pytorch_leaves_open(operator: str, operands: list[object], results: list[object], expected: bool) -> None:
    from kintune_lab.fuzz.torch_programs import _is_undefined, _Node

    names = tuple(f"x{number}" for number in range(len(operands)))
    operator, _, keyword = operator.partition(":")
    node = _Node(operator, lambda: None, (names[0], names[1:], dict.fromkeys(keyword.split(), True)), names, ())
    assert _is_undefined(node, dict(zip(names, operands, strict=True)), results) is expected


def test_repeated_work_is_left_out() -> None:
    from torch.export import exported_program

    from kintune_lab.fuzz.torch_programs import _table

    assert _table()
    from torch.testing._internal.opinfo import core  # after what it takes from a package that is not installed

    collect = exported_program._collect_all_valid_cia_ops
    assert collect() is collect() == collect.__wrapped__()
    assert core.extract_test_fn() is None
    assert isinstance(print, torch._ops.Callable)
    assert not isinstance(1, torch._ops.Callable)
