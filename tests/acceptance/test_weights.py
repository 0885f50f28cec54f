"""Weights of 4 and 8 bits, by the real command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest

from kintune.runtime.manifest import read_manifest
from tests.models.quantisation.test_weights import run, write_network
from tests.support.blockwise import Product, reference, write_product

if TYPE_CHECKING:
    from tests.acceptance.conftest import Place

pytestmark = pytest.mark.tvm


@pytest.mark.slow
@pytest.mark.parametrize("bits", [4, 8])
def test_a_model_that_has_such_weights(empty_place: Place, bits: int) -> None:
    product = Product(bits=bits, inputs=512, columns=1000, lead=(1, 3), zeros="packed", bias=True, after="relu")
    feeds = write_product(product, empty_place.folder / "product.onnx")
    np.savez(empty_place.folder / "in.npz", **feeds)
    command = empty_place.start(
        "tune", "product.onnx", "--trials", 12, "--input", "in.npz", "--output", "product.kt", "--json", "report.json"
    )
    assert command.wait() == 0, command.err
    report = json.loads((empty_place.folder / "report.json").read_text())
    assert report["within_tolerance"]
    assert report["trials"] > 0
    command = empty_place.start("run", "product.kt", "--input", "in.npz", "--output", "out.npz")
    assert command.wait() == 0, command.err
    (found,) = np.load(empty_place.folder / "out.npz").values()
    np.testing.assert_allclose(found, reference(product), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_an_fp32_model_gets_such_weights(empty_place: Place) -> None:
    source = empty_place.folder / "network.onnx"
    feeds = write_network(source)
    np.savez(empty_place.folder / "in.npz", **feeds)
    command = empty_place.start(
        "tune", "network.onnx", "--weights", 8, "--max-error", 0.05, "--trials", 12, "--input", "in.npz",
        "--output", "network.kt", "--json", "report.json",
    )  # fmt: skip
    assert command.wait() == 0, command.err
    assert "Of 3 large products, 3 in weights of 8 bits." in command.out
    report = json.loads((empty_place.folder / "report.json").read_text())
    assert report["quantised"]["bits"] == 8
    assert 0 < report["norm_error"] <= 0.05
    manifest = read_manifest(empty_place.folder / "network.kt")
    assert manifest.narrow is not None
    assert manifest.narrow.quantised is not None
    assert manifest.narrow.quantised.int8 == 3
    command = empty_place.start("run", "network.kt", "--input", "in.npz", "--output", "out.npz")
    assert command.wait() == 0, command.err
    (found,) = np.load(empty_place.folder / "out.npz").values()
    wanted = run(source, feeds)
    assert np.linalg.norm(found - wanted) <= 0.05 * np.linalg.norm(wanted)


def test_other_numbers_of_bits_are_refused(empty_place: Place) -> None:
    product = Product(inputs=64, columns=48, after="relu")
    integers = np.zeros((48, 2, 12), np.uint8)
    write_product(product, empty_place.folder / "product.onnx", bits=3, b=integers)
    command = empty_place.start("compile", "product.onnx", "--output", "product.kt")
    assert command.wait() == 2
    (line,) = [line for line in command.err.splitlines() if "MatMulNBits (node" in line]
    assert "weights of 3 bits are not supported; 2, 4 and 8 are" in line
    assert "onnxruntime does not take the model either" in line
    assert not list(empty_place.folder.glob("*.kt*"))


def test_a_model_without_large_weights_is_refused(empty_place: Place) -> None:
    path = empty_place.folder / "product.onnx"
    write_product(Product(), path)
    command = empty_place.start("tune", "product.onnx", "--weights", 4)
    assert command.wait() == 2
    assert "has no products of matrices with constant fp32 weights of 256 x 256 or more" in command.err
    assert not list(empty_place.folder.glob("*.kt*"))
    assert onnx.load(path).graph.node
