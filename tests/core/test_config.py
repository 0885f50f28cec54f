"""What a job reads, and the options of a run."""

from __future__ import annotations

import pytest

from kintune.core.config import DEFAULT_MAX_ERROR, Options, TuneConfig, named_files, refuse_random_sets
from kintune.core.model import Constant, ModelRef
from kintune.errors import InputError


def test_a_job_reads_its_model_its_constants_and_what_is_named_besides() -> None:
    constants = {"a": Constant("float32", (), "", path="a.npy"), "b": Constant("float32", (), "", b"0000")}
    file = ModelRef("onnx", "m.onnx", "m", constants=constants)
    assert named_files(file, ["x.npz"], [], ["y.npz", "z.npz"]) == ("m.onnx", "a.npy", "x.npz", "y.npz", "z.npz")
    assert named_files(ModelRef("zoo", "gpt2", "gpt2"), ["x.npz"]) == ("x.npz",)


def test_a_run_has_the_options_that_were_chosen_and_values_where_none_were() -> None:
    plain = Options.of(TuneConfig())
    assert (plain.weights, plain.max_error) == (0, DEFAULT_MAX_ERROR)
    chosen = Options.of(TuneConfig(weights=4, max_error=0.25, minutes=3.0), search=False)
    assert (chosen.weights, chosen.max_error, chosen.minutes, chosen.search) == (4, 0.25, 3.0, False)


def test_a_number_of_random_sets_is_refused_where_inputs_are_given() -> None:
    refuse_random_sets(TuneConfig(), is_given=True)
    refuse_random_sets(TuneConfig(random_sets=3), is_given=False)
    with pytest.raises(InputError, match="random_sets and given inputs do not go together"):
        refuse_random_sets(TuneConfig(random_sets=3), is_given=True)
