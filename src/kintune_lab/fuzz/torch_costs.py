"""Takes out of this process what PyTorch does anew for each program and sample, which is half of a program's time."""

from __future__ import annotations

import functools
from typing import Any

import torch

__all__ = ["leave_out_repeated_work"]


class _CallableType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return callable(instance)


class _Callable(metaclass=_CallableType):
    """Stands for `Callable` in annotations that are evaluated thousands of times for each program."""

    def __class_getitem__(cls, parameters: Any) -> Any:
        return cls


@functools.cache
def leave_out_repeated_work() -> None:
    """Look up composite operators once, evaluate no annotations, and let samples not search the stack for a test.

    No program registers operators, and none is a test, so that results stay as they are.
    """
    from torch.export import decomp_utils, exported_program
    from torch.testing._internal import common_utils
    from torch.testing._internal.opinfo import core

    collect = functools.cache(decomp_utils._collect_all_valid_cia_ops)
    decomp_utils._collect_all_valid_cia_ops = collect
    exported_program._collect_all_valid_cia_ops = collect
    common_utils.extract_test_fn = core.extract_test_fn = lambda: None
    torch._ops.Callable = _Callable
