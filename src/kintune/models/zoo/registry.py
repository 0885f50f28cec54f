"""The zoo's networks by name; each is described in a module of its own, imported when it is asked for."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from kintune.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kintune.models.zoo.network import ZooNetwork

__all__ = ["build", "check", "names"]

_NETWORKS = {
    "bert_base": ("bert", "BERT_BASE"),
    "bert_large": ("bert", "BERT_LARGE"),
    "gpt2": ("gpt2", "GPT2"),
    "mobilenet_v1_0.5": ("mobilenet", "MOBILENET_V1_0_5"),
    "mobilenet_v2": ("mobilenet", "MOBILENET_V2"),
    "mobilenet_v2_0.5": ("mobilenet", "MOBILENET_V2_0_5"),
    "resnet18": ("resnet", "RESNET18"),
    "resnet50": ("resnet", "RESNET50"),
    "resnet152": ("resnet", "RESNET152"),
    "roberta_large": ("bert", "ROBERTA_LARGE"),
    "vit_base": ("vit", "VIT_BASE"),
    "vit_huge": ("vit", "VIT_HUGE"),
}
"""Name -> (module, the constant that holds its configuration)."""

_OPTIONS = {
    "bert": ("batch", "sequence", "layers"),
    "gpt2": ("batch", "sequence", "layers"),
    "mobilenet": ("batch", "image"),
    "resnet": ("batch", "image"),
    "vit": ("batch", "image", "layers"),
}
"""Module -> the options its networks take: images a batch, tokens, pixels a side, and layers kept of a transformer."""

_SMALLEST_IMAGE = 32
_LARGEST_BATCH = 4096
_LARGEST_IMAGE = 4096


def names() -> tuple[str, ...]:
    """All names, in alphabetical order."""
    return tuple(sorted(_NETWORKS))


def check(name: str, options: Mapping[str, int]) -> None:
    """Refuse an unknown name, or an option that the network does not take or cannot have.

    Raises:
        ModelError: naming what is wrong and what there is.
    """
    if name not in _NETWORKS:
        close = difflib.get_close_matches(name, names(), n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise ModelError(f"zoo:{name}: no such network; {hint}there are {', '.join(names())}")
    module, _ = _NETWORKS[name]
    known = _OPTIONS[module]
    for option, value in options.items():
        if option not in known:
            raise ModelError(f"zoo:{name}: no option {option!r}; it takes {', '.join(known)}")
        if value < 1:
            raise ModelError(f"zoo:{name}: {option} must be at least 1, not {value}")
    if options.get("batch", 1) > _LARGEST_BATCH:
        raise ModelError(f"zoo:{name}: batch must be at most {_LARGEST_BATCH}, not {options['batch']}")


def build(name: str, **options: int) -> ZooNetwork:
    """Build the network `name`; its weights are described but not drawn.

    `options`: `batch` (default 1), `sequence` (tokens), `image` (pixels a side), `layers` (keep only the first ones, to
    get a small relative of a transformer), as far as the network has them.

    Raises:
        ModelError: for an unknown name or an option it cannot have.
    """
    check(name, options)
    module_name, constant = _NETWORKS[name]
    module = import_module(f"kintune.models.zoo.{module_name}")
    config: Any = getattr(module, constant)
    for option, value in options.items():
        if option != "batch":
            _check_limit(name, config, option, value)
    changed = {option: value for option, value in options.items() if option != "batch"}
    built: ZooNetwork = module.build(msgspec.structs.replace(config, **changed), options.get("batch", 1))
    return built


def _check_limit(name: str, config: Any, option: str, value: int) -> None:
    """Refuse what the published sizes of `config` do not allow."""
    if option == "layers" and value > config.layers:
        raise ModelError(f"zoo:{name}: layers must be at most {config.layers}, not {value}")
    if option == "sequence":
        taken = 0 if getattr(config, "padding", None) is None else config.padding + 1
        if value > config.positions - taken:
            raise ModelError(f"zoo:{name}: sequence must be at most {config.positions - taken}, not {value}")
    if option == "image":
        patch = getattr(config, "patch", 1)
        if not _SMALLEST_IMAGE <= value <= _LARGEST_IMAGE or value % patch:
            multiple = f" and a multiple of {patch}" if patch > 1 else ""
            raise ModelError(
                f"zoo:{name}: image must be between {_SMALLEST_IMAGE} and {_LARGEST_IMAGE}{multiple}, not {value}"
            )
