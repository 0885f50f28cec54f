"""Lowers an imported model to a network of fused functions, its subgraphs.

The passes have this order: first, constants are folded, so that batch norms vanish.  Layouts are converted before
operators become loops.  Weights become parameters after folding, so that they can be packed once, at build time, into
the layout of each chosen kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from kintune.compiler.graph.absorb import AbsorbIntoConvolutions
from kintune.compiler.graph.attention import FuseAttention
from kintune.compiler.graph.averaging import AverageBeforeConvolving
from kintune.compiler.graph.composing import ComposeLinearMaps
from kintune.compiler.graph.described_sums import DescribeSums
from kintune.compiler.graph.enlarging import ConvolveBeforeEnlarging
from kintune.compiler.graph.fold import FoldTensors
from kintune.compiler.graph.fusion_limits import LimitFusion
from kintune.compiler.graph.fusion_patterns import InlineRepeats, RepeatsBroadcast, ResizedInjective
from kintune.compiler.graph.grouped import SplitGroups
from kintune.compiler.graph.integer_products import LowerByteProducts
from kintune.compiler.graph.integers import UseIntegers, multiplies_bytes
from kintune.compiler.graph.layout import ChooseLayouts
from kintune.compiler.graph.layout_marks import CheckLayoutMarks
from kintune.compiler.graph.needed_rows import ComputeNeededRows
from kintune.compiler.graph.no_elements import ReduceNothing
from kintune.compiler.graph.normalise import CountAxesFromFront, LowerScalars
from kintune.compiler.graph.norms import RecogniseNorms
from kintune.compiler.graph.own_rules import own_rules
from kintune.compiler.graph.pieces import ANY_SIZE
from kintune.compiler.graph.prologues import FusePrologues
from kintune.compiler.graph.provenance import (
    KernelOrigin,
    Trail,
    fused_kernels,
    mark_kernels,
    number_bindings,
    read_steps,
)
from kintune.compiler.graph.quantised_elementwise import CombineDequantised, ScalesAsTensors
from kintune.compiler.graph.quantised_moves import FoldDequantised
from kintune.compiler.graph.reshaping import DelayReshapes
from kintune.compiler.graph.rewriting import CALL_KERNEL, kernel_calls, operator_of
from kintune.compiler.graph.workload import StandaloneWorkload, describe, standalone
from kintune.runtime.target import capabilities

__all__ = ["Lowered", "lower"]


class Lowered(NamedTuple):
    """A lowered network.

    `module` holds `main(inputs..., weights...)` and one PrimFunc for each distinct fused operator.  `weights` are the
    tensors for the parameters after the inputs, in order.  `workloads` are the distinct subgraphs, and `functions` maps
    the names of the module's PrimFuncs to workload digests.  `trail` leads from the calls of `main`, which are marked
    with the number of their kernel, to the imported variables.  `origins` has the user's nodes of each kernel; it is
    empty until they are found in the model.
    """

    module: tvm.IRModule
    weights: tuple[tvm.runtime.Tensor, ...]
    workloads: tuple[StandaloneWorkload, ...]
    functions: dict[str, str]
    trail: Trail = Trail()
    origins: tuple[KernelOrigin, ...] = ()


def lower(
    module: tvm.IRModule,
    target: tvm.target.Target,
    *,
    conservative: bool = False,
    patterns: bool = True,
    positions: Sequence[NDArray[Any]] = (),
    any_size: bool = False,
) -> Lowered:
    """Lower an imported module (its function `main` with weights as constants) for `target`.

    A `conservative` lowering converts no layouts and rewrites nothing for speed.  It is for networks whose usual
    lowering fails or computes something else.

    Without `patterns`, attention stays several operators.  As one function, only a program of Kintune's own computes it
    fast, and other tuners do not have that program.

    The attribute `num_input` of `main`, if present, is ignored: every parameter of an imported `main` is an input, but
    for the last ones, whose values are `positions`.  With `any_size`, nothing is decided by how large a tensor is.
    """
    with target, own_rules(target):
        if any_size:
            module.update_func(module.get_global_var("main"), module["main"].with_attr(ANY_SIZE, True))
        module, variables = number_bindings(module)
        module = tvm.transform.Sequential(
            _graph_passes(target, conservative, patterns) + _operator_passes(target, conservative)
        )(module)
        steps, values = read_steps(module)
        module = relax.transform.FuseOps()(module)
        if patterns and not conservative and capabilities(target).llvm_kernels:
            module = FusePrologues()(module)
        kernels = fused_kernels(module, values)
        module = mark_kernels(relax.transform.FuseTIR()(module), kernels)
        module = tvm.transform.Sequential([InlineRepeats(), relax.transform.DeadCodeElimination()])(module)
        inputs = len(module["main"].params) - len(positions)
        module, weights = _weights_to_parameters(module, inputs)
        weights = (*map(tvm.runtime.tensor, positions), *weights)
        module = tvm.transform.Sequential(
            [
                relax.transform.CanonicalizeBindings(),
                relax.transform.AttachAttrLayoutFreeBuffers(),
                CheckLayoutMarks(),
            ]
        )(module)
    calls = Counter(str(call.args[0].name_hint) for call in kernel_calls(module))  # in the order of first calls
    functions: dict[str, str] = {}
    grouped: dict[str, StandaloneWorkload] = {}
    for name, count in calls.items():
        workload = describe(name, standalone(module[name]), count)
        functions[name] = workload.digest
        known = grouped.get(workload.digest)
        grouped[workload.digest] = known._replace(occurrences=known.occurrences + count) if known else workload
    return Lowered(module, weights, tuple(grouped.values()), functions, Trail(variables, steps, kernels))


def _graph_passes(target: tvm.target.Target, conservative: bool, patterns: bool) -> list[tvm.transform.Pass]:
    if conservative:
        return [
            CountAxesFromFront(),
            relax.transform.DecomposeOpsForInference(),
            ReduceNothing(),
            FoldTensors(),
            FoldDequantised(),
            relax.transform.FoldConstant(),
        ]
    vectors, bytes_ = capabilities(target).llvm_kernels, multiplies_bytes(target)
    passes = [
        CountAxesFromFront(),
        relax.transform.DecomposeOpsForInference(),
        ReduceNothing(),
        FoldTensors(),
        *([UseIntegers(bytes_=bytes_)] if vectors else []),
        FoldDequantised(),
        FoldTensors(),
        relax.transform.DeadCodeElimination(),
        relax.transform.FoldConstant(),
        relax.transform.CanonicalizeBindings(),
        AbsorbIntoConvolutions(),
        relax.transform.DeadCodeElimination(),
        AverageBeforeConvolving(),
        ConvolveBeforeEnlarging(),
        relax.transform.DeadCodeElimination(),
        ComposeLinearMaps(),
        relax.transform.DeadCodeElimination(),
    ]
    if vectors:
        passes += [RecogniseNorms(), relax.transform.DeadCodeElimination()]
    passes += [ComputeNeededRows(), relax.transform.DeadCodeElimination()]
    if vectors:
        passes += [ChooseLayouts()]
    return [
        *passes,
        relax.transform.CanonicalizeBindings(),
        FoldTensors(),
        relax.transform.FoldConstant(),
        relax.transform.CanonicalizeBindings(),
        *([FuseAttention()] if patterns and vectors else []),
        DelayReshapes(),
        AbsorbIntoConvolutions(),
        *([SplitGroups(), FoldTensors()] if vectors else []),
        DelayReshapes(),  # the first run may reshape a product to the shape of a sum that it has moved
        relax.transform.DeadCodeElimination(),
        LowerScalars(),
        relax.transform.EliminateCommonSubexpr(),
        *(_byte_passes() if bytes_ else []),
    ]


def _byte_passes() -> list[tvm.transform.Pass]:
    return [CombineDequantised(), ScalesAsTensors(), LowerByteProducts(), relax.transform.DeadCodeElimination()]


def _operator_passes(target: tvm.target.Target, conservative: bool) -> list[tvm.transform.Pass]:
    optimises = capabilities(target).llvm_kernels and not conservative
    passes = [
        *([DescribeSums()] if optimises else []),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        ResizedInjective(),
        RepeatsBroadcast(),
        relax.transform.FoldConstant(),
    ]
    return [*passes, LimitFusion()] if optimises else passes


@mutator
class _ConstantsToVariables(PyExprMutator):  # type: ignore[misc]
    """Replaces the constant tensors that `call_tir` reads by new variables, one for each distinct constant."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.variables: dict[int, relax.Var] = {}
        self.tensors: list[tvm.runtime.Tensor] = []

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        call = self.visit_expr_post_order(call)
        if operator_of(call) != CALL_KERNEL:
            return call
        arguments = call.args[1]
        if not isinstance(arguments, relax.Tuple):
            return call
        fields = [self._variable(field) for field in arguments.fields]
        operands = [call.args[0], relax.Tuple(fields), *call.args[2:]]
        return relax.Call(call.op, operands, call.attrs, call.ty_args, call.span)

    def _variable(self, field: relax.Expr) -> relax.Expr:
        if not isinstance(field, tvm.ir.GenericConst) or int(field.ty.ndim) == 0:
            return field
        key = field.value.__chandle__()
        if key not in self.variables:
            self.variables[key] = relax.Var(f"weight_{len(self.variables)}", field.ty)
            self.tensors.append(field.value)
        return self.variables[key]


def _weights_to_parameters(module: tvm.IRModule, inputs: int) -> tuple[tvm.IRModule, tuple[tvm.runtime.Tensor, ...]]:
    rewriter = _ConstantsToVariables(module)
    main = module["main"]
    rewritten = rewriter.visit_expr(main)
    function = relax.Function(
        [*rewritten.params, *rewriter.variables.values()],
        rewritten.body,
        rewritten.ret_ty,
        rewritten.is_pure,
        rewritten.attrs,
    ).with_attr("num_input", inputs)
    rewriter.builder_.update_func(module.get_global_var("main"), function)
    return rewriter.builder_.get(), tuple(rewriter.tensors)
