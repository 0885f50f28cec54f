"""Describes what a recurrent layer computes, as a value and as the text of an attribute.

The attribute `kintune.pattern` of a kernel is `Recurrence.text`; `parse_recurrence` reads it.  Does not import TVM.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = [
    "ACTIVATIONS",
    "BIDIRECTIONAL",
    "FORWARD",
    "GATES",
    "GRU",
    "LSTM",
    "PEEPHOLES",
    "REVERSE",
    "RNN",
    "VECTOR",
    "Recurrence",
    "parse_recurrence",
]

LSTM, GRU, RNN = "lstm", "gru", "rnn"
GATES = {LSTM: 4, GRU: 3, RNN: 1}
"""How many gates a cell has.  Their order: input, output, forget, cell (LSTM); update, reset, hidden (GRU)."""

ACTIVATIONS = {LSTM: ("sigmoid", "tanh", "tanh"), GRU: ("sigmoid", "tanh"), RNN: ("tanh",)}
"""The usual activations of a cell: of the gates, of the new values, and for an LSTM of the cell that is put out."""

PEEPHOLES = 3
"""How many gates of an LSTM may read the cell: input and forget gate the previous one, the output gate the new one."""

FORWARD, REVERSE, BIDIRECTIONAL = "forward", "reverse", "bidirectional"
_DIRECTIONS = (FORWARD, REVERSE, BIDIRECTIONAL)

_TEXT = re.compile(
    r"(?P<cell>lstm|gru|rnn) (?P<direction>[a-z]+) steps=(?P<steps>\d+) batch=(?P<batch>\d+) hidden=(?P<hidden>\d+)"
    r"(?P<after> reset_after)?(?P<lengths> lengths)?(?P<peepholes> peepholes)?(?P<coupled> coupled)?(?P<bytes> bytes)?"
    r"(?: clip=(?P<clip>[0-9.e+-]+))?(?: activations=(?P<activations>[a-z0-9:.,e+-]+))?"
)
VECTOR = 16
"""Units are padded to a multiple of this number: the float32 elements of a vector of 512 bits."""


@dataclass(frozen=True)
class Recurrence:
    """A layer of `batch` sequences of `steps` steps and `hidden` units in each direction.

    `reset_after` is of a GRU: the reset gate is applied after the product with the recurrent weights.  With `lengths`,
    each sequence has a length of its own.  `peepholes` are of an LSTM: its input, output and forget gates also read the
    cell.  An LSTM that is `coupled` has no forget gate of its own: it is 1 less the input gate.  With a `clip`, the
    inputs of gates and new values are limited to [-clip, clip].  `activations` are those of one direction after the
    other, in the order of `ACTIVATIONS`, each with its parameters ("elu:0.5"); none where they are the usual ones.

    The kernel takes, in order (`S` steps, `B` sequences, `D` directions, `G` gates, `H` units, all float32):

    - `projected` [S, B, D, G, H]: the products of the input with its weights, biases added;
    - `recurrent` [D, H, G, P]: the weights from each unit to each gate of each unit; P is `padded`, zeros beyond H;
    - `scales` float32, `offsets` int32 and `zeros` int32 [D, G, P], only with `quantised`, see below;
    - `bias` [D, H], only with `reset_after`: is added to the hidden gate's recurrent product;
    - `initial_h`, and for an LSTM `initial_c` [D, B, H];
    - `peepholes` [D, 3, H], only with `peepholes`: the weights from the cell of each unit to its first three gates;
    - `lengths` int32 [B], only with `lengths`, from 0 to S;

    and writes `y` [S, D, B, H], `last_h` and for an LSTM `last_c` [D, B, H].  After the end of a sequence, `y` is 0 and
    the states do not change; the states of a sequence of length 0 are 0.  A reversed direction starts at the end of the
    sequence.

    With `quantised` (an LSTM), `recurrent` is of int8 and stands for `(recurrent - zeros) * scales`.  `offsets` are the
    sums of `recurrent - zeros` over the units that are read.  In each step, the state of a sequence is quantised to
    uint8 by its own range, as DynamicQuantizeLinear of ONNX does, and products are summed in integers.
    """

    cell: str
    direction: str
    steps: int
    batch: int
    hidden: int
    reset_after: bool = False
    lengths: bool = False
    peepholes: bool = False
    coupled: bool = False
    quantised: bool = False
    clip: float = 0.0
    activations: tuple[str, ...] = ()

    @property
    def gates(self) -> int:
        """How many gates a cell has."""
        return GATES[self.cell]

    @property
    def directions(self) -> int:
        """The number of directions: 2 if it is bidirectional, else 1."""
        return 2 if self.direction == BIDIRECTIONAL else 1

    @property
    def padded(self) -> int:
        """`hidden`, rounded up to a multiple of `VECTOR`."""
        return -(-self.hidden // VECTOR) * VECTOR

    @property
    def operands(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The names and shapes of the tensors that the kernel reads."""
        s, b, d, g, h = self.steps, self.batch, self.directions, self.gates, self.hidden
        found: list[tuple[str, tuple[int, ...]]] = [("projected", (s, b, d, g, h))]
        found.append(("recurrent", (d, h, g, self.padded)))
        if self.quantised:
            found += [(name, (d, g, self.padded)) for name in ("scales", "offsets", "zeros")]
        if self.reset_after:
            found.append(("bias", (d, h)))
        found.append(("initial_h", (d, b, h)))
        if self.cell == LSTM:
            found.append(("initial_c", (d, b, h)))
        if self.peepholes:
            found.append(("peepholes", (d, PEEPHOLES, h)))
        if self.lengths:
            found.append(("lengths", (b,)))
        return tuple(found)

    @property
    def results(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """The names and shapes of the tensors that the kernel writes."""
        state = (self.directions, self.batch, self.hidden)
        found = [("y", (self.steps, *state)), ("last_h", state)]
        return (*found, ("last_c", state)) if self.cell == LSTM else tuple(found)

    def dtype(self, name: str) -> str:
        """The element type of an operand or a result."""
        if name == "recurrent" and self.quantised:
            return "int8"
        return "int32" if name in ("lengths", "offsets", "zeros") else "float32"

    @property
    def parameters(self) -> str:
        """The parameters of the kernel, as TVM's parser reads them: the operands, then the results."""
        ports = self.operands + self.results
        return ", ".join(f'{name}: T.Buffer({shape}, "{self.dtype(name)}")' for name, shape in ports)

    @property
    def text(self) -> str:
        """This recurrence as one line, which starts with the cell; `parse_recurrence` reads it."""
        flags = {
            " reset_after": self.reset_after,
            " lengths": self.lengths,
            " peepholes": self.peepholes,
            " coupled": self.coupled,
            " bytes": self.quantised,
            f" clip={self.clip!r}": bool(self.clip),
            f" activations={','.join(self.activations)}": bool(self.activations),
        }
        sizes = f"steps={self.steps} batch={self.batch} hidden={self.hidden}"
        return f"{self.cell} {self.direction} {sizes}" + "".join(flag for flag, given in flags.items() if given)

    def initial(self, name: str, index: str, row: str) -> str:
        """The initial state `name` at `index`, of the sequence `row`, as an expression of a kernel's text.

        It is 0 for a sequence of length 0, as onnxruntime's last states of such a sequence are.
        """
        value = f"{name}[{index}]"
        return f"T.Select(lengths[{row}] > 0, {value}, T.float32(0))" if self.lengths else value

    def time(self, step: str, direction: str, row: str) -> str:
        """The position in time that the loop over steps visits at `step`, in a direction of the sequence `row`.

        Arguments and result are expressions of a kernel's text.  After the end of the sequence, the result is `step`.
        """
        last = f"lengths[{row}]" if self.lengths else str(self.steps)
        if self.direction == FORWARD:
            return step
        reversed_ = f"{last} - 1 - {step}"
        if self.direction == REVERSE:
            return f"T.Select({step} < {last}, {reversed_}, {step})" if self.lengths else f"({reversed_})"
        if self.lengths:
            return f"T.Select({direction} == 1 and {step} < {last}, {reversed_}, {step})"
        return f"({step} + {direction} * ({last} - 1 - 2 * {step}))"


def parse_recurrence(text: str) -> Recurrence | None:
    """The recurrence that a text describes, as `Recurrence.text` writes it; None for any other text."""
    found = _TEXT.fullmatch(text)
    if found is None or found["direction"] not in _DIRECTIONS:
        return None
    steps, batch, hidden = (int(found[name]) for name in ("steps", "batch", "hidden"))
    after, lengths, peepholes, coupled, quantised = (
        found[name] is not None for name in ("after", "lengths", "peepholes", "coupled", "bytes")
    )
    return Recurrence(
        found["cell"],
        found["direction"],
        steps,
        batch,
        hidden,
        reset_after=after,
        lengths=lengths,
        peepholes=peepholes,
        coupled=coupled,
        quantised=quantised,
        clip=float(found["clip"] or 0.0),
        activations=tuple(filter(None, (found["activations"] or "").split(","))),
    )
