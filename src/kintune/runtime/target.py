"""Resolves the user's name of a target to the compiler's canonical description, and compares it with this machine.

The canonical target of a GPU names nothing of its host but the architecture, since the host only starts kernels.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import tvm
import tvm_ffi
from tvm.target import codegen

from kintune.core.capabilities import CPU, GPU, Capabilities, capabilities_of
from kintune.errors import TargetError
from kintune.hardware.cpu import extensions
from kintune.hardware.gpus import architecture_here

__all__ = [
    "NATIVE",
    "architecture_of",
    "at_level",
    "capabilities",
    "instruction_set",
    "missing_features",
    "resolve_target",
    "triple_of",
    "untuned_target",
]

NATIVE = "native"
"""The CPU this process runs on."""

_TRIPLES = ("x86_64-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu")
_UNTUNED_LEVEL = 2
_GPU_ARCHITECTURE = re.compile(r"sm_\d{2,3}[af]?")
_GPU_LIMITS = {"max_shared_memory_per_block": 48 << 10, "max_threads_per_block": 1024, "thread_warp_size": 32}
"""The limits of a kernel on every GPU without opting in to more."""

_SCALAR = frozenset({"bmi", "bmi2", "lzcnt", "movbe", "popcnt"})
"""The scalar extensions that a compiler uses by itself.  Others, such as those for operating systems, do not matter."""

_HELP = f'use "{NATIVE}", a name such as "{CPU}", or JSON such as {{"kind": "{CPU}", "mcpu": "skylake-avx512"}}'


def resolve_target(text: str, threads: int) -> str:
    """Returns the canonical target (JSON, keys sorted) that `text` names, for `threads` threads.

    `text` is "native", the compiler's name of a target or of a tag, options as older compilers took them
    (`llvm -mcpu=znver4`), or JSON.  A canonical target resolves to itself.  "cuda" is this machine's GPU; another one
    is named by its architecture (`cuda -arch=sm_90`) or its tag (`nvidia/geforce-rtx-3090`).

    Raises:
        TargetError: there is no such target, CPU or GPU, or it is neither a CPU nor a GPU; the message is one line.
    """
    text = text.strip()
    if not text:
        raise TargetError(f"no target was named; {_HELP}")
    try:
        target = tvm.target.Target(_native() if text == NATIVE else _with_architecture(_parse(text), text))
    except TargetError:
        raise
    except Exception as error:  # the compiler raises ValueError, TypeError and its own
        raise TargetError(f"unknown target {text!r}: {_reason(error)}; {_HELP}") from error
    config: dict[str, Any] = {key: _plain(value) for key, value in dict(target.export()).items() if value}
    config.pop("tag", None)
    if (resolve := _RESOLVERS.get(target.kind.name)) is None:
        raise TargetError(
            f"target {text!r} is neither a CPU nor a GPU of NVIDIA: this version tunes for {CPU} and {GPU} targets; "
            f"{_HELP}"
        )
    return json.dumps(resolve(config, text, threads), sort_keys=True)


def _resolve_cpu(config: dict[str, Any], text: str, threads: int) -> dict[str, Any]:
    config.setdefault("mtriple", _call("tvm.codegen.llvm.GetDefaultTargetTriple"))
    config["num-cores"] = threads
    cpu = config.get("mcpu")
    if cpu is not None and not codegen.llvm_is_valid_cpu(cpu, config["mtriple"]):
        triple = next((each for each in _TRIPLES if codegen.llvm_is_valid_cpu(cpu, each)), None)
        advice = _HELP if triple is None else f"it is of another architecture; name that too, as in -mtriple={triple}"
        raise TargetError(f"target {text!r}: the compiler knows no CPU {cpu!r} for {config['mtriple']}; {advice}")
    return config


def _resolve_gpu(config: dict[str, Any], text: str, threads: int) -> dict[str, Any]:
    del threads
    if not _GPU_ARCHITECTURE.fullmatch(str(config["arch"])):
        raise TargetError(f"target {text!r}: {config['arch']!r} is no architecture of a GPU such as sm_90; {_HELP}")
    triple = config.get("host", {}).get("mtriple") or str(_call("tvm.codegen.llvm.GetDefaultTargetTriple"))
    said = {"arch": str(config["arch"]).rstrip("af"), "keys": config["keys"], "kind": GPU}
    return {**said, **_GPU_LIMITS, "host": {"kind": CPU, "mtriple": triple}}


_RESOLVERS = {CPU: _resolve_cpu, GPU: _resolve_gpu}
"""How the compiler's options of each kind of target become canonical."""


def capabilities(target: tvm.target.Target) -> Capabilities:
    """Return what devices of a target can do; its extensions are those that LLVM may use, or a GPU's architecture.

    Raises:
        TargetError: it is of a kind that this version does not know.
    """
    return _capabilities(str(target))


@lru_cache(256)
def _capabilities(target: str) -> Capabilities:
    return capabilities_of(target, instruction_set(target))


def architecture_of(target: tvm.target.Target) -> str:
    """Returns the architecture in a target's triple, as `platform.machine()` names it."""
    return triple_of(target).split("-")[0]


