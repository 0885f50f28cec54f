from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest

from kintune.errors import InputError
from kintune.testing.small_onnx import write_small_onnx
from kintune_lab.bench.spec import MOST_CELLS, read_bench_spec
from kintune_lab.experiment.option import Option, OptionKind
from kintune_lab.spec_document import SpecError
from tests.support.fake_experiment import FakeExperiment

if TYPE_CHECKING:
    from tests.kintune_lab.bench.conftest import ReadSpec
import math

from hypothesis import given
from hypothesis import strategies as st

from kintune_lab.bench.spec import product_of, size_of


def test_the_cells_are_the_product_of_all_lists_in_the_order_of_the_spec(spec_of: ReadSpec) -> None:
    spec = spec_of('[matrix]\nmode = ["calm", "wild"]\nseed = [0, 1, 2]\nsize = 5\n')
    assert [(cell.values["mode"], cell.values["seed"]) for cell in spec.cells] == [
        ("calm", 0), ("calm", 1), ("calm", 2), ("wild", 0), ("wild", 1), ("wild", 2)
    ]  # fmt: skip
    assert spec.cells[4].title == "mode wild, seed 1, size 5"
    assert {cell.values["size"] for cell in spec.cells} == {5}
    assert spec.cells[0].values["carry"] is True


def test_a_spec_without_a_matrix_is_one_cell_of_defaults(spec_of: ReadSpec) -> None:
    (cell,) = spec_of("").cells
    assert cell.values["size"] == 64
    assert cell.changed == {}


def test_lists_in_a_method_multiply_it(spec_of: ReadSpec) -> None:
    spec = spec_of(
        '[[method]]\nname = "one"\n[[method]]\nname = "two"\nlabel = "ours"\nfamilies = ["a", "b"]\nwidth = 2\n'
    )
    (cell,) = spec.cells
    assert [method.label for method in cell.methods] == ["one", "ours families=a", "ours families=b"]
    assert cell.methods[2].values == {"families": "b", "width": 2}


def test_what_does_not_matter_does_not_make_another_cell(spec_of: ReadSpec) -> None:
    one = spec_of('[matrix]\nseed = [1, 2]\nsize = 8\n[[method]]\nname = "two"\n')
    other = spec_of(
        '# other words\n[matrix]\ncarry = true\nsize = [8, 9]\nseed = [2, 3]\n[[method]]\nlabel = "x"\nname = "two"\n'
    )
    assert one.cells[1].id == other.cells[0].id
    assert len({cell.id for cell in (*one.cells, *other.cells)}) == 5


def test_a_file_is_known_by_its_content(spec_of: ReadSpec) -> None:
    Path("data.bin").write_bytes(b"1")
    before = spec_of('[matrix]\ndata = "data.bin"\n').cells[0].id
    assert spec_of('[matrix]\ndata = "data.bin"\n').cells[0].id == before
    Path("data.bin").write_bytes(b"2")
    assert spec_of('[matrix]\ndata = "data.bin"\n').cells[0].id != before


