"""Exports networks of `transformers` configurations with random weights to ONNX files.

    pip install --target EXTRA transformers onnxscript
    PYTHONPATH=EXTRA python benchmarks/export_models.py FOLDER [--further] [--torchscript] [--only NAME]...

Nothing is downloaded: every configuration is built here, reduced so that a file has less than 60 MB.  Shapes are fixed.
`FOLDER` gets the files of `benchmarks/compare_exports.toml`, one `NAME.onnx` each; those that are there already are
left alone.  With `--further` it gets other networks instead, which nothing was built for.  With `--torchscript` the
older exporter of PyTorch writes them, as far as it can.  It needs PyTorch, `transformers` and `onnxscript`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import logging
import sys
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from exported_networks import FURTHER, NETWORKS, Network

__all__ = ["export", "main"]

_OPSET, _OLD_OPSET = 18, 14
_LARGEST = 60e6  # bytes
_NEEDED = ("torch", "transformers", "onnxscript")


def export(network: Network, path: Path, *, torchscript: bool = False) -> None:
    """Write the network to `path`, whole or not at all.

    Raises:
        Exception: whatever `transformers` or the exporter raises; `ValueError` where the file is too large.
    """
    import torch
    import transformers

    torch.manual_seed(0)
    kind = getattr(transformers, network.model)
    model = _made(kind, network, torchscript).eval()
    names = tuple(network.inputs)
    inputs = tuple(_value(name, shape) for name, shape in network.inputs.items())
    partial = path.with_suffix(".part")
    with torch.no_grad(), _quiet():
        _settle_norms(model, inputs, names)
        model = _Tensors(getattr(model, network.part) if network.part else model, names)
        by = (
            {"dynamo": False, "opset_version": _OLD_OPSET} if torchscript else {"dynamo": True, "opset_version": _OPSET}
        )
        torch.onnx.export(
            model, inputs, str(partial), **by, external_data=False, input_names=list(names), verbose=False
        )
    if (size := partial.stat().st_size) > _LARGEST:
        partial.unlink()
        raise ValueError(f"its file has {size / 1e6:.0f} MB, more than {_LARGEST / 1e6:.0f}")
    partial.replace(path)


def _made(kind: Any, network: Network, torchscript: bool) -> Any:
    """The model; for the older exporter with its attention written out, where it has a choice."""
    configuration = kind.config_class(**network.config)
    if torchscript:
        with contextlib.suppress(ValueError, TypeError):
            return kind._from_config(configuration, attn_implementation="eager")
    return kind(configuration)


def _settle_norms(model: Any, inputs: Sequence[Any], names: Sequence[str]) -> None:
    """Set the statistics of batch norms to those of a run, so that activations keep their size.

    Otherwise they shrink from layer to layer, to numbers so small that CPUs take many times as long for them.
    """
    import torch

    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    if norms:
        model(**{name: torch.cat([value, torch.randn_like(value)]) for name, value in zip(names, inputs, strict=True)})
    for norm in norms:
        norm.eval()


def _Tensors(model: Any, names: Sequence[str]) -> Any:  # noqa: N802 (a class that needs PyTorch)
    """The model with its inputs in order and only tensors as outputs, not those of its cache."""
    import torch

    class Tensors(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            found = self.model(**dict(zip(names, inputs, strict=True)), return_dict=True)
            return tuple(value for value in found.values() if isinstance(value, torch.Tensor))

    return Tensors().eval()


def _value(name: str, shape: Sequence[int]) -> Any:
    import torch

    if name == "input_ids":
        return torch.arange(shape[0] * shape[1]).reshape(tuple(shape)) % 1000 + 3
    return torch.ones(tuple(shape), dtype=torch.int64) if name == "attention_mask" else torch.randn(tuple(shape))


@contextlib.contextmanager
def _quiet() -> Any:
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def main() -> int:
    """Export what is missing and say what there is; the exit code is 1 if a file is missing afterwards."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--further", action="store_true", help="networks that nothing was built for")
    parser.add_argument("--torchscript", action="store_true", help="by PyTorch's older exporter")
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    options = parser.parse_args()
    networks = FURTHER if options.further else NETWORKS
    if unknown := sorted(set(options.only) - {network.name for network in networks}):
        print(f"--only {unknown[0]}: there is no such network among {len(networks)}", file=sys.stderr)
        return 2
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        print(f"{', '.join(missing)} is not installed: pip install {' '.join(missing)}", file=sys.stderr)
        return 2
    importlib.import_module("transformers").logging.set_verbosity_error()
    options.folder.mkdir(parents=True, exist_ok=True)
    wanted = [network for network in networks if not options.only or network.name in options.only]
    failed = 0
    for network in wanted:
        path = options.folder / f"{network.name}.onnx"
        if path.exists():
            continue
        try:
            export(network, path, torchscript=options.torchscript)
        except Exception as error:  # of one network; the others go on
            failed += 1
            said = (str(error).strip().splitlines() or [""])[0]
            print(f"{network.name}: cannot be exported: {type(error).__name__}: {said}", file=sys.stderr, flush=True)
    print(f"{options.folder}: {len(wanted) - failed} of {len(wanted)} files")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