def triple_of(target: tvm.target.Target) -> str:
    """Returns the triple of a target, or of a GPU's host; this machine's where it names none."""
    host = target if target.host is None else target.host
    return str(dict(host.export()).get("mtriple") or _call("tvm.codegen.llvm.GetDefaultTargetTriple"))


def untuned_target(target: tvm.target.Target) -> tvm.target.Target:
    """Returns the target with a lower level of optimisation, for untuned programs; unchanged where LLVM has no part.

    LLVM's third level of optimisation takes up to eighty times as long for them as its second (12 s for a 1x1
    convolution of 384 channels with a hard-swish), and makes them no faster.
    """
    if not capabilities(target).llvm_kernels:
        return target
    return at_level(target, _UNTUNED_LEVEL)


def at_level(target: tvm.target.Target, level: int) -> tvm.target.Target:
    """Returns the target with this level of optimisation by LLVM, from 0 to 3."""
    return tvm.target.Target({**_plain(target.export()), "opt-level": level})


def instruction_set(target: str) -> tuple[str, ...]:
    """Returns the extensions (vector, matrix) of a canonical target, sorted, or a GPU's architecture."""
    if capabilities_of(target).one_architecture:
        return (str(json.loads(target).get("arch", "")),)
    return extensions(_features(target))


def missing_features(target: str) -> tuple[str, ...]:
    """Returns the features that kernels for this canonical target may use and this machine lacks, as LLVM names them.

    For another architecture than this machine's, or its GPU's, that is the architecture's name.
    """
    here = str(_call("tvm.codegen.llvm.GetDefaultTargetTriple")).split("-")[0]
    config = json.loads(target)
    there = str(config.get("host", config)["mtriple"]).split("-")[0]
    if there != here:
        return (there,)
    if capabilities_of(target).one_architecture:
        return () if config["arch"] == architecture_here() else (str(config["arch"]),)
    return _absent(_features(target))


def _native() -> dict[str, Any]:
    """Returns this CPU as LLVM detects it, without the features that a hypervisor or the firmware hides."""
    cpu = str(_call("tvm.codegen.llvm.GetHostCPUName"))
    config = {"kind": CPU, "mtriple": str(_call("tvm.codegen.llvm.GetDefaultTargetTriple")), "mcpu": cpu}
    hidden = _absent(map(str, codegen.llvm_get_cpu_features(tvm.target.Target(config))))
    return {**config, "mattr": [f"-{feature}" for feature in hidden]} if hidden else config


def _with_architecture(parsed: str | dict[str, Any], text: str) -> str | dict[str, Any]:
    """Adds the architecture of this machine's GPU to a GPU target without one.

    Raises:
        TargetError: this machine has no GPU.
    """
    config = {"kind": parsed} if isinstance(parsed, str) else parsed
    if config.get("kind") != GPU:
        return parsed
    architecture = config.get("arch") or architecture_here()
    if architecture is None:
        raise TargetError(
            f"target {text!r}: no GPU is here whose architecture could be meant; name one, as in '{GPU} -arch=sm_90'"
        )
    return {**config, "arch": architecture}


def _parse(text: str) -> str | dict[str, Any]:
    if text.startswith("{"):
        config: dict[str, Any] = json.loads(text)
        return config
    name, *options = shlex.split(text)
    return {"kind": name, **dict(map(_option, options))} if options else name


def _option(word: str) -> tuple[str, Any]:
    """`-mcpu=znver4` as a pair; lists are comma-separated."""
    key, equals, value = word.lstrip("-").partition("=")
    if not word.startswith("-") or not equals:
        raise ValueError(f"{word!r} is not an option of the form -name=value")
    match key:
        case "mattr" | "keys" | "libs":
            return key, value.split(",")
        case "num-cores":
            return key, int(value)
        case _:
            return key, value


def _features(target: str) -> set[str]:
    """The CPU features that LLVM may use for a canonical target, its `mattr` included."""
    config: Mapping[str, Any] = json.loads(target)
    features = set(map(str, codegen.llvm_get_cpu_features(tvm.target.Target(dict(config)))))
    for attribute in config.get("mattr", ()):
        (features.add if attribute.startswith("+") else features.discard)(attribute[1:])
    return features


def _absent(features: Iterable[str]) -> tuple[str, ...]:
    """Returns those of `features` that kernels may use and that this CPU lacks, sorted."""
    host = {str(name): bool(has) for name, has in _call("tvm.codegen.llvm.GetHostCPUFeatures").items()}
    return tuple(sorted(f for f in features if (f in _SCALAR or extensions([f])) and not host.get(f, True)))


def _call(name: str) -> Any:
    return tvm_ffi.get_global_func(name)()


def _plain(value: Any) -> Any:
    """The compiler's containers as lists, strings and ints."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if item}
    if isinstance(value, Iterable):
        return [_plain(item) for item in value]
    raise TypeError(f"a target's option is of type {type(value).__name__}")


def _reason(error: Exception) -> str:
    """Returns the reason from the first line of the compiler's error."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return text.split(". Target creation")[0].rstrip(".")
