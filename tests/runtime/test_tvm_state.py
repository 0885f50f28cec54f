from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.tvm

NAME = "kintune.test_tvm_state"
OPERATOR, ATTRIBUTE = "relax.nn.relu", "TVectorizable"


def attribute() -> Any:
    import tvm

    return tvm.ir.Op.get(OPERATOR).get_attr(ATTRIBUTE)


def registered() -> Any:
    import tvm_ffi

    return tvm_ffi.get_global_func(NAME, allow_missing=True)


def test_attributes_are_put_back_to_what_they_were() -> None:
    from kintune.runtime.tvm_state import OperatorAttribute, attributes_set

    assert attribute() is None
    with attributes_set([OperatorAttribute(OPERATOR, ATTRIBUTE, 1)]):
        with attributes_set([OperatorAttribute(OPERATOR, ATTRIBUTE, 2), OperatorAttribute(OPERATOR, ATTRIBUTE, 3)]):
            assert attribute() == 3
        assert attribute() == 1
        with attributes_set([OperatorAttribute(OPERATOR, ATTRIBUTE, None)]):
            assert attribute() is None
        assert attribute() == 1
    assert attribute() is None


def test_what_was_set_before_an_unknown_operator_is_put_back_too() -> None:
    from kintune.runtime.tvm_state import OperatorAttribute, attributes_set

    unknown = [OperatorAttribute(OPERATOR, ATTRIBUTE, 1), OperatorAttribute("kintune.no_such_operator", ATTRIBUTE, 1)]
    with pytest.raises(Exception, match="no_such_operator"), attributes_set(unknown):
        pass
    assert attribute() is None


def test_functions_are_put_back_to_what_they_were() -> None:
    from kintune.runtime.tvm_state import function_registered

    with function_registered(NAME, lambda: 1):
        with function_registered(NAME, lambda: 2):
            assert registered()() == 2
        with pytest.raises(ZeroDivisionError), function_registered(NAME, lambda: 3):
            raise ZeroDivisionError
        assert registered()() == 1
    assert registered() is None


def test_a_shared_change_lasts_from_the_first_to_the_last_one_inside() -> None:
    from kintune.runtime.tvm_state import SharedChange

    made: list[str] = []

    @contextmanager
    def change() -> Iterator[None]:
        made.append("made")
        yield
        made.append("undone")

    shared, leave, entered = SharedChange(change), threading.Event(), threading.Event()

    def other() -> None:
        with shared:
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with ExitStack() as outer:
        outer.enter_context(shared)
        thread.start()
        assert entered.wait(60)
    assert made == ["made"]
    leave.set()
    thread.join(60)
    assert made == ["made", "undone"]
    with pytest.raises(ZeroDivisionError), shared, shared:
        raise ZeroDivisionError
    assert made == ["made", "undone", "made", "undone"]
