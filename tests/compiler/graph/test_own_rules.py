"""TVM is after a use of Kintune as it was before, also where something fails inside."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.networks import lower_operator

if TYPE_CHECKING:
    from collections.abc import Iterator

    import tvm

pytestmark = pytest.mark.tvm

ATTRIBUTES = ("FLegalize", "TVectorizable", "llvm.FLowerIntrinsic", "default.FLowerIntrinsic")


def state() -> dict[str, Any]:
    """The attributes of all operators that rules are about, the functions that TVM knows, and the environment."""
    import tvm
    import tvm_ffi

    found: dict[str, Any] = {f"${name}": value for name, value in os.environ.items()}
    for name in map(str, tvm.ir.Op.list_op_names()):
        operator = tvm.ir.Op.get(name)
        found.update({f"{name} {each}": handle(operator.get_attr(each)) for each in ATTRIBUTES})
    for name in map(str, tvm_ffi.registry.list_global_func_names()):
        found[name] = handle(tvm_ffi.get_global_func(name, allow_missing=True))
    return found


def handle(value: Any) -> Any:
    """What tells one object of TVM from another, of which Python has a new one each time."""
    import tvm_ffi

    return hash(value) if isinstance(value, tvm_ffi.Object) else value


@contextmanager
def unchanged() -> Iterator[None]:
    before = state()
    try:
        yield
    finally:
        after = state()
        assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == set()


def lowered(target: tvm.target.Target) -> Any:
    from tvm import relax

    return lower_operator((4, 64), lambda x: relax.op.nn.softmax(relax.op.maximum(x, relax.op.exp(x)), 1), target)


def test_rules_are_there_within_the_block_alone(cpu: tvm.target.Target) -> None:
    from kintune.compiler.graph.own_rules import own_rules

    with unchanged():
        before = state()
        with own_rules(cpu):
            changed = {name for name, value in state().items() if before.get(name) != value}
            assert {"tirx.exp llvm.FLowerIntrinsic", "relax.maximum FLegalize", "tirx.isnan TVectorizable"} <= changed
        with pytest.raises(ZeroDivisionError), own_rules(cpu), own_rules(cpu):
            raise ZeroDivisionError


def test_lowering_and_assembling_leave_no_trace(cpu: tvm.target.Target) -> None:
    from kintune.compiler.graph.assemble import assemble

    with unchanged():
        assemble(lowered(cpu), {}, cpu)


def test_failures_leave_no_trace(cpu: tvm.target.Target, monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.compiler.graph import assemble
    from kintune.errors import BuildError

    def fail(*_: Any) -> None:
        raise RuntimeError("cannot go on")

    made = lowered(cpu)
    monkeypatch.setattr(assemble, "_to_kernels", fail)
    with unchanged(), pytest.raises(BuildError, match="cannot go on"):
        assemble.assemble(made, {}, cpu)
    monkeypatch.setattr("kintune.compiler.graph.lower.read_steps", fail)
    with unchanged(), pytest.raises(RuntimeError, match="cannot go on"):
        lowered(cpu)


def test_threads_have_the_rules_until_the_last_one_is_done(cpu: tvm.target.Target) -> None:
    import tvm

    from kintune.compiler.graph.own_rules import own_rules

    left, seen = threading.Event(), []

    def other() -> None:
        with own_rules(cpu):
            entered.set()
            left.wait(60)
            seen.append(bool(tvm.ir.Op.get("tirx.isnan").get_attr("TVectorizable")))

    entered, thread = threading.Event(), threading.Thread(target=other)
    with unchanged():
        with own_rules(cpu):
            thread.start()
            assert entered.wait(60)
        left.set()
        thread.join(60)
        assert seen == [True]
