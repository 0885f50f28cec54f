from __future__ import annotations

import json

import pytest

from kintune.errors import TargetError

pytestmark = pytest.mark.tvm

NAMES = [
    "native",
    "llvm",
    "llvm -mcpu=znver4",
    "llvm -mcpu=haswell -mattr=-avx2,+avx512f -num-cores=7",
    '{"kind": "llvm", "mcpu": "sapphirerapids"}',
    "aws/cpu/c5.large",
    '{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}',
]


@pytest.mark.parametrize("name", NAMES)
def test_a_canonical_target_names_itself(name: str) -> None:
    from kintune.runtime.target import resolve_target

    canonical = resolve_target(name, 3)
    assert resolve_target(canonical, 3) == canonical
    assert json.loads(canonical)["num-cores"] == 3


def test_every_spelling_of_a_target_is_one_target() -> None:
    from kintune.runtime.target import resolve_target

    spellings = [
        "llvm -mcpu=znver4",
        '{"mcpu": "znver4", "kind": "llvm"}',
        ' {"kind":"llvm","mcpu":"znver4","num-cores":9}',
    ]
    assert len({resolve_target(spelling, 2) for spelling in spellings}) == 1


def test_this_machine_runs_programs_for_itself() -> None:
    from kintune.runtime.target import instruction_set, missing_features, resolve_target

    native = resolve_target("native", 2)
    assert missing_features(native) == ()
    assert set(instruction_set(resolve_target("llvm", 2))) <= set(instruction_set(native))


def test_a_feature_that_the_hypervisor_hides_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.runtime import target

    true_call = target._call
    host = {str(name): int(has) for name, has in true_call("tvm.codegen.llvm.GetHostCPUFeatures").items()}
    hidden = {**host, "avx2": 0, "bmi2": 0, "pku": 0}
    answers = {"tvm.codegen.llvm.GetHostCPUFeatures": hidden, "tvm.codegen.llvm.GetHostCPUName": "haswell"}
    monkeypatch.setattr(target, "_call", lambda name: answers.get(name) or true_call(name))
    if not true_call("tvm.codegen.llvm.GetDefaultTargetTriple").startswith("x86_64"):
        pytest.skip("an x86 example")
    native = target.resolve_target("native", 1)
    assert {"-avx2", "-bmi2"} <= set(json.loads(native)["mattr"])
    assert "-pku" not in json.loads(native)["mattr"]
    assert "avx2" not in target.instruction_set(native)
    assert target.missing_features(native) == ()
    assert "avx2" in target.missing_features(target.resolve_target("llvm -mcpu=haswell", 1))


def test_programs_for_another_architecture_do_not_run_here() -> None:
    from kintune.runtime.target import missing_features, resolve_target

    assert missing_features(resolve_target('{"kind": "llvm", "mtriple": "riscv64-linux-gnu"}', 1)) == ("riscv64",)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nonsense", '"nonsense" is not defined'),
        ("llvm -mcpu=znver99", "no CPU 'znver99'"),
        ("llvm -mcpu", "'-mcpu' is not an option"),
        ('llvm -mcpu="a', "No closing quotation"),
        ('{"kind": "nope"}', '"nope" is not defined'),
        ('{"kind": "llvm", "colour": 2}', "Unknown config option 'colour'"),
        ("{bad", "line 1 column 2"),
        ("opencl", "is neither a CPU nor a GPU of NVIDIA"),
        ("  ", "no target was named"),
        ("llvm -num-cores=many", "invalid literal"),
        ("cuda -arch=volta", "invalid CUDA arch"),
        ("cuda -arch=sm_x", "'sm_x' is no architecture of a GPU"),
    ],
)
def test_an_unknown_target_is_refused_in_one_line(name: str, said: str) -> None:
    from kintune.runtime.target import resolve_target

    with pytest.raises(TargetError, match=said) as caught:
        resolve_target(name, 1)
    assert "\n" not in str(caught.value)
    assert "native" in str(caught.value)


@pytest.mark.parametrize(
    ("cpu", "triple", "its_own"),
    [
        ("znver4", "aarch64-linux-gnu", "x86_64-linux-gnu"),
        ("cortex-a76", "x86_64-linux-gnu", "aarch64-linux-gnu"),
        ("sifive-u74", "x86_64-linux-gnu", "riscv64-linux-gnu"),
    ],
)
def test_a_cpu_of_another_architecture_is_answered_with_how_to_name_that(cpu: str, triple: str, its_own: str) -> None:
    from kintune.runtime.target import resolve_target

    with pytest.raises(TargetError, match=f"no CPU '{cpu}' for {triple}; .*, as in -mtriple={its_own}$"):
        resolve_target(f"llvm -mcpu={cpu} -mtriple={triple}", 1)


@pytest.mark.parametrize(
    "name",
    ["cuda -arch=sm_86", "cuda -arch=sm_86a", '{"kind": "cuda", "arch": "sm_86"}', "nvidia/geforce-rtx-3090", "cuda"],
)
def test_a_gpu_is_its_architecture_however_it_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.runtime import target

    monkeypatch.setattr(target, "architecture_here", lambda: "sm_86")
    canonical = target.resolve_target(name, 4)
    assert canonical == target.resolve_target("cuda -arch=sm_86", 1)
    assert target.resolve_target(canonical, 2) == canonical
    assert target.instruction_set(canonical) == ("sm_86",)
    assert target.missing_features(canonical) == ()
    monkeypatch.setattr(target, "architecture_here", lambda: "sm_90")
    assert target.missing_features(canonical) == ("sm_86",)


def test_a_gpu_that_is_not_here_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.runtime import target

    monkeypatch.setattr(target, "architecture_here", lambda: None)
    with pytest.raises(TargetError, match=r"target 'cuda': no GPU is here .* name one, as in 'cuda -arch=sm_90'"):
        target.resolve_target("cuda", 1)


def test_programs_for_a_gpu_are_for_the_machine_that_it_is_in() -> None:
    import tvm

    from kintune.runtime.target import architecture_of, missing_features, resolve_target

    host = {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}
    canonical = resolve_target(json.dumps({"kind": "cuda", "arch": "sm_87", "host": host}), 1)
    assert architecture_of(tvm.target.Target(json.loads(canonical))) == "aarch64"
    assert missing_features(canonical) == ("aarch64",)
