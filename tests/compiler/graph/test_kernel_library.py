"""The library of a network's kernels: it does not depend on threads, and nothing is compiled twice."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.tvm


@pytest.fixture
def target() -> Any:
    import tvm

    from kintune.runtime.target import resolve_target

    return tvm.target.Target(json.loads(resolve_target("native", 1)))


def scaled(**factors: float) -> Any:
    """A module of functions that multiply eight values by a factor, by name."""
    import tvm

    return tvm.IRModule({name: scaling(name, factor) for name, factor in factors.items()})


def scaling(name: str, factor: float) -> Any:
    from tvm import te

    values = te.placeholder((8,), "float32", "values")
    result = te.compute((8,), lambda i: values[i] * factor, "result")
    return te.create_prim_func([values, result]).with_attr("global_symbol", name)


def computed(library: Any, name: str) -> list[float]:
    import numpy as np
    import tvm

    from kintune.runtime.artifact import load_artifact

    values, result = (tvm.runtime.tensor(np.full(8, value, np.float32)) for value in (2.0, 0.0))
    load_artifact(library.content)[name](values, result)
    found: list[float] = result.numpy().tolist()
    return found


def test_it_is_the_same_on_any_number_of_threads(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.compiler.graph import kernel_library

    made = []
    for threads in (1, 3):
        monkeypatch.setattr(kernel_library, "_OBJECTS", kernel_library._Objects(1 << 20))
        made.append(kernel_library.build_kernels(scaled(one=1.5, two=2.5, three=3.5), target, threads=threads))
    assert made[0].content == made[1].content
    assert computed(made[0], "two") == [5.0] * 8


def test_what_is_known_is_not_compiled_again(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm

    from kintune.compiler.graph import kernel_library

    monkeypatch.setattr(kernel_library, "_OBJECTS", kernel_library._Objects(1 << 20))
    compiled: list[list[str]] = []
    build = tvm.tirx.build

    def counted(module: Any, *arguments: Any, **options: Any) -> Any:
        compiled.append([str(variable.name_hint) for variable in module.get_global_vars()])
        return build(module, *arguments, **options)

    monkeypatch.setattr(tvm.tirx, "build", counted)
    kernel_library.build_kernels(scaled(one=1.5, two=2.5), target)
    again = kernel_library.build_kernels(scaled(one=1.5, two=7.5, three=3.5), target)
    assert sorted(compiled) == [["one"], ["three"], ["two"], ["two"]]
    assert [computed(again, name)[0] for name in ("one", "two", "three")] == [3.0, 15.0, 7.0]


def test_only_so_many_bytes_are_kept(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.compiler.graph import kernel_library

    kept = kernel_library._Objects(1)
    monkeypatch.setattr(kernel_library, "_OBJECTS", kept)
    library = kernel_library.build_kernels(scaled(one=1.5), target)
    assert computed(library, "one") == [3.0] * 8
    assert not kept._known
    assert kept._bytes == 0


def test_all_functions_that_are_refused_are_named(target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.compiler.graph import kernel_library

    class Picky(kernel_library._Objects):
        def compile(self, variable: Any, function: Any, attributes: Any, target: Any) -> Any:
            if variable.name_hint != "two":
                raise ValueError(f"no such instruction in {variable.name_hint}")
            return super().compile(variable, function, attributes, target)

    monkeypatch.setattr(kernel_library, "_OBJECTS", Picky(1 << 20))
    with pytest.raises(kernel_library.RefusedKernels) as refused:
        kernel_library.build_kernels(scaled(one=1.5, two=2.5, three=3.5), target, threads=2)
    assert refused.value.names == ("one", "three")
    assert str(refused.value.__cause__) == "no such instruction in one"


def test_sums_that_llvm_turns_into_no_function_are_built_with_fewer_passes() -> None:
    import tvm
    from tvm import te

    from kintune.compiler.faults import build_for
    from kintune.compiler.graph.kernel_library import build_kernels
    from kintune.runtime.artifact import object_of

    one, other, bias = (
        te.placeholder(shape, "float32", name) for shape, name in (((4, 3), "one"), ((3, 9), "other"), ((9,), "bias"))
    )
    k = te.reduce_axis((0, 3), "k")
    product = te.compute((4, 9), lambda i, j: te.sum(one[i, k] * other[k, j], k), "product")
    total = te.compute((4, 9), lambda i, j: product[i, j] + bias[j], "total")
    function = te.create_prim_func([one, other, bias, total]).with_attr("global_symbol", "main")
    module, target = tvm.IRModule({"main": function}), tvm.target.Target({"kind": "llvm", "mcpu": "znver3"})
    with pytest.raises(tvm.error.InternalError, match="verification failed"):  # else `build_for` is needed no more
        tvm.compile(module, target)
    assert build_for(target, lambda chosen: object_of(tvm.compile(module, chosen).mod))
    assert build_kernels(module, target).kernels

    def refused(_: Any) -> None:
        raise tvm.error.InternalError("another fault")

    with pytest.raises(tvm.error.InternalError, match="another fault"):
        build_for(target, refused)
