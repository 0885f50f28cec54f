"""What docs/service.md says, done by a browser: hand in a model, watch, download, run."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from kintune.service.client import Client
from kintune.service.job_request import JobRequest
from kintune.service.portal.new_job import submission_key
from kintune.testing.serving import Serving
from tests.support.browsing import click, picture, violations, wait_for
from tests.support.service_users import dynamic_onnx

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.tvm, pytest.mark.timeout(600)]


def network() -> onnx.ModelProto:
    """Two dense layers, small enough to be tuned in seconds."""
    draw = np.random.default_rng(0)
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, [64, 64], draw.normal(size=64 * 64).astype(np.float32) / 8)
        for name in ("a", "b")
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [32, 64]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "dense", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def hand_in(browser: webdriver.Chrome, path: Path) -> None:
    browser.find_element(By.CSS_SELECTOR, "input[type=file]").send_keys(str(path))


def downloaded(folder: Path, pattern: str) -> Path:
    """Wait until the browser has written a file of this name."""
    deadline = time.monotonic() + 60
    while not list(folder.glob(pattern)) and time.monotonic() < deadline:
        time.sleep(0.2)
    (found,) = folder.glob(pattern)
    return found


def test_a_newcomer_gets_a_fast_model(service: Serving, chromium: webdriver.Chrome, tmp_path: Path) -> None:
    model = tmp_path / "dense.onnx"
    onnx.save(network(), model)

    chromium.get(service.url)
    wait_for(chromium, "No jobs yet")
    picture(chromium, "1-nothing-yet")
    click(chromium, "New job")
    wait_for(chromium, "Drop an ONNX file")
    hand_in(chromium, model)
    wait_for(chromium, "x: 32 x 64, float32")
    click(chromium, "3 operators of 2 kinds")
    wait_for(chromium, "MatMul x2")
    picture(chromium, "2-checked")
    click(chromium, "Make it fast")
    wait_for(chromium, "Cancel", "Take it with you", seconds=60)  # it may be over between two looks
    picture(chromium, "3-tuning")
    wait_for(chromium, "Take it with you", seconds=300)
    wait_for(chromium, "within the tolerance")
    picture(chromium, "4-done", whole=True)
    assert violations(chromium) == []

    click(chromium, "dense.kt")
    result = downloaded(tmp_path, "dense.kt")
    x = np.random.default_rng(1).normal(size=(32, 64)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    command = [sys.executable, "-m", "kintune", "run", str(result), "--input", "x.npz", "--output", "y.npz"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    a, b = (onnx.numpy_helper.to_array(tensor) for tensor in network().graph.initializer)
    (y,) = np.load(tmp_path / "y.npz").values()
    np.testing.assert_allclose(y, np.maximum(x @ a, 0) @ b, rtol=1e-3, atol=1e-3)

    click(chromium, "Python wheel")
    assert downloaded(tmp_path, "dense-*.whl").stat().st_size > 10_000

    chromium.get(f"{service.url}/devices")
    wait_for(chromium, "linking the result", "checking the result")  # the last of its stages
    wait_for(chromium, "None: a new job starts at once")
    picture(chromium, "4b-devices", whole=True)
    assert violations(chromium) == []


def test_the_same_again_is_answered_at_once(service: Serving, chromium: webdriver.Chrome, tmp_path: Path) -> None:
    chromium.get(f"{service.url}/models")
    click(chromium, "dense")
    wait_for(chromium, "Target latency")
    wait_for(chromium, "Earlier: dense")
    field = chromium.find_element(By.CSS_SELECTOR, "input[aria-label='Target latency']")
    field.send_keys("much")
    click(chromium, "Make it fast")
    wait_for(chromium, "Target latency: 'much': there is no baseline")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("1000")
    click(chromium, "Make it fast")
    wait_for(chromium, "already met", seconds=60)


def test_open_shapes_may_be_left_out_and_are_checked_as_they_are_written(
    service: Serving, chromium: webdriver.Chrome, tmp_path: Path
) -> None:
    onnx.save(dynamic_onnx(), tmp_path / "open.onnx")
    chromium.get(f"{service.url}/new")
    hand_in(chromium, tmp_path / "open.onnx")
    wait_for(chromium, "Shape of x")
    field = chromium.find_element(By.CSS_SELECTOR, "input[aria-label='Shape of x']")
    assert field.get_attribute("value") == ""
    wait_for(chromium, "empty for ranges that Kintune chooses")
    field.send_keys("1x4x7")
    wait_for(chromium, "x has 2 dimensions (batch x 4), and this has 3")
    picture(chromium, "2b-shapes")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(Keys.DELETE)
    click(chromium, "Make it fast")
    wait_for(chromium, "New job with this model", seconds=180)  # it is over
    wait_for(chromium, "--shape names others")


def test_a_webhook_is_checked_as_it_is_written(service: Serving, chromium: webdriver.Chrome, tmp_path: Path) -> None:
    onnx.save(dynamic_onnx(), tmp_path / "open.onnx")
    chromium.get(f"{service.url}/new")
    hand_in(chromium, tmp_path / "open.onnx")
    click(chromium, "More options")
    wait_for(chromium, "Webhook")
    chromium.find_element(By.CSS_SELECTOR, "input[aria-label='Webhook']").send_keys("here")
    wait_for(chromium, "Must be an http or https address")
    assert violations(chromium) == []
    picture(chromium, "2c-further", whole=True)


def test_a_file_that_is_no_model_is_told_in_words(service: Serving, chromium: webdriver.Chrome, tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"this is no model")
    chromium.get(f"{service.url}/new")
    hand_in(chromium, tmp_path / "broken.onnx")
    wait_for(chromium, "The model cannot be used")


def test_a_double_click_submits_one_job(service: Serving, chromium: webdriver.Chrome, tmp_path: Path) -> None:
    onnx.save(dynamic_onnx(), tmp_path / "twice.onnx")
    with Client(service.url) as client:
        before = len(client.jobs())
    chromium.get(f"{service.url}/new")
    hand_in(chromium, tmp_path / "twice.onnx")
    wait_for(chromium, "Make it fast")
    button = chromium.find_element(By.XPATH, "//button[contains(., 'Make it fast')]")
    ActionChains(chromium).scroll_to_element(button).double_click(button).perform()
    wait_for(chromium, "New job with this model", seconds=120)  # it is over
    with Client(service.url) as client:
        assert len(client.jobs()) == before + 1


def test_a_form_is_submitted_once_for_each_request() -> None:
    wanted = JobRequest(minutes=5.0)
    assert submission_key("a", wanted) == submission_key("a", JobRequest(minutes=5.0))
    assert len({submission_key("a", wanted), submission_key("b", wanted), submission_key("a", JobRequest())}) == 3
