"""Changes the global state of TVM; each change lasts as long as a block, and is put back.

TVM has one registry of operators' attributes, by which operators are lowered, and one of functions that it calls by
their names, for all of a process.  Nothing else in Kintune writes to them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Any, NamedTuple

import tvm
import tvm_ffi

__all__ = ["OperatorAttribute", "SharedChange", "attributes_set", "function_registered"]


class OperatorAttribute(NamedTuple):
    """What an attribute of an operator of TVM is to be; None where the operator is not to have it."""

    operator: str
    name: str
    value: Any


@contextmanager
def attributes_set(attributes: Iterable[OperatorAttribute]) -> Iterator[None]:
    """Give operators these attributes; afterwards they have those from before."""
    with ExitStack() as before:
        for operator, name, value in attributes:
            changed = tvm.ir.Op.get(operator)
            before.callback(_set, changed, name, changed.get_attr(name))
            _set(changed, name, value)
        yield


def _set(operator: tvm.ir.Op, name: str, value: Any) -> None:
    operator.reset_attr(name)
    if value is not None:
        operator.set_attr(name, value)


@contextmanager
def function_registered(name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Register a function that TVM calls by its name; afterwards the name has the function from before, or none."""
    before = tvm_ffi.get_global_func(name, allow_missing=True)
    tvm_ffi.register_global_func(name, function, override=True)
    try:
        yield
    finally:
        if before is None:
            tvm_ffi.registry.remove_global_func(name)
        else:
            tvm_ffi.register_global_func(name, before, override=True)


class SharedChange:
    """A change that several threads, and blocks within others, have in common.

    The first one that enters makes it, and the last one that leaves puts things back.
    """

    def __init__(self, change: Callable[[], AbstractContextManager[None]]) -> None:
        """`change` makes the change when it is entered."""
        self._change = change
        self._stack = ExitStack()
        self._inside = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._stack.enter_context(self._change())
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._stack.close()
