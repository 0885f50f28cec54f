"""What docs/service.md says, done by a browser: hand in a model, watch, download, run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from kintune.testing.serving import Serving

REDRAWN = (StaleElementReferenceException,)
"""What happens when a page changes while it is read: it is read again."""

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


def text(browser: webdriver.Chrome) -> str:
    return browser.find_element(By.TAG_NAME, "body").text


def wait_for(browser: webdriver.Chrome, *words: str, seconds: float = 30) -> None:
    """Wait until one of `words` is on the page."""
    try:
        patience = WebDriverWait(browser, seconds, ignored_exceptions=REDRAWN)
        patience.until(lambda b: any(each.lower() in text(b).lower() for each in words))
    except TimeoutException:
        picture(browser, "missing")
        raise AssertionError(f"{words} is not on the page, which says: {text(browser)[:1500]}") from None


def click(browser: webdriver.Chrome, words: str) -> None:
    kinds = "self::a or self::button or self::div[contains(concat(' ', @class, ' '), ' q-item ')]"
    xpath = f"//*[{kinds}][contains(translate(., '{words.upper()}', '{words.lower()}'), '{words.lower()}')]"

    def clicked(page: webdriver.Chrome) -> bool:
        found = [element for element in page.find_elements(By.XPATH, xpath) if element.is_displayed()]
        if found:
            found[0].click()
        return bool(found)

    WebDriverWait(browser, 30, ignored_exceptions=REDRAWN).until(clicked)


def picture(browser: webdriver.Chrome, name: str) -> None:
    """Keep a screenshot where $KINTUNE_PICTURES says, for people to look at."""
    if place := os.environ.get("KINTUNE_PICTURES"):
        Path(place).mkdir(parents=True, exist_ok=True)
        browser.save_screenshot(str(Path(place) / f"{name}.png"))


def test_a_newcomer_gets_a_fast_model(service: Serving, chromium: webdriver.Chrome, tmp_path: Path) -> None:
    model = tmp_path / "dense.onnx"
    onnx.save(network(), model)

    chromium.get(service.url)
    wait_for(chromium, "Nothing yet")
    picture(chromium, "1-nothing-yet")
    click(chromium, "New job")
    wait_for(chromium, "Drop an ONNX file")
    chromium.find_element(By.CSS_SELECTOR, "input[type=file]").send_keys(str(model))
    wait_for(chromium, "MatMul x2")
    wait_for(chromium, "input x: 32 x 64, float32")
    picture(chromium, "2-checked")
    click(chromium, "Make it fast")
    wait_for(chromium, "tuning", "Download", seconds=300)  # "tuning" may have come and gone between two looks
    picture(chromium, "3-tuning")
    wait_for(chromium, "Download", seconds=300)
    picture(chromium, "4-done")

    click(chromium, "Download")
    result = tmp_path / "dense.kt"
    deadline = time.monotonic() + 60
    while not result.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    x = np.random.default_rng(1).normal(size=(32, 64)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    command = [sys.executable, "-m", "kintune", "run", str(result), "--input", "x.npz", "--output", "y.npz"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    a, b = (onnx.numpy_helper.to_array(tensor) for tensor in network().graph.initializer)
    (y,) = np.load(tmp_path / "y.npz").values()
    np.testing.assert_allclose(y, np.maximum(x @ a, 0) @ b, rtol=1e-3, atol=1e-3)


def test_the_same_again_is_answered_at_once(service: Serving, chromium: webdriver.Chrome, tmp_path: Path) -> None:
    chromium.get(f"{service.url}/models")
    click(chromium, "dense")
    wait_for(chromium, "Until, ms or a share")
    field = chromium.find_element(By.CSS_SELECTOR, "input[placeholder*=onnxruntime]")
    field.send_keys("1000")
    click(chromium, "Make it fast")
    wait_for(chromium, "already met", seconds=60)


def test_pages_hold_on_a_phone_and_in_the_dark(service: Serving, chromium: webdriver.Chrome) -> None:
    chromium.set_window_size(390, 844)
    for name, path in (("jobs", "/"), ("models", "/models"), ("resources", "/resources"), ("compare", "/compare")):
        chromium.get(service.url + path)
        wait_for(chromium, "Kintune")
        time.sleep(1.0)
        wide = chromium.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, f"{path} is {wide} pixels too wide for a phone"
        picture(chromium, f"5-phone-{name}")
    chromium.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    chromium.get(service.url)
    wait_for(chromium, "Kintune")
    background = chromium.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    picture(chromium, "6-dark")
    assert background not in ("rgba(0, 0, 0, 0)", "rgb(255, 255, 255)", "rgba(255, 255, 255, 1)")


def test_pages_load_nothing_from_elsewhere(service: Serving, chromium: webdriver.Chrome) -> None:
    for path in ("/", "/models", "/resources", "/compare"):
        chromium.get(service.url + path)
        wait_for(chromium, "Kintune")
        names = chromium.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
        assert [
            name
            for name in names
            if not name.startswith((service.url, service.url.replace("http", "ws"), "data:", "blob:"))
        ] == []


def test_a_file_that_is_no_model_is_told_in_words(service: Serving, chromium: webdriver.Chrome, tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"this is no model")
    chromium.get(f"{service.url}/models")
    chromium.find_element(By.CSS_SELECTOR, "input[type=file]").send_keys(str(tmp_path / "broken.onnx"))
    wait_for(chromium, "It cannot be used")


def test_a_job_that_is_not_there(service: Serving, chromium: webdriver.Chrome) -> None:
    chromium.get(f"{service.url}/jobs/000000000000")
    wait_for(chromium, "there is no job")
