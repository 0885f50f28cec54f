from __future__ import annotations

import numpy as np
import pytest

from kintune.core.stage_requests import KernelArgument

pytestmark = pytest.mark.tvm

ACTIVATION = KernelArgument((4, 6), "float32", "activation")
WEIGHT = KernelArgument((6, 8), "float32", "weight")
PACKED = KernelArgument((2, 6, 4), "float32", "weight")
OUTPUT = KernelArgument((4, 8), "float32", "output")
KERNEL = (ACTIVATION, WEIGHT, OUTPUT)


def test_every_candidate_of_a_workload_gets_the_same_inputs() -> None:
    from kintune.measure.arguments import KernelArguments

    first, second = KernelArguments(), KernelArguments()
    a = first.bind(KERNEL).arguments
    b = second.bind((ACTIVATION, PACKED, OUTPUT)).arguments
    np.testing.assert_array_equal(a[0].numpy(), b[0].numpy())
    assert np.unique(a[0].numpy()).size > 1
    assert np.unique(a[1].numpy()).tolist() == np.unique(b[1].numpy()).tolist() == [0.0625]


def test_two_activations_of_one_kernel_differ() -> None:
    from kintune.measure.arguments import KernelArguments

    x, y, _ = KernelArguments().bind((ACTIVATION, ACTIVATION, OUTPUT)).arguments
    assert not np.array_equal(x.numpy(), y.numpy())


def test_integers_are_valid_indices() -> None:
    from kintune.measure.arguments import KernelArguments

    indices, flags, _ = (
        KernelArguments()
        .bind((KernelArgument((64,), "int64", "activation"), KernelArgument((64,), "bool", "activation"), OUTPUT))
        .arguments
    )
    assert set(np.unique(indices.numpy())) == {0, 1}
    assert set(np.unique(flags.numpy())) == {False, True}


def test_packed_weights_take_no_memory_of_their_own() -> None:
    from kintune.measure.arguments import KernelArguments

    arguments = KernelArguments()
    arguments.bind(KERNEL)
    before = arguments.nbytes
    arguments.bind((ACTIVATION, PACKED, OUTPUT))
    assert arguments.nbytes == before


def test_only_weights_are_flushed_and_only_outputs_compared() -> None:
    from kintune.measure.arguments import KernelArguments

    bound = KernelArguments().bind(KERNEL)
    assert [tuple(weight.shape) for weight in bound.weights] == [WEIGHT.shape]
    assert [output.shape for output in bound.outputs] == [OUTPUT.shape]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "int64", "bool"])
def test_poison_is_nowhere_right(dtype: str) -> None:
    from kintune.measure.arguments import KernelArguments

    arguments = KernelArguments()
    bound = arguments.bind((KernelArgument((50,), dtype, "output"),))
    right = np.resize(np.array([0, 1, 1]), 50).astype(bound.outputs[0].dtype)
    arguments.expected = (right,)
    arguments.poison(bound.outputs)
    assert not (bound.outputs[0] == right).any()


def test_poison_is_not_right_where_not_a_number_is() -> None:
    from kintune.measure.arguments import KernelArguments

    arguments = KernelArguments()
    bound = arguments.bind((KernelArgument((2,), "float32", "output"),))
    arguments.expected = (np.array([np.nan, 1], np.float32),)
    arguments.poison(bound.outputs)
    assert np.isnan(bound.outputs[0]).tolist() == [False, True]


def test_damage_names_what_was_written_to() -> None:
    from kintune.measure.arguments import KernelArguments

    arguments = KernelArguments()
    bound = arguments.bind(KERNEL)
    arguments.poison(bound.outputs)
    assert arguments.damage(KERNEL) == ""
    bound.arguments[1].copyfrom(np.zeros(WEIGHT.shape, np.float32))
    assert arguments.damage(KERNEL).startswith("wrote to an input: argument 1")
    arguments.discard_buffers()
    arguments.bind(KERNEL)
    assert arguments.damage(KERNEL) == ""


def test_what_was_used_longest_ago_is_let_go_first() -> None:
    from kintune.measure.arguments import ArgumentCache, KernelArguments

    size = KernelArguments()
    size.bind(KERNEL)
    cache = ArgumentCache(budget=2 * size.nbytes)
    for workload in ("a", "b", "a", "c"):
        cache[workload].bind(KERNEL)
        cache.trim()
    assert [workload in cache for workload in "abc"] == [True, False, True]


def test_one_workload_over_the_budget_keeps_nothing_it_can_make_again() -> None:
    from kintune.measure.arguments import ArgumentCache

    cache = ArgumentCache(budget=1)
    cache["a"].bind(KERNEL)
    cache["a"].expected = ()
    cache.trim()
    assert cache.nbytes == 0
    assert cache["a"].expected == ()
