"""Write a network of the zoo as an ONNX file, its weights drawn from a seed."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from onnx import ModelProto, TensorProto, helper

from kintune.core.candidate import digest_of
from kintune.models.zoo.network import OPSET
from kintune.models.zoo.registry import build

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from kintune.models.zoo.network import ZooNetwork

__all__ = ["EXTERNAL_FROM", "render", "write"]

EXTERNAL_FROM = 2_000_000_000
"""Bytes of weights from which they are written beside the file: a protobuf message ends at 2 GiB."""

_IR_VERSION = 8  # the one that came with operator set 17
_ALIGNMENT = 4096  # lets readers map the weights


def write(name: str, directory: Path | str, *, seed: int = 0, **options: int) -> Path:
    """Write the network `name` into `directory` and return the ONNX file's path.

    The file's name has a digest of all that determines its content, so an existing file is not written again.
    `options` are those of `kintune.models.zoo.build`.

    Raises:
        ModelError: for an unknown name or option.
        OSError: when the directory cannot be written.
    """
    return render(build(name, **options), Path(directory), seed)


def render(network: ZooNetwork, directory: Path, seed: int, external_from: int = EXTERNAL_FROM) -> Path:
    """Write `network` with weights drawn from `seed`, and return the path.

    Weights of `external_from` bytes or more in total are written to a second file beside it.

    Raises:
        OSError: when the directory cannot be written.
    """
    external = network.nbytes >= external_from
    path = directory / f"{network.name}-{_key(network, seed, external)}.onnx"
    if path.exists():
        return path
    directory.mkdir(parents=True, exist_ok=True)
    if external:
        data = path.with_name(f"{path.name}.data")
        _replace(data, lambda file: _write_weights(network, seed, file))
        model = _model(network, [*network.constants, *_external_tensors(network, data.name)])
    else:
        model = _model(network, [*network.constants, *_embedded_tensors(network, seed)])
    _replace(path, lambda file: file.write(model.SerializeToString()))
    return path


def _key(network: ZooNetwork, seed: int, external: bool) -> str:
    """Digest of what decides the file's content."""
    skeleton = _model(network, list(network.constants)).SerializeToString(deterministic=True)
    weights = repr([(w.name, w.shape, w.centre, w.spread) for w in network.weights])
    return digest_of(skeleton, weights.encode(), f"{seed} {external}".encode())[:12]


def _model(network: ZooNetwork, tensors: list[TensorProto]) -> ModelProto:
    graph = helper.make_graph(
        network.nodes,
        network.name,
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in network.inputs],
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in network.outputs],
        tensors,
    )
    opset = helper.make_opsetid("", OPSET)
    model: ModelProto = helper.make_model(graph, producer_name="kintune", opset_imports=[opset], ir_version=_IR_VERSION)
    return model


def _embedded_tensors(network: ZooNetwork, seed: int) -> list[TensorProto]:
    return [
        TensorProto(name=w.name, dims=w.shape, data_type=TensorProto.FLOAT, raw_data=w.values(seed).tobytes())
        for w in network.weights
    ]


def _external_tensors(network: ZooNetwork, location: str) -> list[TensorProto]:
    tensors = []
    offset = 0
    for weight in network.weights:
        tensor = TensorProto(
            name=weight.name, dims=weight.shape, data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL
        )
        length = 4 * weight.size
        for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
            tensor.external_data.add(key=key, value=value)
        tensors.append(tensor)
        offset = _aligned(offset + length)
    return tensors


def _write_weights(network: ZooNetwork, seed: int, file: BinaryIO) -> None:
    for weight in network.weights:
        file.seek(_aligned(file.tell()))
        file.write(weight.values(seed).data)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def _replace(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Let `fill` write the file, which appears under its name only when it is whole."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            fill(file)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
