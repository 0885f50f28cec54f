"""Proves that a kernel accesses each of its buffers inside of its bounds, for all values of its loop variables.

What is proven is the kernel as it is before the compiler flattens its buffers, when each index still belongs to one
axis.  Every element that is loaded or stored is looked at, and every region that is given to a function in LLVM's
language (`tvm_access_ptr`, whose extent its writer states).  First the compiler's own analyzer bounds an index.  Where
that does not suffice, the index is written as a sum of multiples of variables, and conditions that hold there are
subtracted from it, as a linear program says how often each (Farkas' lemma).

An index that the kernel loads is known as far as what was stored is: see `Proof.results`.  Three things are taken for
granted: elements are written before they are read, integers do not overflow, and what the compiler does afterwards is
right.  An open extent of an operand is not zero.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.instrument import PassInstrument
from tvm.target import codegen
from tvm.tirx.buffer import BufferType

from kintune.compiler.tir import called, nodes_in
from kintune.core.dtypes import numpy_dtype

__all__ = ["Interval", "Proof", "keeping_lowered", "lowered_kernels", "prove"]

Interval: TypeAlias = tuple[int, int]
"""The least and the greatest value, both included."""

_NEXT = "tirx.FlattenBuffer"  # the pass before which functions are looked at
_FEW = 4  # values of a variable that are looked at one by one, at most
_CHOICES = 8  # choices in an index that are looked at one by one, at most
_MOST_LINES = 4  # accesses that are not proven, after which a kernel is looked at no closer
_FAR = 1 << 30  # from where on a bound is none
_FACTS_FIRST = 2  # that are tried before a linear program is solved
_MOST_FACTS = 80  # that a bound of an index may follow from
_NEARLY = 1e-6  # what rounding may add to a solution
_MOST_PARTS = 1 << 16  # of one, in fractions
_LONGEST = 160  # characters of an access in a message

_WIDE = "int64"
_LIMITS = {"bool": (0, 1)} | {
    f"{sign}int{bits}": (0, (1 << bits) - 1) if sign else (-(1 << bits - 1), (1 << bits - 1) - 1)
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}
_WHOLE = _LIMITS["int64"]
_EXTENTS = tvm.sym.ConstIntBound(1, (1 << 31) - 1)  # of operands
_PREFETCH = "llvm.prefetch"


class Proof(NamedTuple):
    """What is known of the accesses of a kernel.

    `accesses` is their number, and `unproven` has a line for each that may lie outside.  `written` has the positions of
    the parameters in which it stores.  `results` has the interval of what these hold where that is integers.
    """

    accesses: int
    unproven: tuple[str, ...]
    written: tuple[int, ...] = ()
    results: dict[int, Interval] = {}  # noqa: RUF012 - a default of a tuple


_KEPT = threading.local()


class _Keeper(PassInstrument):  # type: ignore[misc]
    """Keeps the functions that this thread compiles, once all blocks are loops.

    There is one for all threads, since the compiler never frees what it calls in Python.
    """

    def run_before_pass(self, module: tvm.IRModule, info: Any) -> None:
        """Keep the functions before the pass that flattens buffers."""
        if str(info.name) == _NEXT:
            _KEPT.functions.update({str(key.name_hint): each for key, each in module.functions_items()})

    def should_run(self, _module: tvm.IRModule, _info: Any) -> bool:
        """Whether to go on: not where the functions are all that is wanted."""
        return not (_KEPT.suffices and _KEPT.functions)


@cache
def _keeper() -> _Keeper:
    return _Keeper()


@contextmanager
def keeping_lowered(**options: Any) -> Iterator[dict[str, tirx.PrimFunc]]:
    """A context of compiler passes with these options, and the functions compiled in it as `prove` reads them."""
    with tvm.transform.PassContext(instruments=[_keeper()], **options):
        _KEPT.functions, _KEPT.suffices = {}, False
        yield _KEPT.functions


def prove(function: tirx.PrimFunc, ranges: Mapping[int, Interval] | None = None) -> Proof:
    """Prove the accesses of a function that `keeping_lowered` has kept.

    `ranges` has the interval of the elements of a parameter of integers, by its position, as far as it is known.
    """
    return _Prover(function, ranges or {}).proof()


def lowered_kernels(module: tvm.IRModule, target: tvm.target.Target) -> dict[str, tirx.PrimFunc]:
    """The functions of a module as `prove` reads them, by name."""
    with target, keeping_lowered() as functions:
        _KEPT.suffices = True
        pipeline, *_ = tirx.get_tir_pipeline("default")
        pipeline(tirx.transform.BindTarget(target.with_host(target))(module))
    return functions


class _Linear(NamedTuple):
    """A sum of multiples of terms, and a constant."""

    terms: dict[Any, Fraction]
    constant: Fraction

    def plus(self, other: _Linear, times: Fraction = Fraction(1)) -> _Linear:
        """The sum of this one and so many times the other."""
        terms = dict(self.terms)
        for term, factor in other.terms.items():
            terms[term] = terms.get(term, Fraction(0)) + times * factor
            if not terms[term]:
                del terms[term]
        return _Linear(terms, self.constant + times * other.constant)


_ONE = Fraction(1)


class _Prover:
    """Walks a function; what holds at the statement that it looks at is in `_analyzer` and `_facts`.

    Terms of linear sums are variables, or numbers of expressions in `_opaque`.
    """

    def __init__(self, function: tirx.PrimFunc, ranges: Mapping[int, Interval]) -> None:
        self._function = function
        self._analyzer = tvm.sym.Analyzer()
        self._nbytes: dict[Any, Any] = {}  # numbers, or expressions of the extents of operands
        self._sizes: set[Any] = set()  # variables that are extents of operands
        self._given_ranges: dict[Any, Interval] = {}
        self._ranges: dict[Any, Interval] = {}
        self._sought: set[Any] = set()  # buffers whose intervals are being found
        self._stored: dict[Any, list[Any]] = {}
        self._written: set[Any] = set()  # by functions that are not of this language
        self._facts: list[_Linear] = []
        self._bound: dict[Any, Any] = {}
        self._opaque: list[Any] = []
        self._numbers: dict[int, list[int]] = {}
        self._constant: dict[int, list[tuple[Any, Any]]] = {}  # variables for loads from what is never stored to
        self._passing: dict[int, list[tuple[Any, Any]]] = {}  # variables for other loads of the same statement
        self._accesses = 0
        self._vectors = 0  # loops around that become vectors
        self._looked_at: dict[Any, list[tuple[Any, bool]]] = {}  # indices, where the same facts hold
        self._about: dict[Any, list[_Linear]] = {}  # terms, where the same facts hold
        self._ranks: dict[Any, int] = {}
        self._unproven: list[str] = []
        for position, parameter in enumerate(function.params):
            if isinstance(parameter.ty, BufferType):
                self._own(parameter)
                if position in ranges:
                    self._given_ranges[parameter] = ranges[position]
        self._scan()

    def proof(self) -> Proof:
        """The proof of all accesses."""
        self._statement(self._function.body)
        places = [
            place for place, each in enumerate(self._function.params) if each in self._stored or each in self._written
        ]
        found = {place: self._range_of(self._function.params[place]) for place in places}
        results = {place: values for place, values in found.items() if values is not None}
        return Proof(self._accesses, tuple(dict.fromkeys(self._unproven)), tuple(places), results)

    # ---- what is known before the walk ----

    def _own(self, buffer: Any) -> None:
        """Note the memory of a buffer; a buffer of unknown size has none, and no access to it can be proven.

        Extents of parameters may be variables: whoever calls the function checks that they are those of its tensors.
        """
        given = any(buffer.same_as(each) for each in self._function.params)  # it begins where its memory does
        begins = given or buffer.ty.elem_offset is None or _constant(buffer.ty.elem_offset) == 0
        plain = begins and not list(buffer.ty.strides)
        if given:
            for variable in itertools.chain.from_iterable(nodes_in(extent, tirx.Var) for extent in buffer.shape):
                if variable not in self._sizes:
                    self._analyzer.update(variable, _EXTENTS, True)
                    self._sizes.add(variable)
            sizes = [
                extent for extent in buffer.shape if _constant(extent) is None and not isinstance(extent, tirx.Var)
            ]
            for fact in (self._linear(extent - 1) for extent in sizes):
                self._facts += self._with_definitions([fact])
                for variable, factor in fact.terms.items():
                    if isinstance(variable, tirx.Var) and len(fact.terms) == 1 and factor > 0:
                        least = max(math.ceil(-fact.constant / factor), int(self._box(variable)[0]))
                        self._analyzer.update(variable, tvm.sym.ConstIntBound(least, _EXTENTS.max_value), True)
        if plain and (size := _itemsize(_type_of(buffer))):
            self._nbytes[buffer] = _product([*buffer.shape, size])

    def _scan(self) -> None:
        """Collect what is stored in buffers of integers, and the intervals of loop variables, outer loops first."""
        loops: list[Any] = []

        def store(found: Any) -> None:
            self._stored.setdefault(found.buffer, []).append(found.value)

        def call(found: Any) -> None:
            if called(found) == "tirx.tvm_access_ptr" and _constant(found.args[4]) != 1:
                self._written.add(_owner(found.args[1]))
            elif called(found) in ("tirx.address_of", "tirx.tvm_call_packed", "tirx.tvm_stack_make_array"):
                tvm_ffi.structural_walk(found, [(tirx.Var, self._written.add)])

        kinds = [(tirx.For, loops.append), (tirx.BufferStore, store), (tvm.ir.Call, call)]
        tvm_ffi.structural_walk(self._function.body, kinds, order=tvm_ffi.WalkOrder.PREORDER)
        if len({loop.loop_var for loop in loops}) < len(loops):
            self._note("two loops have the same variable")
        for loop in loops:
            minimum, extent = self._plain(loop.min), self._plain(loop.extent)
            self._analyzer.bind(loop.loop_var, tvm.ir.Range.from_min_extent(minimum, extent), True)

    def _range_of(self, buffer: Any) -> Interval | None:
        """The interval of what a buffer holds, if that is integers; None for a buffer whose interval is being found.

        An element that is copied from one place of a buffer to another one adds nothing to what the buffer holds.
        """
        limits = _LIMITS.get(_type_of(buffer))
        if limits is None or buffer in self._written:
            return limits
        if buffer not in self._stored:
            return self._given_ranges.get(buffer, limits)
        if buffer in self._sought:
            return None
        if buffer in self._ranges:
            return self._ranges[buffer]
        self._sought.add(buffer)
        found: Interval | None = None
        for value in self._stored[buffer]:
            found = _joined(found, self._interval(value))
        self._sought.remove(buffer)
        if not self._sought:
            self._ranges[buffer] = found = found or limits
        return found

    def _interval(self, value: Any) -> Interval | None:
        """The interval of an integer that is stored; None where it is an element of a buffer that is being found."""
        limits = _LIMITS.get(str(value.ty))
        if limits is None:  # a vector
            return self._range_of(value.source) if isinstance(value, tvm.ir.TensorLoad) else _WHOLE
        if isinstance(value, tvm.ir.TensorLoad) and self._range_of(value.source) is None:
            return None
        if (choice := _choice(value)) is not None:
            condition, first, second = choice
            with self._given(condition):
                found = self._interval(first)
            with self._given(condition, holds=False):
                return _joined(found, self._interval(second))
        if isinstance(value, tirx.Min | tirx.Max):
            one, other = self._interval(value.a), self._interval(value.b)
            if one is None or other is None:
                return one or other
            choose = min if isinstance(value, tirx.Min) else max
            return choose(one[0], other[0]), choose(one[1], other[1])
        if isinstance(value, tirx.Cast) and str(value.value.ty) in _LIMITS:
            found = self._interval(value.value)
            return found if found is None or _within(found, limits) else limits
        if isinstance(value, tirx.Cast):
            return self._truncated(value) or limits
        if isinstance(value, tirx.Var) and value in self._bound:
            return self._interval(self._bound[value])
        if self._depends(value):
            return limits
        low, high = self._box(self._plain(value))
        return int(max(low, limits[0])), int(min(high, limits[1]))

    def _depends(self, value: Any) -> bool:
        """Whether a value is computed from elements of buffers whose intervals are being found."""
        return any(load.source in self._sought for load in nodes_in(value, tvm.ir.TensorLoad))

    # ---- the walk ----

    def _statement(self, statement: Any) -> None:
        self._passing = {}
        match statement:
            case tirx.BufferStore():
                self._expressions(statement.value, *statement.indices)
                self._access(statement.buffer, statement.indices)
            case tirx.SeqStmt():
                for each in statement.seq:
                    self._statement(each)
            case tirx.For():
                self._expressions(statement.min, statement.extent)
                with self._within_loop(statement):
                    self._vectors += statement.kind == tirx.ForKind.VECTORIZED
                    self._statement(statement.body)
                    self._vectors -= statement.kind == tirx.ForKind.VECTORIZED
            case tirx.IfThenElse():
                self._expressions(statement.condition)
                with self._given(statement.condition):
                    self._statement(statement.then_case)
                if statement.else_case is not None:
                    with self._given(statement.condition, holds=False):
                        self._statement(statement.else_case)
            case tirx.Bind():
                self._expressions(statement.value)
                self._bind(statement.var, statement.value)
            case tirx.AttrStmt():
                self._statement(statement.body)
            case tirx.Evaluate() if called(statement.value) == "tirx.buffer_data":
                pass
            case tirx.Evaluate():
                self._expressions(statement.value)
            case tirx.AllocBuffer():
                self._own(statement.buffer)
            case tirx.DeclBuffer():
                self._view(statement)
            case tirx.While():
                self._expressions(statement.condition)
                with self._given(statement.condition):
                    self._statement(statement.body)
            case tirx.AssertStmt():
                self._expressions(statement.condition)
            case tirx.Break() | tirx.Continue() | tirx.Return():
                pass
            case _:
                self._note(f"a statement that is not known: {type(statement).__name__}")

    def _view(self, declared: Any) -> None:
        """A buffer that is another name for the memory of one, or for its beginning."""
        self._own(declared.buffer)
        owner = _owner(declared.data)
        own, whole = self._nbytes.get(declared.buffer), self._nbytes.get(owner, 0)
        if own is None or not self._below(own, whole + 1):
            self._nbytes.pop(declared.buffer, None)
        self._written |= {declared.buffer, owner}

    def _bind(self, variable: Any, value: Any) -> None:
        if str(variable.ty) not in _LIMITS:
            self._bound[variable] = value
            return
        plain = self._plain(value)
        self._bound[variable] = plain
        low, high = self._box(plain)
        if math.isfinite(low) and math.isfinite(high):
            self._analyzer.update(variable, tvm.sym.ConstIntBound(int(low), int(high)), True)

    @contextmanager
    def _within_loop(self, loop: Any) -> Iterator[None]:
        """What holds in a loop whose extent is no constant: it is positive there, so `max(extent, 0)` is the extent."""
        extent = loop.extent
        if _constant(loop.min) is not None and _constant(extent) is not None:
            yield
            return
        if isinstance(extent, tirx.Max) and _constant(extent.b) == 0:
            extent = extent.a
        with self._given(loop.loop_var >= loop.min), self._given(loop.loop_var < loop.min + extent):
            yield

    @contextmanager
    def _given(self, condition: Any, *, holds: bool = True) -> Iterator[None]:
        """A context in which the condition holds, or does not."""
        plain = self._truth(self._plain(condition))
        known, looked_at, about = len(self._facts), self._looked_at, self._about
        self._facts += self._with_definitions(self._facts_of(plain, holds))
        self._looked_at, self._about = {}, {}
        try:
            with self._analyzer.constraint_scope(plain if holds else _negated(plain)):
                yield
        finally:
            del self._facts[known:]
            self._looked_at, self._about = looked_at, about

    def _truth(self, condition: Any) -> Any:
        """A condition in terms of comparisons, as far as it is one in disguise."""
        if called(condition) == "tirx.likely":
            return self._truth(condition.args[0])
        if isinstance(condition, tirx.Var) and condition in self._bound:
            return self._truth(self._bound[condition])
        if isinstance(condition, tirx.And | tirx.Or):
            return type(condition)(self._truth(condition.a), self._truth(condition.b))
        if isinstance(condition, tirx.Not):
            return tirx.Not(self._truth(condition.a))
        if isinstance(condition, tirx.Cast):
            source = condition.value
            return self._truth(source) if str(source.ty) == "bool" else condition
        if isinstance(condition, tirx.LT) and _constant(condition.a) == 0:
            return self._truth_of_number(condition.b, condition)
        if isinstance(condition, tirx.GT | tirx.NE) and _constant(condition.b) == 0:
            return self._truth_of_number(condition.a, condition)
        return condition

    def _truth_of_number(self, number: Any, condition: Any) -> Any:
        """What a condition says that a number is not 0, if that is a truth value."""
        is_truth = isinstance(number, tirx.Cast) and str(number.value.ty) == "bool"
        return self._truth(number.value) if is_truth else condition

    def _facts_of(self, condition: Any, holds: bool) -> list[_Linear]:
        """Sums that are not negative where the condition holds, or does not."""
        match condition:
            case tirx.And() | tirx.Or():
                if isinstance(condition, tirx.And) != holds:
                    return []
                return [*self._facts_of(condition.a, holds), *self._facts_of(condition.b, holds)]
            case tirx.Not():
                return self._facts_of(condition.a, not holds)
            case tirx.LT() | tirx.LE() | tirx.GT() | tirx.GE() | tirx.EQ() | tirx.NE():
                if str(condition.a.ty) not in _LIMITS:
                    return []
                one, other = self._linear(condition.a), self._linear(condition.b)
                up, down = other.plus(one, -_ONE), one.plus(other, -_ONE)
                strictly = _Linear({}, -_ONE)
                if isinstance(condition, tirx.EQ if holds else tirx.NE):
                    return [up, down]
                if isinstance(condition, tirx.EQ | tirx.NE):  # where it is at an end of what is possible
                    ends = [each for each in (up, down) if self._least(each) == 0]
                    return [each.plus(strictly) for each in ends]
                if isinstance(condition, tirx.LT if holds else tirx.GE):
                    return [up.plus(strictly)]
                if isinstance(condition, tirx.LE if holds else tirx.GT):
                    return [up]
                if isinstance(condition, tirx.GT if holds else tirx.LE):
                    return [down.plus(strictly)]
                return [down]
        return []

    # ---- accesses ----

    def _expressions(self, *expressions: Any) -> None:
        """Look at all loads and calls in expressions, those under a choice where it is made.

        Vectors of both values of a `Select` are loaded, whatever its condition is.
        """

        def load(found: Any) -> None:
            self._access(found.source, found.indices)

        def choose(found: Any) -> Any:
            choice = None if self._vectors and isinstance(found, tirx.Select) else _choice(found)
            if choice is None and isinstance(found, tirx.Select):
                return None
            if choice is None:
                return self._call(found)
            condition, first, second = choice
            self._expressions(condition)
            with self._given(condition):
                self._expressions(first)
            with self._given(condition, holds=False):
                self._expressions(second)
            return tvm_ffi.WalkResult.SKIP

        kinds = [(tvm.ir.TensorLoad, load), ((tirx.Select, tvm.ir.Call), choose)]
        for expression in expressions:
            if isinstance(expression, tirx.IntImm | tirx.Var):
                continue
            tvm_ffi.structural_walk(expression, kinds, order=tvm_ffi.WalkOrder.PREORDER)

    def _call(self, call: Any) -> Any:
        """Look at the regions that a call is given; returns whether to skip its arguments."""
        name = called(call)
        if name == "tirx.call_llvm_intrin":
            if codegen.llvm_get_intrinsic_name(int(call.args[0].value)).startswith(_PREFETCH):
                return tvm_ffi.WalkResult.SKIP
        elif name == "tirx.tvm_access_ptr":
            self._region(*call.args[:4])
            self._expressions(*call.args[2:4])
            return tvm_ffi.WalkResult.SKIP
        elif name == "tirx.address_of":
            self._accesses += 1
            self._note(f"{_spelled(call.args[0])}: its address is given away without an extent")
        elif name == "tirx.tvm_stack_make_array":
            self._accesses += 1
            if not self._describes(call):
                self._note(f"{_spelled(call)}: an array that is larger than its buffer")
            return tvm_ffi.WalkResult.SKIP
        elif name == "tirx.buffer_data":
            self._accesses += 1
            self._note(f"{_spelled(call.args[0])}: its address is given away without an extent")
            return tvm_ffi.WalkResult.SKIP
        return None

    def _describes(self, call: Any) -> bool:
        """Whether an array that is given to a function of the runtime has no more elements than its buffer."""
        data, shape, _, _, element, offset = call.args[:6]
        extents = [_constant(extent) for extent in shape.args]
        if None in extents or _constant(offset) not in (None, 0):
            return False
        nbytes = math.prod(each for each in extents if each is not None) * _itemsize(str(element.ty.dtype))
        return self._below(nbytes, self._nbytes.get(_owner(data), 0) + 1)

    def _region(self, kind: Any, data: Any, offset: Any, extent: Any) -> None:
        """Look at a region of elements, `extent` from number `offset` on."""
        self._accesses += 1
        if _constant(extent) == 0:  # an address that is only prefetched from
            return
        owner, size = _owner(data), _itemsize(str(kind.ty.dtype))
        if (nbytes := self._nbytes.get(owner)) is None:
            self._note(f"{owner.name}: its size is not known")
            return
        number = nbytes // size if isinstance(nbytes, int) else self._analyzer.simplify(nbytes // size)
        if not self._between(offset, 0, None) or not self._below(offset + extent, number + 1):
            text = f"{owner.name}, {_spelled(extent)} elements from {_spelled(offset)} on"
            self._note(f"{text}: {number} elements, {self._why(offset)}, {self._why(offset + extent)}")

    def _note(self, line: str) -> None:
        """Take in an access that is not proven; the first few are enough to know."""
        if len(self._unproven) < _MOST_LINES:
            self._unproven.append(line)

    def _access(self, buffer: Any, indices: Sequence[Any]) -> None:
        """Look at the access to an element, or to a vector."""
        self._accesses += 1
        if buffer not in self._nbytes:
            self._note(f"{buffer.name}: its size is not known")
            return
        extents = [extent if (known := _constant(extent)) is None else known for extent in buffer.shape]
        outside = [
            (end, extent)
            for index, extent in zip(indices, extents, strict=True)
            for end in _ends(index)
            if not self._is_index(end, extent)
        ]
        if not outside or self._is_inside(indices, extents):
            return
        end, extent = outside[0]
        text = f"{buffer.name}[{', '.join(map(_spelled, indices))}]"
        self._note(f"{text}: {self._why(end)} in an axis of {extent}")

    def _is_index(self, index: Any, extent: Any) -> bool:
        """Whether an index is one of an axis of this extent."""
        if isinstance(extent, int):
            return self._between(index, 0, extent - 1)
        return self._between(index, 0, None) and self._below(index, extent)

    def _below(self, value: Any, end: Any) -> bool:
        """Whether a value is less than another one; both may be numbers."""
        if isinstance(end, int):
            return value < end if isinstance(value, int) else self._between(value, None, end - 1)
        return self._between(end - value, 1, None)

    def _is_inside(self, indices: Sequence[Any], extents: Sequence[Any]) -> bool:
        """Whether indices lead to an element of the buffer, though not by each axis for itself."""
        if len(extents) < 2:
            return False
        *outer, last = indices
        offset: Any = tirx.IntImm("int64", 0)
        for index, extent in zip(outer, extents, strict=False):
            offset = offset * extent + index
        return all(self._is_index(offset * extents[-1] + end, _product(extents)) for end in _ends(last))

    def _why(self, index: Any) -> str:
        """What is known of an index, for a message."""
        low, high = self._box(self._plain(index))
        return f"{_spelled(index)} is from {_bound_text(low)} to {_bound_text(high)}"

    # ---- arithmetic ----

    def _between(self, index: Any, low: int | None, high: int | None, choices: int = _CHOICES) -> bool:
        """Whether an index lies between two numbers, both included; None is no bound."""
        if isinstance(index, tirx.IntImm):
            return (low is None or low <= int(index.value)) and (high is None or int(index.value) <= high)
        found = self._analyzer.const_int_bound(index)
        if (low is None or found.min_value >= low) and (high is None or found.max_value <= high):
            return True
        if len(self._unproven) >= _MOST_LINES:  # this is known to be no proof, so it need not take long
            return False
        known = self._looked_at.setdefault((tvm_ffi.structural_hash(index), low, high), [])
        for each, answer in known:
            if tvm_ffi.structural_equal(each, index):
                return answer
        known.append((index, self._is_inside_closely(index, low, high, choices)))
        return known[-1][1]

    def _is_inside_closely(self, index: Any, low: int | None, high: int | None, choices: int) -> bool:
        """Whether an index lies between two numbers, by what holds here and by the choices in it."""
        index = self._plain(index)
        if self._is_between(index, low, high):
            return True
        index = self._analyzer.simplify(index)
        choice = _first_choice(index)
        if choice is not None and choices:
            return all(self._chosen(index, choice, holds, low, high, choices - 1) for holds in (True, False))
        factor = self._factor(index)
        if factor is not None and choices:
            first, last = map(int, self._box(factor))
            each = (_with_value(index, factor, value) for value in range(first, last + 1))
            return all(self._between(found, low, high, choices - 1) for found in each)
        return self._is_between(index, low, high)

    def _factor(self, index: Any) -> Any:
        """What has few values, in a product with variables: a variable, or a quotient or rest; None if there is none.

        The direction in a recurrent layer is one: with direction `d`, step s of n is `s + d * (n - 1 - 2 * s)`.
        """
        for product in nodes_in(index, tirx.Mul):
            sides = [nodes_in(side, (tirx.Var, tirx.FloorDiv, tirx.FloorMod)) for side in (product.a, product.b)]
            for part in itertools.chain.from_iterable(sides if all(sides) else ()):
                low, high = self._box(part)
                if high - low < _FEW:
                    return part
        return None

    def _is_between(self, index: Any, low: int | None, high: int | None) -> bool:
        """Whether an index as a sum lies between two numbers."""
        linear = self._linear(index)
        above = low is None or self._nonnegative(linear.plus(_Linear({}, -_ONE * low)))
        return above and (high is None or self._nonnegative(_Linear({}, _ONE * high).plus(linear, -_ONE)))

    def _chosen(self, index: Any, choice: Any, holds: bool, low: int | None, high: int | None, choices: int) -> bool:
        """Whether an index lies between two numbers where the condition of a choice in it holds, or does not."""
        condition, first, second = _choice(choice) or (None, None, None)
        value = first if holds else second
        kinds = [((tirx.Select, tvm.ir.Call, tirx.Cast), lambda found: value if found.same_as(choice) else found)]
        with self._given(condition, holds=holds):
            return self._between(tvm_ffi.structural_map(index, kinds), low, high, choices)

    def _nonnegative(self, linear: _Linear) -> bool:
        """Whether a sum is never negative."""
        if self._least(linear) >= 0:
            return True
        for term, factor in linear.terms.items():
            ends, size = next(iter(self._by_size(term)), (self._expression(term), None))
            if isinstance(ends, tirx.Min | tirx.Max):  # it is one of the two
                rest = linear.plus(_Linear({term: _ONE}, Fraction(0)), -factor)
                each_times = (self._times(self._linear(each), size) for each in (ends.a, ends.b))
                either = (rest.plus(each, factor) for each in each_times)
                if isinstance(ends, tirx.Max if factor < 0 else tirx.Min) and all(map(self._nonnegative, either)):
                    return True
        return self._follows(linear) or any(map(self._follows, self._without_quotients(linear)))

    def _without_quotients(self, linear: _Linear) -> Iterator[_Linear]:
        """The sum and 1, times an extent that a quotient in it has as divisor, less 1: both are negative or neither."""
        one = _Linear({}, _ONE)
        for term in linear.terms:
            found = self._expression(term)
            if isinstance(found, tirx.FloorDiv) and found.b in self._sizes:
                yield self._times(linear.plus(one), found.b).plus(one, -_ONE)

    def _follows(self, linear: _Linear) -> bool:
        """Whether what holds here, each a number of times, leaves a sum that is never negative if it is taken away.

        Where not one or two facts suffice, of which each cancels a term, these numbers are a solution of a linear
        program (Farkas' lemma); the rest is computed from fractions near them.
        """
        if self._cancelled(linear, _FACTS_FIRST):
            return True
        facts, places = self._related(linear)
        if not facts:
            return False
        from scipy.optimize import linprog  # takes a third of a second

        boxes = [self._near_box(term) for term in places]
        matrix = np.zeros((len(facts), len(places)))
        for row, fact in enumerate(facts):
            for term, factor in fact.terms.items():
                matrix[row, places[term]] = -float(factor)
        objective = [float(linear.terms.get(term, 0)) for term in places]
        solved = linprog(objective, matrix, [float(fact.constant) for fact in facts], bounds=boxes, method="highs")
        if solved.status != 0 or solved.fun + float(linear.constant) < _NEARLY - 1:
            return False
        rest = linear
        for fact, times in zip(facts, solved.ineqlin.marginals, strict=True):
            rest = rest.plus(fact, -Fraction(max(-float(times), 0.0)).limit_denominator(_MOST_PARTS))
        return self._cancelled(rest, 0)

    def _cancelled(self, linear: _Linear, most: int) -> bool:
        """Whether at most so many facts leave a sum that is never negative, each taken as often as cancels a term."""
        if self._least(linear) > -1:  # a whole number, as all terms are
            return True
        for term, factor in linear.terms.items() if most else ():
            for fact in self._of_term(term):
                times = factor / fact.terms[term] if term in fact.terms else 0
                if times > 0 and self._cancelled(linear.plus(fact, -Fraction(times)), most - 1):
                    return True
        return False

    def _of_term(self, term: Any) -> list[_Linear]:
        """What holds of a term here, and by its definition."""
        if term not in self._about:
            self._about[term] = [*(each for each in self._facts if term in each.terms), *self._facts_about(term)]
        return self._about[term]

    def _related(self, linear: _Linear) -> tuple[list[_Linear], dict[Any, int]]:
        """What holds of the terms of a sum, and of the terms in this; and the places of all terms."""
        places = {term: at for at, term in enumerate(linear.terms)}
        facts: dict[tuple[Any, ...], _Linear] = {}
        waiting = list(places)
        for term in waiting:  # which grows
            for fact in self._of_term(term):
                if len(facts) < _MOST_FACTS:
                    facts.setdefault((frozenset(fact.terms.items()), fact.constant), fact)
                    new = [other for other in fact.terms if other not in places]
                    places.update(zip(new, itertools.count(len(places))))
                    waiting += new
        return list(facts.values()), places

    def _near_box(self, term: Any) -> tuple[float | None, float | None]:
        """The interval of a term; None for an end that is far."""
        low, high = self._box(self._expression(term))
        return low if low > -_FAR else None, high if high < _FAR else None

    def _least(self, linear: _Linear) -> Fraction | float:
        """A number than which a sum is not less, by the intervals of its terms."""
        least = linear.constant
        for term, factor in linear.terms.items():
            low, high = self._box(self._expression(term))
            end = low if factor > 0 else high
            if not math.isfinite(end):
                return -math.inf
            least += factor * int(end)
        return least

    def _facts_about(self, term: Any) -> list[_Linear]:
        """Sums that are never negative, by the definition of a term."""
        found = self._expression(term)
        own = _Linear({term: _ONE}, Fraction(0))
        match found:
            case tirx.Min():
                return [self._linear(each).plus(own, -_ONE) for each in (found.a, found.b)]
            case tirx.Max():
                return [own.plus(self._linear(each), -_ONE) for each in (found.a, found.b)]
            case tirx.FloorDiv() | tirx.FloorMod():
                divisor = _constant(found.b)
                if divisor is None and isinstance(found, tirx.FloorMod) and self._box(found.b)[0] > 0:
                    return [self._linear(found.b).plus(own, -_ONE).plus(_Linear({}, -_ONE))]
                if divisor is None or divisor <= 0:
                    return []
                whole, part = self._linear(found.a), Fraction(divisor)
                if isinstance(found, tirx.FloorMod):
                    quotient = self._analyzer.simplify(tirx.FloorDiv(found.a, found.b))
                    rest = whole.plus(self._linear(quotient), -part).plus(own, -_ONE)
                    same = [rest, _Linear({}, Fraction(0)).plus(rest, -_ONE)]
                    return [whole.plus(own, -_ONE), *same] if self._box(found.a)[0] >= 0 else same
                over = whole.plus(own, -part)
                return [over, _Linear({}, part - 1).plus(over, -_ONE)]
            case tirx.Mul():  # of two terms, of which one is not negative, and the other one lies between numbers
                facts = []
                for one, other in ((found.a, found.b), (found.b, found.a)):
                    low, high = self._box(other)
                    if self._box(one)[0] >= 0 and max(abs(low), abs(high)) < _FAR:
                        facts.append(own.plus(self._linear(one), -_ONE * int(low)))
                        facts.append(
                            _Linear({}, Fraction(0)).plus(self._linear(one), _ONE * int(high)).plus(own, -_ONE)
                        )
                for other, size in self._by_size(term):
                    if isinstance(other, tirx.FloorDiv) and other.b.same_as(size):
                        whole = self._linear(other.a)
                        facts += [whole.plus(own, -_ONE), own.plus(self._linear(size - 1)).plus(whole, -_ONE)]
                for other, size in self._by_size(term):  # what is not negative stays so, times a size
                    for part in self._linear(other).terms:
                        known = [fact for fact in self._facts if part in fact.terms]
                        facts += [self._times(fact, size) for fact in (*known, *self._facts_about(part))]
                return facts
        return []

    def _by_size(self, term: Any) -> list[tuple[Any, Any]]:
        """What a term is a multiple of, and the extent of an operand that it is multiplied by."""
        found = self._expression(term)
        if not isinstance(found, tirx.Mul):
            return []
        return [(one, other) for one, other in ((found.a, found.b), (found.b, found.a)) if other in self._sizes]

    def _times(self, linear: _Linear, size: Any) -> _Linear:
        """A sum times an extent; the sum itself for None."""
        return linear if size is None else self._multiplied(linear, self._linear(size))

    def _with_definitions(self, facts: list[_Linear]) -> list[_Linear]:
        """The sums, and those about quotients and rests in them, which need not occur in an index that is looked at."""
        found, seen = list(facts), set[Any]()
        for fact in found:  # which grows
            for term in set(fact.terms) - seen:
                seen.add(term)
                if isinstance(self._expression(term), tirx.FloorDiv | tirx.FloorMod):
                    found += self._facts_about(term)
        return found

    def _linear(self, value: Any) -> _Linear:
        """An expression as a sum of multiples of terms."""
        match value:
            case tirx.IntImm():
                return _Linear({}, Fraction(int(value.value)))
            case tirx.Var():
                bound = self._bound.get(value)
                return _Linear({value: _ONE}, Fraction(0)) if bound is None else self._linear(bound)
            case tirx.Add():
                return self._linear(value.a).plus(self._linear(value.b))
            case tirx.Sub():
                return self._linear(value.a).plus(self._linear(value.b), -_ONE)
            case tirx.Mul():
                one, other = self._linear(value.a), self._linear(value.b)
                if one.terms and other.terms:
                    return self._multiplied(one, other)
                if one.terms:
                    one, other = other, one
                return _Linear({}, Fraction(0)).plus(other, one.constant)
            case tirx.Cast():
                source, limits = str(value.value.ty), _LIMITS.get(str(value.ty))
                if source in _LIMITS and limits is not None and _within(self._box(value.value), limits):
                    return self._linear(value.value)
            case tirx.FloorDiv():  # `(n - 1) // 6` is `(n + 5) // 6 - 1`: the constant is one of the rests
                divisor = _constant(value.b)
                if divisor is not None and divisor > 0 and (more := self._linear(value.a).constant // divisor):
                    inner = self._analyzer.simplify(value.a - more * divisor)
                    return self._term(tirx.FloorDiv(inner, value.b)).plus(_Linear({}, Fraction(more)))
        return self._term(value)

    def _multiplied(self, one: _Linear, other: _Linear) -> _Linear:
        """The product of two sums, whose terms are multiplied out."""
        total = _Linear({}, one.constant * other.constant)
        total = total.plus(one._replace(constant=Fraction(0)), other.constant)
        total = total.plus(other._replace(constant=Fraction(0)), one.constant)
        for (term, factor), (second, by) in itertools.product(one.terms.items(), other.terms.items()):
            first, last = sorted((term, second), key=self._rank)  # any order, but the same for the same terms
            product = tirx.Mul(*(_in_64_bits(self._expression(each)) for each in (first, last)))
            total = total.plus(self._term(product), factor * by)
        return total

    def _term(self, value: Any) -> _Linear:
        """An expression that is a term of its own; equal ones are the same term."""
        alike = self._numbers.setdefault(tvm_ffi.structural_hash(value), [])
        for number in alike:
            if tvm_ffi.structural_equal(self._opaque[number], value):
                return _Linear({number: _ONE}, Fraction(0))
        alike.append(len(self._opaque))
        self._opaque.append(value)
        return _Linear({alike[-1]: _ONE}, Fraction(0))

    def _rank(self, term: Any) -> int:
        """The number of a term in the order in which they are asked for."""
        return self._ranks.setdefault(term, len(self._ranks))

    def _expression(self, term: Any) -> Any:
        return self._opaque[term] if isinstance(term, int) else term

    def _box(self, value: Any) -> tuple[float, float]:
        """The interval in which the analyzer knows an expression to lie."""
        found = self._analyzer.const_int_bound(value)
        infinite = tvm.sym.ConstIntBound.POS_INF
        low, high = int(found.min_value), int(found.max_value)
        return -math.inf if low <= -infinite else low, math.inf if high >= infinite else high

    def _truncated(self, cast: Any) -> Interval | None:
        """The interval of a float that is made an integer; None where it may be too large, or not a number."""
        low, high, may_be_nan = _real_interval(cast.value, self._bound)
        if may_be_nan or not (math.isfinite(low) and math.isfinite(high)):
            return None
        found, limits = (math.trunc(low), math.trunc(high)), _LIMITS.get(str(cast.ty))
        return found if limits is not None and _within(found, limits) else None

    def _plain(self, value: Any) -> Any:
        """An expression with a variable in place of each load of an integer, the same one for equal loads.

        So is each float that is made an integer; variables that are bound to values are these values.
        """

        def load(found: Any) -> Any:
            if str(found.ty) not in _LIMITS:
                return found
            changes = found.source in self._stored or found.source in self._written
            values = self._range_of(found.source)  # None while it is being found
            return self._variable(found, values, self._passing if changes else self._constant)

        def cast(found: Any) -> Any:
            if str(found.ty) not in _LIMITS or str(found.value.ty) in _LIMITS:
                return found
            return self._variable(found, self._truncated(found), self._passing)

        def variable(found: Any) -> Any:
            return self._bound[found] if found in self._bound and str(found.ty) in _LIMITS else found

        return tvm_ffi.structural_map(value, [(tvm.ir.TensorLoad, load), (tirx.Cast, cast), (tirx.Var, variable)])

    def _variable(self, value: Any, values: Interval | None, known: dict[int, list[tuple[Any, Any]]]) -> Any:
        """A variable in place of a value of some interval; the same one for equal values that are known."""
        alike = known.setdefault(tvm_ffi.structural_hash(value), [])
        for each, variable in alike:
            if tvm_ffi.structural_equal(each, value):
                return variable
        variable = tirx.Var("element", str(value.ty))
        low, high = values or _LIMITS[str(value.ty)]
        infinite = tvm.sym.ConstIntBound.POS_INF
        known_interval = max(low, -infinite), min(high, infinite)
        self._analyzer.update(variable, tvm.sym.ConstIntBound(*known_interval), True)
        alike.append((value, variable))
        return variable


def _negated(condition: Any) -> Any:
    """What holds where a condition does not."""
    kinds = {tirx.LT: tirx.GE, tirx.GE: tirx.LT, tirx.LE: tirx.GT, tirx.GT: tirx.LE, tirx.EQ: tirx.NE, tirx.NE: tirx.EQ}
    if type(condition) in kinds:
        return kinds[type(condition)](condition.a, condition.b)
    if isinstance(condition, tirx.And | tirx.Or):
        join = tirx.Or if isinstance(condition, tirx.And) else tirx.And
        return join(_negated(condition.a), _negated(condition.b))
    return condition.a if isinstance(condition, tirx.Not) else tirx.Not(condition)


def _choice(value: Any) -> tuple[Any, Any, Any] | None:
    """The condition and the two values of a choice; None for other expressions.

    A truth value as a number is a choice as well.
    """
    if isinstance(value, tirx.Select):
        return value.condition, value.true_value, value.false_value
    if isinstance(value, tirx.Cast) and str(value.value.ty) == "bool" and str(value.ty) in _LIMITS:
        return value.value, tirx.IntImm(str(value.ty), 1), tirx.IntImm(str(value.ty), 0)
    if called(value).endswith(".if_then_else"):
        return value.args[0], value.args[1], value.args[2]
    return None


def _with_value(index: Any, part: Any, value: int) -> Any:
    """An index with a number in place of a part of it."""
    number, equal = tirx.IntImm(str(part.ty), value), tvm_ffi.structural_equal
    return tvm_ffi.structural_map(index, [(type(part), lambda found: number if equal(found, part) else found)])


def _first_choice(value: Any) -> Any:
    """A choice in an expression that has no further ones in it; None if it has none."""
    found = nodes_in(value, (tirx.Select, tvm.ir.Call, tirx.Cast))
    return next((each for each in found if _choice(each) is not None), None)


def _ends(index: Any) -> list[Any]:
    """The first and the last of a vector of indices."""
    if isinstance(index, tirx.Ramp):
        return [index.base, index.base + index.stride * (int(index.lanes) - 1)]
    return [index.value if isinstance(index, tirx.Broadcast) else index]


_ROUNDED: dict[str, Callable[[float], float]] = {
    "tirx.floor": math.floor,
    "tirx.ceil": math.ceil,
    "tirx.trunc": math.trunc,
    "tirx.round": round,
    "tirx.nearbyint": round,
}


def _real_interval(value: Any, bound: Mapping[Any, Any]) -> tuple[float, float, bool]:
    """The least and the greatest value of a float, and whether it may be not a number.

    A minimum or maximum with something that is not a number is its second operand, as compiled code has it.
    """
    anything = -math.inf, math.inf, True
    if isinstance(value, tirx.FloatImm):
        number = float(value.value)
        return (number, number, False) if math.isfinite(number) else anything
    if isinstance(value, tirx.Var):
        return _real_interval(bound[value], bound) if value in bound else anything
    if isinstance(value, tirx.Min | tirx.Max):
        one, other = _real_interval(value.a, bound), _real_interval(value.b, bound)
        low, high = other[:2]
        if isinstance(value, tirx.Min):
            low = min(low, one[0])
            high = high if one[2] else min(high, one[1])
        else:
            high = max(high, one[1])
            low = low if one[2] else max(low, one[0])
        return low, high, other[2]
    if (choice := _choice(value)) is not None:
        one, other = (_real_interval(each, bound) for each in choice[1:])
        return min(one[0], other[0]), max(one[1], other[1]), one[2] or other[2]
    if called(value) in _ROUNDED:
        low, high, may_be_nan = _real_interval(value.args[0], bound)
        rounded = _ROUNDED[called(value)]
        low, high = (rounded(each) if math.isfinite(each) else each for each in (low, high))
        return low, high, may_be_nan
    return anything


def _owner(data: Any) -> Any:
    """The buffer whose address an expression is."""
    return data.args[0] if called(data) == "tirx.buffer_data" else data


def _constant(value: Any) -> int | None:
    if value is None or isinstance(value, int):
        return value
    return int(value.value) if isinstance(value, tirx.IntImm) else None


def _product(numbers: Sequence[Any]) -> Any:
    """The product of numbers, or an expression in 64 bits where some are expressions."""
    known = [_constant(each) for each in numbers]
    product = math.prod(each for each in known if each is not None)
    wide = (each.astype("int64") for each, number in zip(numbers, known, strict=True) if number is None)
    return functools.reduce(operator.mul, wide, product)


def _type_of(buffer: Any) -> str:
    return str(getattr(buffer, "dtype", ""))


def _itemsize(dtype: str) -> int:
    """The bytes of an element, or of a vector of them; 0 for elements of other sizes."""
    scalar, _, lanes = dtype.partition("x")
    try:
        return numpy_dtype(scalar).itemsize * int(lanes or 1)
    except (AttributeError, TypeError, ValueError):
        return 0


def _joined(one: Interval | None, other: Interval | None) -> Interval | None:
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


def _in_64_bits(value: Any) -> Any:
    return value if str(value.ty) == _WIDE else tirx.Cast(_WIDE, value)


def _within(inner: tuple[float, float], outer: tuple[float, float]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _spelled(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _bound_text(value: float) -> str:
    return f"{value:.0f}" if math.isfinite(value) else "anything"
