"""A Kintune executable on a board behind an RPC server, timed as a baseline is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import tvm

from kintune.core.model import Tensor
from kintune.core.stage_results import BOARD_FILE
from kintune.errors import InputError, OrderError
from kintune.measure.rpc.address import parse_address
from kintune.measure.rpc.session import RpcSession
from kintune.runtime.inputs import Array
from kintune.runtime.package import VmPackage
from kintune.runtime.tensors import array_of, leaves_of, tensor_of

__all__ = ["BoardExecutable"]

_MAIN, _RUN = "main", "invoke_stateful"
_PATIENCE_S = 200.0  # for the session before, whose process may have been ended while the board still runs


class BoardExecutable:
    """A network on a board, run by TVM's virtual machine.

    Weights and inputs are sent once, and the board's own clock is read.
    """

    def __init__(self, address: str) -> None:
        self._address = parse_address(address)
        self._session: RpcSession | None = None
        self._tensors: tuple[Tensor, ...] = ()
        self._weights: list[Any] = []
        self._machine: Any = None

    def prepare(self, path: str, threads: int, inputs: Mapping[str, Array]) -> None:
        """Opens the file beside `path` that is for the virtual machine, and sends everything to the board.

        Raises:
            InputError: it is no Kintune executable, or was built with another compiler.
            DeviceError: the server cannot be used.
        """
        package = VmPackage.open(f"{path}{BOARD_FILE}")
        if package.manifest.tvm != tvm.__version__:
            raise InputError(f"{path}: built with TVM {package.manifest.tvm}, and TVM {tvm.__version__} is installed")
        self._session = session = RpcSession(self._address, threads, _PATIENCE_S)
        device = session.device
        self._machine = tvm.runtime.vm.VirtualMachine(session.load(package.library), device)
        self._weights = [tensor_of(block).copyto(device) for block in package.weights]
        self._tensors = package.manifest.inputs
        self.feed(inputs)
        self._timed = self._machine.time_evaluator(_RUN, device, number=1, repeat=1)
        self._has_run = False

    def feed(self, inputs: Mapping[str, Array]) -> None:
        """Sends these inputs for the runs that follow."""
        if self._session is None:
            raise OrderError("the network was not sent yet; prepare it first")
        sent = [_sent(inputs[tensor.name], tensor, self._session.device) for tensor in self._tensors]
        self._machine.set_input(_MAIN, *sent, *self._weights)

    def perturb_weights(self, seed: int) -> None:
        """Does nothing: its weights stay as they are."""

    def run_timed(self) -> tuple[float, list[Array]]:
        """Runs once, and returns the seconds on the board and the outputs.

        The first run is timed from here: the board's clock can only time a function that has run before.
        """
        if self._has_run:
            seconds = float(self._timed(_MAIN).results[0])
        else:
            start = time.perf_counter()
            self._machine.invoke_stateful(_MAIN)
            seconds, self._has_run = time.perf_counter() - start, True
        outputs = leaves_of(self._machine.get_outputs(_MAIN))
        return seconds, [array_of(leaf.copyto(tvm.cpu())) for leaf in outputs]


def _sent(array: Array, tensor: Tensor, device: Any) -> Any:
    """Returns an input as a tensor on the board."""
    here = tvm.runtime.empty(array.shape, tensor.dtype)
    array_of(here)[...] = array
    return here.copyto(device)
