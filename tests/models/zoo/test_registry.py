from __future__ import annotations

from typing import Any

import pytest

from kintune.errors import ModelError
from kintune.models import zoo

PUBLISHED = {
    "bert_base": 109_482_240,
    "bert_large": 335_141_888,
    "gpt2": 124_439_808,
    "mobilenet_v1_0.5": 1_331_592,
    "mobilenet_v2": 3_504_872,
    "mobilenet_v2_0.5": 1_968_680,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet152": 60_192_808,
    "roberta_large": 355_359_744,
    "vit_base": 86_567_656,
    "vit_huge": 632_045_800,
}


def test_sizes_are_as_published() -> None:
    assert {name: zoo.build(name).parameters for name in zoo.names()} == PUBLISHED


def test_options_change_shapes_and_layers() -> None:
    bert = zoo.build("bert_base", batch=3, sequence=16, layers=2)
    assert [shape for _, _, shape in bert.inputs] == [(3, 16)] * 3
    assert bert.outputs[0][2] == (3, 16, 768)
    assert bert.parameters < PUBLISHED["bert_base"] / 2
    assert zoo.build("resnet18", image=64).inputs[0][2] == (1, 3, 64, 64)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("bert_base", {"sequence": 513}, "sequence must be at most 512"),
        ("roberta_large", {"sequence": 513}, "sequence must be at most 512"),
        ("gpt2", {"layers": 13}, "layers must be at most 12"),
        ("vit_base", {"image": 225}, "a multiple of 16, not 225"),
        ("resnet18", {"image": 31}, "image must be between 32 and 4096, not 31"),
        ("resnet18", {"layers": 1}, "no option 'layers'"),
        ("resnet19", {}, "no such network"),
    ],
)
def test_what_the_published_sizes_do_not_allow_is_refused(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError) as caught:
        zoo.build(name, **options)
    assert said in str(caught.value)


def test_the_longest_prompt_is_allowed() -> None:
    assert zoo.build("roberta_large", sequence=512, layers=1).inputs[0][2] == (1, 512)