def test_weights_beside_a_model_belong_to_its_content(spec_of: ReadSpec) -> None:
    path = Path(write_small_onnx("a.onnx"))
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="a.data", size_threshold=0)
    before = spec_of('[matrix]\nmodel = "a.onnx"\n').cells[0].id
    Path("a.data").write_bytes(bytes(Path("a.data").stat().st_size))
    assert spec_of('[matrix]\nmodel = "a.onnx"\n').cells[0].id != before


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("size = ", 3, "this is not TOML"),
        ("size = 1\nsize = 2\n", 4, "this is not TOML: cannot overwrite a value"),
        ('[matrix]\nmode = "calm\n', 4, "this is not TOML"),
        ("matrx = 1\n", 3, "there is no key 'matrx'; did you mean 'matrix'?"),
        ("matrix = 1\n", 3, "matrix must be a table"),
        ("[[matrix]]\nsize = 1\n", 3, "matrix must be a table"),
        ("[method]\nname = 'one'\n", 3, "write [[method]]"),
        ("[matrix]\nsizes = 1\n", 4, "the experiment 'fake' has no option 'sizes'; did you mean 'size'?"),
        ("[matrix]\n\n# x\nsize = []\n", 6, "size = []: the list is empty"),
        ("[matrix]\nsize = 0\n", 4, "size = 0: must be 1 or more"),
        ("[matrix]\nsize = [1,\n 2,\n 5000]\n", 6, "size = 5000: must be 4096 or less"),
        ("[matrix]\nsize = [1,\n 2,\n 1]\n", 6, "size = 1: stands twice"),
        ("[matrix]\nrate = [1, 1.0]\n", 4, "rate = 1.0: stands twice"),
        ("[matrix]\nseed = 1.5\n", 4, "seed = 1.5: must be a whole number"),
        ("[matrix]\nseed = [[1]]\n", 4, "seed = [1]: must be a whole number"),
        ("[matrix]\nmode = 'mild'\n", 4, 'mode = "mild": must be one of calm, wild'),
        ("[matrix]\nmodel = 'zoo:resnet19'\n", 4, 'model = "zoo:resnet19": no such network; did you mean'),
        ("[matrix]\nmodel = ['zoo:resnet18',\n'x.onnx']\n", 5, 'model = "x.onnx": no such file'),
        ("[matrix]\ndata = 'x.csv'\n", 4, 'data = "x.csv": there is no such file'),
        ("[matrix]\nsize = [1, 13]\nmode = 'wild'\n", 4, "size = 13: must not be 13 where the mode is wild"),
        ("[[method]]\n", 3, "a method needs a name"),
        ("[[method]]\nname = 'three'\n", 4, "there is no method 'three'; there are one, needy, two"),
        ("[[method]]\nname = 'one'\nwidth = 1\n", 5, "the method 'one' has no option 'width'; there are none"),
        ("[[method]]\nname = 'needy'\n", 3, "the method 'needy' needs width = ..."),
        ("[[method]]\nname = 'two'\nwidth = []\n", 5, "width = []: the list is empty"),
        ("[[method]]\nname = 'two'\nlabel = ''\n", 5, 'label = "": must be a text'),
        ("[[method]]\nname = 'one'\n[[method]]\nname = 'one'\n", 6, "the method 'one' stands twice"),
        ("[[method]]\nname = 'one'\n[[method]]\nname = 'two'\nwidth = [1,\n13]\n", 8, "width = 13: must not be 13"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(spec_of: ReadSpec, text: str, line: int, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of(text)
    assert str(caught.value).startswith(f"spec.toml:{line}: ")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ('name = "a"\n', 1, "experiment is missing"),
        ('experiment = "fake"\n', 1, "name is missing"),
        ('experiment = "fake"\nname = "a/b"\n', 2, 'name = "a/b": use letters'),
        ('experiment = "fake"\nname = 3\n', 2, "name = 3: must be a text"),
        ('name = "a"\nexperiment = "fate"\n', 2, "there is no experiment 'fate'"),
    ],
)
def test_the_head_has_to_be_right(spec_of: ReadSpec, text: str, line: int, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        spec_of(text, whole=True)
    assert str(caught.value).startswith(f"spec.toml:{line}: {problem}")


def test_a_matrix_that_nobody_meant_is_refused_before_it_is_made(spec_of: ReadSpec) -> None:
    seeds = list(range(MOST_CELLS))
    with pytest.raises(SpecError, match=r"spec.toml:3: the matrix has 40000 cells, more than 10000"):
        spec_of(f"[matrix]\nseed = {seeds}\nsize = [1, 2, 3, 4]\n")


def test_a_spec_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the spec missing.toml does not exist"):
        read_bench_spec("missing.toml")
    with pytest.raises(InputError, match="is a directory"):
        read_bench_spec(str(tmp_path))
    Path("latin.toml").write_bytes(b'name = "\xe4"')
    with pytest.raises(SpecError, match="UTF-8"):
        read_bench_spec("latin.toml")


def test_a_required_option_must_be_set() -> None:
    Path("t.toml").write_text('name = "t"\nexperiment = "tune"\n[matrix]\ntrials = 4\n')
    with pytest.raises(SpecError, match=r"t.toml:3: the experiment 'tune' needs model = ... in \[matrix\]"):
        read_bench_spec("t.toml")


AXES = st.dictionaries(
    st.text(min_size=1, max_size=4), st.lists(st.integers(), min_size=1, max_size=4, unique=True), max_size=4
)


@given(AXES)
def test_every_choice_comes_once(axes: dict[str, list[int]]) -> None:
    choices = list(product_of(axes))
    assert len(choices) == size_of(axes) == math.prod(map(len, axes.values()))
    assert len({tuple(choice.items()) for choice in choices}) == len(choices)
    assert all(list(choice) == list(axes) for choice in choices)
    assert all(value in axes[name] for choice in choices for name, value in choice.items())


def test_the_last_axis_varies_fastest() -> None:
    choices = list(product_of({"model": "ab", "seed": "01"}))
    assert ["".join(choice.values()) for choice in choices] == ["a0", "a1", "b0", "b1"]


@given(AXES)
def test_the_order_is_always_the_same(axes: dict[str, list[int]]) -> None:
    assert list(product_of(axes)) == list(product_of(axes))


MODELS = '[matrix]\nmodel = ["zoo:gpt2", "zoo:resnet18", "zoo:resnet50"]\nseed = [0, 1]\n'


def test_models_may_have_options_of_their_own(spec_of: ReadSpec) -> None:
    spec = spec_of(
        MODELS
        + '[[model]]\nname = "zoo:resnet*"\nsize = 8\nseed = 5\n[[model]]\nname = "zoo:resnet50"\nsize = [1, 2]\n'
    )
    found = [(cell.values["model"], cell.values["seed"], cell.values["size"]) for cell in spec.cells]
    assert found == [
        ("zoo:gpt2", 0, 64), ("zoo:gpt2", 1, 64), ("zoo:resnet18", 5, 8), ("zoo:resnet50", 5, 1), ("zoo:resnet50", 5, 2)
    ]  # fmt: skip


def test_a_model_without_options_of_its_own_is_the_same_cell(spec_of: ReadSpec) -> None:
    before = spec_of(MODELS).cells
    after = spec_of(MODELS + '[[model]]\nname = "zoo:gpt2"\nsize = 8\n').cells
    assert [cell.id for cell in before[2:]] == [cell.id for cell in after[2:]]
    assert before[0].id != after[0].id


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[matrix]\nseed = 1\n[[model]]\nname = "a"\n',
            r"spec.toml:5: \[\[model\]\] gives options to models of \[matrix\]",
        ),
        (f'{MODELS}[model]\nname = "a"\n', r"spec.toml:6: write \[\[model\]\], with two brackets"),
        (f"{MODELS}[[model]]\nsize = 1\n", r"spec.toml:6: a \[\[model\]\] needs a name"),
        (f'{MODELS}[[model]]\nname = "bert"\n', r'spec.toml:7: name = "bert": no model of \[matrix\] is called so'),
        (
            f'{MODELS}[[model]]\nname = "*"\nsice = 1\n',
            r"spec.toml:8: a model has no option 'sice'; did you mean 'size'",
        ),
        (f'{MODELS}[[model]]\nname = "*"\nsize = 0\n', r"spec.toml:8: size = 0: must be 1 or more"),
        (f'{MODELS}[[model]]\nname = "*"\nmode = "wild"\nsize = 13\n', r"spec.toml:9: size = 13: must not be 13 where"),
        ("model = 1\n", r"spec.toml:3: write \[\[model\]\]"),
    ],
)
def test_wrong_options_of_a_model_are_named_with_their_line(spec_of: ReadSpec, text: str, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        spec_of(text)


def test_a_text_may_stand_for_several_values(spec_of: ReadSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    def expand(text: str) -> list[str]:
        if text == "nothing":
            raise InputError("nothing: stands for nothing")
        return [text] if len(text) == 1 else sorted(text)

    fake = FakeExperiment()
    options = {**fake.options, "letters": Option(OptionKind.TEXT, expand=expand)}
    monkeypatch.setattr(fake, "options", options)
    cells = spec_of('[matrix]\nletters = ["ba", "cb"]\n', fake).cells
    assert [cell.values["letters"] for cell in cells] == ["a", "b", "c"]
    with pytest.raises(SpecError, match=r'letters = "nothing": stands for nothing$'):
        spec_of('[matrix]\nletters = "nothing"\n', fake)
    with pytest.raises(SpecError, match="stands twice"):
        spec_of('[matrix]\nletters = ["a", "a"]\n', fake)
