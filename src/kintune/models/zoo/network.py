"""A network as nodes and weight descriptions: small, whatever the size of its weights.

Weights are described, not drawn: a network of a billion parameters can be built, counted and compared in
milliseconds, and is drawn weight by weight when it is written.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper

__all__ = ["OPSET", "NetworkBuilder", "Port", "Weight", "WeightRole", "ZooNetwork"]

OPSET = 17
"""The ONNX operator set of every network of the zoo."""

Port: TypeAlias = tuple[str, int, tuple[int, ...]]
"""A graph input or output: name, ONNX element type, shape."""

_CHUNK = 1 << 22


class WeightRole(str, Enum):
    """Whether a weight counts as a parameter."""

    PARAMETER = "parameter"
    STATISTIC = "statistic"  # a batch norm's running mean or variance: data, but not a parameter


class Weight(msgspec.Struct, frozen=True):
    """A float32 tensor drawn uniformly from `centre - spread` to `centre + spread`."""

    name: str
    shape: tuple[int, ...]
    centre: float
    spread: float
    role: WeightRole = WeightRole.PARAMETER

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)

    def values(self, seed: int) -> NDArray[np.float32]:
        """The numbers, flat, little-endian; they depend on `seed` and the weight alone, not on its neighbours.

        Raw 32-bit words of PCG64 are scaled by hand: the stream of a NumPy bit generator is guaranteed for ever, those
        of its distributions are not, and a zoo model has to be the same file everywhere.
        """
        key = hashlib.sha256(f"{seed}/{self.name}".encode()).digest()
        stream = np.random.PCG64(int.from_bytes(key[:16], "little"))
        drawn = np.empty(self.size, "<f4")
        for start in range(0, self.size, _CHUNK):
            part = drawn[start : start + _CHUNK]
            words = np.asarray(stream.random_raw((part.size + 1) // 2), "<u8").view("<u4")[: part.size]
            np.multiply(words >> np.uint32(8), np.float32(2.0**-23), out=part, casting="unsafe")
            part -= np.float32(1.0)
            part *= np.float32(self.spread)
            part += np.float32(self.centre)
        return drawn


class ZooNetwork(msgspec.Struct, frozen=True):
    """A finished network.  `constants` are small tensors that are part of its structure (shapes, masks, indices)."""

    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    nodes: tuple[NodeProto, ...]
    weights: tuple[Weight, ...]
    constants: tuple[TensorProto, ...]

    @property
    def parameters(self) -> int:
        """The number of trainable parameters, as papers and frameworks count them."""
        return sum(weight.size for weight in self.weights if weight.role is WeightRole.PARAMETER)

    @property
    def nbytes(self) -> int:
        """Bytes of all weights."""
        return 4 * sum(weight.size for weight in self.weights)


class NetworkBuilder:
    """Collects nodes and weights; every method that adds a node returns the name of its (first) output."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._inputs: list[Port] = []
        self._nodes: list[NodeProto] = []
        self._weights: dict[str, Weight] = {}
        self._constants: dict[str, TensorProto] = {}

    def input(self, name: str, shape: Sequence[int], elem_type: int = TensorProto.FLOAT) -> str:
        """Add a graph input."""
        self._inputs.append((name, elem_type, tuple(shape)))
        return name

    def weight(
        self,
        name: str,
        shape: Sequence[int],
        std: float,
        *,
        centre: float = 0.0,
        role: WeightRole = WeightRole.PARAMETER,
    ) -> str:
        """Describe a weight of standard deviation `std` around `centre`."""
        self._weights[name] = Weight(name, tuple(shape), centre, std * math.sqrt(3.0), role)
        return name

    def constant(self, values: NDArray[np.generic]) -> str:
        """Add a structural constant; equal ones are shared."""
        tensor = helper.make_tensor(
            "", helper.np_dtype_to_tensor_dtype(values.dtype), values.shape, values.tobytes(), raw=True
        )
        tensor.name = f"const_{hashlib.sha256(tensor.SerializeToString()).hexdigest()[:12]}"
        self._constants[tensor.name] = tensor
        name: str = tensor.name
        return name

    def ints(self, *values: int) -> str:
        """Add a constant vector of int64."""
        return self.constant(np.array(values, "<i8"))

    def scalar(self, value: float) -> str:
        """Add a constant float32 scalar."""
        return self.constant(np.array(value, "<f4"))

    def node(self, op: str, *inputs: str, name: str = "", **attributes: object) -> str:
        """Add a node with one output."""
        return self.nodes(op, *inputs, count=1, name=name, **attributes)[0]

    def nodes(self, op: str, *inputs: str, count: int, name: str = "", **attributes: object) -> list[str]:
        """Add a node with `count` outputs."""
        label = name or f"{op}_{len(self._nodes)}"
        outputs = [f"{label}_output_{i}" for i in range(count)]
        self._nodes.append(helper.make_node(op, list(inputs), outputs, name=label, **attributes))
        return outputs

    def finish(self, outputs: Sequence[tuple[str, str, Sequence[int]]]) -> ZooNetwork:
        """Return the network; its outputs, all float32, are given as (name of the output, name of the value, shape)."""
        for name, value, _ in outputs:
            self._nodes.append(helper.make_node("Identity", [value], [name], name=f"output_{name}"))
        return ZooNetwork(
            name=self._name,
            inputs=tuple(self._inputs),
            outputs=tuple((name, TensorProto.FLOAT, tuple(shape)) for name, _, shape in outputs),
            nodes=tuple(self._nodes),
            weights=tuple(self._weights.values()),
            constants=tuple(self._constants.values()),
        )
