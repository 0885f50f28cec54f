from __future__ import annotations

from typing import Any

import pytest

from kintune.models.recurrence import BIDIRECTIONAL, FORWARD, GRU, LSTM, REVERSE, RNN, Recurrence

pytestmark = pytest.mark.tvm

KINDS = [
    Recurrence(LSTM, BIDIRECTIONAL, 7, 2, 20, lengths=True, peepholes=True),
    Recurrence(GRU, FORWARD, 7, 2, 700),
    Recurrence(GRU, REVERSE, 7, 2, 64, reset_after=True),
    Recurrence(RNN, FORWARD, 7, 1, 64, activations=("relu",)),
    Recurrence(LSTM, FORWARD, 7, 1, 64, quantised=True),
]


def kernel(recurrence: Recurrence) -> Any:
    from kintune.models.recurrent_kernel import recurrent_kernel

    return recurrent_kernel(recurrence).with_attr("global_symbol", "main")


@pytest.mark.parametrize("recurrence", KINDS, ids=lambda r: r.text)
def test_threads_share_the_units(recurrence: Recurrence) -> None:
    from kintune.compiler.programs.recurrent_gpu import spread_recurrence

    plain = kernel(recurrence)
    spread = spread_recurrence(plain, None, None)
    assert [str(p.name) for p in spread.params] == [str(p.name) for p in plain.params]
    assert dict(spread.attrs.items()) == {**dict(plain.attrs.items()), "tirx.is_scheduled": True}
    text = spread.script()
    blocks, threads = recurrence.directions * recurrence.batch, {20: 32, 64: 64, 700: 512}[recurrence.hidden]
    assert f'T.thread_binding({blocks}, thread="blockIdx.x")' in text
    assert f'T.thread_binding({threads}, thread="threadIdx.x")' in text
    assert text.count("tvm_storage_sync") == (4 if recurrence.gates == 3 and not recurrence.reset_after else 3)


def test_other_functions_stay() -> None:
    from kintune.compiler.programs.recurrent_gpu import spread_recurrence

    other = kernel(KINDS[0]).without_attr("kintune.pattern")
    assert spread_recurrence(other, None, None).same_as(other)
    done = kernel(KINDS[0]).with_attr("tirx.is_scheduled", True)
    assert spread_recurrence(done, None, None).same_as(done)
