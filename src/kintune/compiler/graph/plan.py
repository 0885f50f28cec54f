"""Makes an execution plan of a network of kernel calls: kernels in order, and the place of each tensor in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import msgspec
import tvm
from tvm import relax

from kintune.compiler.graph.arena import Buffer, place_buffers, place_in_a_row
from kintune.compiler.graph.pieces import JOINS, SLICES, pieces_of
from kintune.compiler.graph.plan_check import check_plan
from kintune.compiler.graph.provenance import mark_of
from kintune.compiler.graph.rewriting import bindings_of, operator_of, shape_of, static_shape
from kintune.core.execution_plan import Branch, Copy, ExecutionPlan, Jump, KernelCall, Operation, Place, PlannedTensor
from kintune.core.model import IndexCheck, Tensor
from kintune.errors import BuildError
from kintune.runtime.plan_format import element_kind

__all__ = ["Planned", "plan_network"]

_SMALL = 16 << 10
"""A kernel whose tensors have at most so many bytes together runs on the calling thread alone.

It takes a few microseconds, about as long as passing work to another thread."""

_ALLOCATE = "relax.builtin.alloc_tensor"
_VIEW = "relax.memory.view"
_SAME_MEMORY = frozenset({"relax.reshape", "relax.memory.ensure_zero_offset"})


class Planned(NamedTuple):
    """A plan, and the tensors of its block of weights, in order: the packed weights, then constants.

    `kernels` maps the place of a call in the plan to the number of the kernel with which the call is marked.  `shifts`
    says for each tensor how many bytes it lies behind the start of memory that several tensors are parts of.
    """

    plan: ExecutionPlan
    weights: tuple[tvm.runtime.Tensor, ...]
    kernels: dict[int, int]
    shifts: tuple[int, ...]


def plan_network(
    module: tvm.IRModule,
    weights: Sequence[tvm.runtime.Tensor],
    external: Collection[str],
    *,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    checks: Sequence[IndexCheck],
) -> Planned:
    """Plan the function `main(inputs..., weights...)` of a module, after the pass `CallTIRRewrite`.

    `external` names kernels that are called and not in the module.  `inputs`, `outputs` and `checks` are those of the
    imported model: `main` returns the outputs, and then the indices that the checks are about.  The plan has one more
    output for each check, in their order, so `IndexCheck.result` there is the check's own number.

    Raises:
        BuildError: when the network has an operator that a plan cannot run: "cannot be planned: " and its name.
    """
    main = module["main"]
    if len(main.params) != len(inputs) + len(weights):
        raise BuildError(f"main has {len(main.params)} parameters for {len(inputs)} inputs and {len(weights)} weights")
    return _Planner(module, weights, external).plan(main, inputs, outputs, checks)


@dataclass(eq=False)
class _Storage:
    """Memory of tensors; `offset` is as in `PlannedTensor`.  Storages are numbered in the order in which they are made.

    Memory in an arena is in use from operation number `first` to `last`; both are -1 while no operation uses it.  After
    two storages were merged, `same_as` of one is the other; it then begins `shift` bytes behind the other's start.
    Memory that `holds_pieces` contains other storages.
    """

    place: Place
    nbytes: int
    offset: int = 0
    number: int = 0
    first: int = -1
    last: int = -1
    same_as: _Storage | None = None
    shift: int = 0
    holds_pieces: bool = False

    def root(self) -> _Storage:
        """The storage into which this one was merged in the end; itself if it was not."""
        found = self
        while found.same_as is not None:
            found = found.same_as
        return found

    def use(self, first: int, last: int) -> None:
        """Note that operations number `first` to `last` use it."""
        self.first = first if self.first < 0 else min(self.first, first)
        self.last = max(self.last, last)

    @property
    def behind(self) -> int:
        """The number of bytes from the start of `root()` to its own start."""
        return 0 if self.same_as is None else self.shift + self.same_as.behind

    def become(self, other: _Storage, shift: int = 0) -> None:
        """Merge this storage into another one, from byte `shift` of that on."""
        self.same_as, self.shift = other, shift
        if self.first >= 0:
            other.root().use(self.first, self.last)


class _View(NamedTuple):
    """A row-major tensor from the start of a storage on."""

    storage: _Storage
    dtype: str
    shape: tuple[int, ...]


_Value: TypeAlias = "_View | tuple[_Value, ...] | None"
"""The value of a variable: a tensor, a tuple, or None for a shape or another value that no kernel takes."""


class _Planner:
    """Walks `main` and collects operations, whose tensors are numbers of `_views`."""

    def __init__(self, module: tvm.IRModule, weights: Sequence[tvm.runtime.Tensor], external: Collection[str]) -> None:
        self._module = module
        self._external = external
        self._weights = list(weights)
        self._constants: dict[Any, _View] = {}
        self._values: dict[relax.Var, _Value] = {}
        self._views: list[_View] = []
        self._numbers: dict[tuple[int, str, tuple[int, ...]], int] = {}
        self._storages: list[_Storage] = []
        self._operations: list[Operation] = []
        self._kernels: dict[int, int] = {}
        self._serial = count()
        self._returned: set[relax.Var] = set()

    def plan(
        self, main: relax.Function, inputs: Sequence[Tensor], outputs: Sequence[Tensor], checks: Sequence[IndexCheck]
    ) -> Planned:
        """The plan of the function."""
        input_tensors = []
        self._returned = _returned(main)
        for position, parameter in enumerate(main.params):
            if position < len(inputs):
                self._values[parameter] = view = self.new_view(parameter.ty, "input", position)
                input_tensors.append(self._number(view))
            else:
                self._values[parameter] = self.new_view(parameter.ty, "weights", position - len(inputs))
        results = list(_leaves(self._value(main.body)))
        if len(results) < len(outputs):
            raise BuildError(f"main returns {len(results)} tensors for {len(outputs)} outputs")
        returned = [*results[: len(outputs)], *(results[len(outputs) + check.result] for check in checks)]
        output_tensors = self._return(returned)
        arena_bytes = self._place()
        plan = ExecutionPlan(
            tensors=tuple(map(_planned, self._views)),
            operations=tuple(self._operations),
            input_tensors=tuple(input_tensors),
            output_tensors=output_tensors,
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            arena_bytes=arena_bytes,
            checks=tuple(msgspec.structs.replace(check, result=number) for number, check in enumerate(checks)),
        )
        blocks = {storage: number for number, storage in enumerate({view.storage.root() for view in self._views})}
        check_plan(plan, [blocks[view.storage.root()] for view in self._views])
        return Planned(plan, tuple(self._weights), self._kernels, tuple(view.storage.behind for view in self._views))

    def _return(self, returned: Sequence[_View]) -> tuple[int, ...]:
        """Turn returned tensors of the arena into outputs if they fill their memory, each once; copy the others."""
        claimed = []
        for number, view in enumerate(returned):
            storage = view.storage.root()
            mine = storage.place == "arena" and not storage.holds_pieces and storage.nbytes == _nbytes(view) > 0
            if mine:
                storage.place, storage.offset = "output", number
            claimed.append(mine)
        numbers = []
        for number, (view, mine) in enumerate(zip(returned, claimed, strict=True)):
            if not mine:
                target = _View(_Storage("output", _nbytes(view), number), view.dtype, view.shape)
                self._copy(view, target)
                view = target
            numbers.append(self._number(view))
        return tuple(numbers)

    def _place(self) -> int:
        """Choose the offsets in the arena and in the block of weights; returns the size of the arena in bytes."""
        roots = [s for s in self._storages if s.same_as is None and s.place == "arena" and s.nbytes and s.first >= 0]
        arena = place_buffers([Buffer(storage.nbytes, storage.first, storage.last) for storage in roots])
        for storage, offset in zip(roots, arena.offsets, strict=True):
            storage.offset = offset
        sizes = [PlannedTensor("weights", 0, str(w.dtype), tuple(map(int, w.shape))).nbytes for w in self._weights]
        in_weights = place_in_a_row(sizes).offsets
        for storage in {view.storage for view in self._views if view.storage.place == "weights"}:
            storage.offset = in_weights[storage.offset]
        return arena.nbytes

    def _value(self, expression: Any) -> _Value:
        """Append the operations that compute the expression, and return its value."""
        match expression:
            case relax.Var():
                return self._values[expression]
            case relax.SeqExpr():
                for block in expression.blocks:
                    for binding in block.bindings:
                        self._values[binding.var] = self._bound(binding)
                return self._value(expression.body)
            case tvm.ir.GenericConst():
                return self._constant(expression)
            case relax.Tuple():
                return tuple(self._value(field) for field in expression.fields)
            case relax.TupleGetItem():
                fields = self._value(expression.tuple_value)
                if fields is None or isinstance(fields, _View):
                    raise _unplanned("TupleGetItem")
                return fields[int(expression.index)]
            case relax.If():
                return self._branch(expression)
            case relax.Call():
                return self._call(expression)
            case relax.ShapeExpr():
                return None
        raise _unplanned(type(expression).__name__)

    def _bound(self, binding: relax.Binding) -> _Value:
        if isinstance(binding, relax.VarBinding):
            return self._value(binding.value)
        value = self._value(binding.value)
        if isinstance(value, _View) and static_shape(binding.var) == value.shape:
            return value
        raise _unplanned("match_cast")

    def _call(self, call: relax.Call) -> _Value:
        if isinstance(call.op, tvm.ir.GlobalVar):
            function = self._module[call.op]
            if not isinstance(function, tvm.tirx.PrimFunc):
                raise _unplanned(str(call.op.name_hint))
            if self._slice(function, call) or self._join(function, call):
                return None
            self._run(str((function.attrs or {}).get("global_symbol", call.op.name_hint)), call)
            return None
        if isinstance(call.op, relax.ExternFunc):
            if str(call.op.global_symbol) not in self._external:
                raise _unplanned(str(call.op.global_symbol))
            self._run(str(call.op.global_symbol), call)
            return None
        name = operator_of(call)
        if name == _ALLOCATE:
            return self.new_view(call.ty, "arena")
        if name in _SAME_MEMORY or (name == _VIEW and _starts_at_zero(call)):
            source, shape = self._value(call.args[0]), static_shape(call)
            if isinstance(source, _View) and shape is not None:
                return _View(source.storage, str(call.ty.dtype), shape)
        raise _unplanned(name or type(call.op).__name__)

    def _run(self, kernel: str, call: relax.Call) -> None:
        arguments = []
        for argument in call.args:
            value = self._value(argument)
            if not isinstance(value, _View):
                raise _unplanned(f"{kernel}, which takes more than tensors")
            arguments.append(value)
        threads = 1 if sum(map(_nbytes, arguments)) <= _SMALL else 0
        place = self._emit(KernelCall(kernel, tuple(map(self._number, arguments)), threads), arguments)
        if (number := mark_of(call)) is not None:
            self._kernels[place] = number

    def _slice(self, function: tvm.tirx.PrimFunc, call: relax.Call) -> bool:
        """Make the results of a copying kernel parts of its operand's memory; returns False if the kernel must run."""
        offsets = pieces_of(function, SLICES)
        if not offsets:
            return False
        views = self._views_of(call)
        if len(views) != 1 + len(offsets) or self._returned.intersection(call.args):
            return False
        whole, *parts = views
        root = whole.storage.root()
        if root.place != "arena" or not all(map(_is_new, parts)):
            return False
        for part, offset in zip(parts, offsets, strict=True):
            part.storage.become(whole.storage, offset)
        root.holds_pieces = True
        return True

    def _join(self, function: tvm.tirx.PrimFunc, call: relax.Call) -> bool:
        """Place the operands of a copying kernel in its result's memory; returns False if the kernel must run.

        Operands that cannot be there, since they are inputs, weights, or parts of other memory, are copied.
        """
        offsets = pieces_of(function, JOINS)
        if not offsets:
            return False
        views = self._views_of(call)
        if len(views) != 1 + len(offsets) or call.args[-1] in self._returned or not _is_new(views[-1]):
            return False
        *parts, whole = views
        whole.storage.holds_pieces = True
        for part, offset in zip(parts, offsets, strict=True):
            root = part.storage.root()
            if root.place == "arena" and _fills(part, root):
                root.become(whole.storage, offset)
            else:
                target = _View(_Storage("arena", _nbytes(part)), part.dtype, part.shape)
                target.storage.become(whole.storage, offset)
                self._copy(part, target)
        return True

    def _views_of(self, call: relax.Call) -> list[_View]:
        """The tensors that a kernel is called with; empty where an argument is no tensor."""
        views = [view for argument in call.args if isinstance(view := self._value(argument), _View)]
        return views if len(views) == len(call.args) else []

    def _branch(self, expression: relax.If) -> _Value:
        """Plan both branches so that their results are in the same memory; a branch that cannot write there copies."""
        condition = self._value(expression.cond)
        if not isinstance(condition, _View) or not _nbytes(condition):
            raise _unplanned("If without a tensor as its condition")
        branch = self._emit(Branch(self._number(condition), 0), [condition])
        merged = _like(expression.ty, self)
        targets = list(_leaves(merged))
        self._merge(expression.true_branch, targets)
        jump = self._emit(Jump(0), [])
        otherwise = len(self._operations)
        self._merge(expression.false_branch, targets)
        if len(self._operations) == otherwise:
            self._operations.pop()
            otherwise = jump
        else:
            self._operations[jump] = Jump(len(self._operations))
        self._operations[branch] = Branch(self._number(condition), otherwise)
        return merged

    def _merge(self, body: Any, targets: Sequence[_View]) -> None:
        start = next(self._serial)
        results = list(_leaves(self._value(body)))
        made = set()
        for result, target in zip(results, targets, strict=True):
            source, storage = result.storage.root(), target.storage.root()
            own = source.place == "arena" and source.number > start and source.nbytes == storage.nbytes
            own = own and not source.holds_pieces and not result.storage.behind
            if own and source not in made:
                source.become(storage)
                made.add(storage)
            else:
                self._copy(result, target)

    def _copy(self, source: _View, target: _View) -> None:
        if _nbytes(target):
            self._emit(Copy(self._number(source), self._number(target)), [source, target])

    def _emit(self, operation: Operation, views: Iterable[_View]) -> int:
        """Append an operation that uses the views; returns its number."""
        number = len(self._operations)
        for view in views:
            view.storage.root().use(number, number)
        self._operations.append(operation)
        return number

    def _constant(self, constant: tvm.ir.GenericConst) -> _View:
        key = constant.value.__chandle__()
        if key not in self._constants:
            self._constants[key] = self.new_view(constant.ty, "weights", len(self._weights))
            self._weights.append(constant.value)
        return self._constants[key]

    def new_view(self, kind: Any, place: Place, offset: int = 0) -> _View:
        """A tensor of a type in new memory; raises a `BuildError` for types that a plan does not support."""
        shape = shape_of(kind)
        if shape is None:
            raise _unplanned(f"a value of type {kind}")
        dtype = str(kind.dtype)
        try:
            element_kind(dtype)
        except ValueError:
            raise _unplanned(f"a tensor of {dtype}") from None
        nbytes = PlannedTensor(place, 0, dtype, shape).nbytes
        storage = _Storage(place, nbytes, offset, next(self._serial))
        self._storages.append(storage)
        return _View(storage, dtype, shape)

    def _number(self, view: _View) -> int:
        key = (id(view.storage), view.dtype, view.shape)
        if key not in self._numbers:
            self._numbers[key] = len(self._views)
            self._views.append(view)
        return self._numbers[key]


