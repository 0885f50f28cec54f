"""From a lowered network and the chosen programs to an executable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import tvm
from tvm import relax, te
from tvm.relax.expr_functor import PyExprMutator, mutator

from kintune.errors import BuildError, cause_line
from kintune.graph.elementary import use_vector_functions
from kintune.graph.extremes import keep_nan
from kintune.graph.lower import Lowered
from kintune.graph.rewriting import rewriting_pass
from kintune.measure.cuda.codegen import compiling_for
from kintune.measure.cuda.gpus import GPU
from kintune.space.candidate import UNTUNED, Candidate, Sketch
from kintune.space.generator import default_schedules
from kintune.space.lower import apply_candidate

__all__ = ["Program", "assemble"]

_PACK = "main_transform_params"
_UNUSED = "no_kernel"


class Program(NamedTuple):
    """A compiled network: its function `main(inputs..., weights...)`, and the weights as that function wants them."""

    executable: tvm.runtime.Executable
    weights: tuple[tvm.runtime.Tensor, ...]


def assemble(lowered: Lowered, chosen: Mapping[str, tuple[Sketch, Candidate]], target: tvm.target.Target) -> Program:
    """Compile the network with the `chosen` program for each workload digest; a workload without one stays untuned.

    Weights are packed here, once, into the layouts that the chosen programs want; programs for GPUs take them as they
    are.

    Raises:
        BuildError: when a program cannot be applied or the network cannot be compiled.
        OrderError: when what programs for GPUs are compiled with is missing.
    """
    module = _scheduled(lowered, chosen, target)
    ready = compiling_for(target)
    try:
        with target, ready:
            if target.kind.name == GPU:
                return Program(_compile(module, target), lowered.weights)
            module = tvm.transform.Sequential(
                [
                    _SplitWeightPacking(),
                    relax.transform.LiftTransformParams(),
                    relax.transform.DeadCodeElimination(),
                ]
            )(module)
            packed, main = _split(module)
            weights = _pack(packed, lowered.weights, target)
            return Program(_compile(main, target), weights)
    except Exception as error:  # TVM raises whatever its passes raise
        raise BuildError(f"the network cannot be compiled: {cause_line(error)}") from error


def _scheduled(
    lowered: Lowered, chosen: Mapping[str, tuple[Sketch, Candidate]], target: tvm.target.Target
) -> tvm.IRModule:
    module = tvm.IRModule(dict(lowered.module.functions_items()), attrs=lowered.module.attrs)
    originals = {workload.digest: workload.module for workload in lowered.workloads}
    for name, digest in lowered.functions.items():
        if digest not in chosen:
            continue
        sketch, candidate = chosen[digest]
        if candidate.sketch == UNTUNED:
            continue
        scheduled = apply_candidate(originals[digest], sketch, candidate, target)["main"]
        function = scheduled.without_attr("global_symbol").with_attr("tirx.is_scheduled", True)
        module.update_func(lowered.module.get_global_var(name), function)
    return module


@mutator
class _AllocateEmptyTensors(PyExprMutator):  # type: ignore[misc]
    """Tensors without elements are made when they are wanted: a library's constants cannot be empty."""

    def visit_generic_const_(self, constant: tvm.ir.GenericConst) -> relax.Expr:
        shape = [int(size) for size in getattr(constant.value, "shape", ())]
        if 0 not in shape:
            return constant
        allocate = relax.op.builtin.alloc_tensor(relax.ShapeExpr(shape), str(constant.ty.dtype), 0)
        return self.builder_.emit(allocate)


def _SplitWeightPacking() -> tvm.transform.Pass:  # noqa: N802 - named as TVM names its passes
    """`SplitLayoutRewritePreproc` for the scheduled functions alone: it refuses functions without blocks."""

    def split(module: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        functions = dict(module.functions_items())
        aside = {
            variable: function
            for variable, function in functions.items()
            if isinstance(function, tvm.tirx.PrimFunc) and "tirx.is_scheduled" not in (function.attrs or {})
        }
        rest = {variable: function for variable, function in functions.items() if variable not in aside}
        done = relax.transform.SplitLayoutRewritePreproc()(tvm.IRModule(rest, attrs=module.attrs))
        return tvm.IRModule({**dict(done.functions_items()), **aside}, attrs=done.attrs)

    return tvm.transform.module_pass(split, opt_level=0, name="SplitWeightPacking")


def _split(module: tvm.IRModule) -> tuple[tvm.IRModule | None, tvm.IRModule]:
    """The module that packs the weights (None when nothing is packed), and the one that runs the network."""
    names = {variable.name_hint for variable in module.get_global_vars()}
    if _PACK not in names:
        return None, module
    packing = relax.transform.DeadCodeElimination([_PACK])(_without(module, "main"))
    return packing, relax.transform.DeadCodeElimination(["main"])(_without(module, _PACK))


def _without(module: tvm.IRModule, name: str) -> tvm.IRModule:
    kept = {variable: function for variable, function in module.functions_items() if variable.name_hint != name}
    return tvm.IRModule(kept, attrs=module.attrs)


def _pack(
    packing: tvm.IRModule | None, weights: tuple[tvm.runtime.Tensor, ...], target: tvm.target.Target
) -> tuple[tvm.runtime.Tensor, ...]:
    if packing is None:
        return weights
    machine = relax.VirtualMachine(_compile(packing, target), tvm.cpu())
    return tuple(machine[_PACK](list(weights)))


def _compile(module: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Executable:
    passes = tvm.transform.Sequential(
        [
            relax.backend.DispatchSampling(),
            relax.backend.DispatchSortScan(),
            relax.transform.LegalizeOps(),
            *default_schedules(target),
            relax.transform.RewriteDataflowReshape(),
            relax.transform.ToNonDataflow(),
            rewriting_pass("AllocateEmptyTensors", _AllocateEmptyTensors),
            relax.transform.RemovePurityChecking(),
            relax.transform.CallTIRRewrite(),
            relax.transform.StaticPlanBlockMemory(),
            relax.transform.LowerAllocTensor(),
            relax.transform.KillAfterLastUse(),
            relax.transform.LowerRuntimeBuiltin(),
            relax.transform.ComputePrimValue(),
            relax.transform.VMShapeLower(),
            relax.transform.AttachGlobalSymbol(),
        ]
    )
    use_vector_functions()
    keep_nan()
    return tvm.relax.build(_with_a_kernel(module), target=target, relax_pipeline=passes)


def _with_a_kernel(module: tvm.IRModule) -> tvm.IRModule:
    """The module; with a kernel that nobody calls where it has none, since what has no code at all cannot be linked."""
    if any(isinstance(function, tvm.tirx.PrimFunc) for _, function in module.functions_items()):
        return module
    source = te.placeholder((1,), "int8", "source")
    copy = te.create_prim_func([source, te.compute((1,), lambda i: source[i], "copy")])
    unused = copy.with_attr("global_symbol", _UNUSED)
    return tvm.IRModule({**dict(module.functions_items()), _UNUSED: unused}, attrs=module.attrs)
