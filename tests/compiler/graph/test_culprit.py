"""The first node that something goes wrong with is found and named."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.tvm

OPERATORS = ("relu", "exp", "tanh", "negative", "sigmoid", "sqrt")


def chain() -> object:
    """A network of one operator after another, with a branch beside them."""
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            at = x
            aside = builder.emit(relax.op.abs(x), name_hint="aside")
            for name in OPERATORS:
                operator = relax.op.nn.relu if name == "relu" else getattr(relax.op, name)
                at = builder.emit(operator(at), name_hint=name)
            output = builder.emit_output(relax.op.add(at, aside))
        builder.emit_func_output(output)
    return builder.get()


@pytest.mark.parametrize("culprit", OPERATORS)
def test_the_first_node_that_fails_is_named(culprit: str) -> None:
    from kintune.compiler.graph.culprit import first_culprit
    from kintune.models.model import ImportedModel

    module = chain()
    sources = {name: f"t_{name}" for name in OPERATORS}
    nodes = {f"t_{name}": f"Op '{name}'" for name in OPERATORS}
    model = ImportedModel("chain", "", module, (), (), sources=sources, nodes=nodes)

    def attempt(part: object) -> None:
        if f"R.{culprit}(" in str(part) or f"R.nn.{culprit}(" in str(part):
            raise RuntimeError("it fails")

    assert first_culprit(model, attempt) == f"Op '{culprit}'"


def test_beginnings_lower(  # as any module does
) -> None:
    import tvm

    from kintune.compiler.graph.culprit import beginning
    from kintune.compiler.graph.lower import lower

    module = chain()
    for count in (1, 3, 8):
        lowered = lower(beginning(module, count), tvm.target.Target({"kind": "llvm", "num-cores": 1}))
        assert lowered.workloads