def _like(kind: Any, planner: _Planner) -> _Value:
    """New tensors in the arena for a value of a type."""
    if isinstance(kind, relax.TupleType):
        return tuple(_like(field, planner) for field in kind.fields)
    return planner.new_view(kind, "arena")


def _leaves(value: _Value) -> Iterator[_View]:
    if value is None:
        raise _unplanned("a result that is no tensor")
    if isinstance(value, _View):
        yield value
    else:
        for field in value:
            yield from _leaves(field)


def _planned(view: _View) -> PlannedTensor:
    storage = view.storage.root()
    return PlannedTensor(storage.place, storage.offset + view.storage.behind, view.dtype, view.shape)


def _fills(view: _View, storage: _Storage) -> bool:
    """Whether a tensor fills a storage, and is not empty."""
    return storage.nbytes == _nbytes(view) > 0


def _is_new(view: _View) -> bool:
    """Whether a tensor of the arena fills its memory, which no operation uses yet and which is not merged."""
    storage = view.storage
    return storage.place == "arena" and storage.same_as is None and storage.first < 0 and _fills(view, storage)


def _returned(main: relax.Function) -> set[relax.Var]:
    """The variables whose memory the function returns."""
    values = {binding.var: binding.value for binding in bindings_of(main)}
    found: set[relax.Var] = set()
    pending = [main.body.body]
    while pending:
        expression = pending.pop()
        if isinstance(expression, relax.Var):
            found.add(expression)
            pending += [values[expression]] if expression in values else []
        elif isinstance(expression, relax.Tuple):
            pending += list(expression.fields)
        elif isinstance(expression, relax.TupleGetItem):
            pending.append(expression.tuple_value)
        elif operator_of(expression) in _SAME_MEMORY | {_VIEW}:
            pending.append(expression.args[0])
    return found


def _starts_at_zero(call: relax.Call) -> bool:
    """Whether a call of `relax.memory.view` has no offset in bytes."""
    offset = call.args[3] if len(call.args) > 3 else None
    return offset is None or (isinstance(offset, tvm.tirx.IntImm) and int(offset.value) == 0)


def _nbytes(view: _View) -> int:
    return PlannedTensor("arena", 0, view.dtype, view.shape).nbytes


def _unplanned(operator: str) -> BuildError:
    return BuildError(f"cannot be planned: {operator}")
