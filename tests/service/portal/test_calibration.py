from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from kintune.service.client import Client
from kintune.service.portal.calibration import describe_sets
from kintune.testing.serving import Serving
from tests.service.portal.test_new_job import hand_in
from tests.support.browsing import choose, click, picture, prefer, violations, wait_for, widen
from tests.support.quantisable import write_inputs, write_network


def test_files_are_named_as_far_as_they_are_few() -> None:
    assert describe_sets(()).startswith("One file for each set of inputs")
    assert describe_sets(("a.npz",)) == "1 set of inputs will be used: a.npz"
    assert describe_sets([f"{n}.npz" for n in range(7)]) == (
        "7 sets of inputs will be used: 0.npz, 1.npz, 2.npz, 3.npz, 4.npz ..."
    )


@pytest.mark.slow
@pytest.mark.needs("chromium")
@pytest.mark.tvm
@pytest.mark.timeout(600)
def test_a_model_is_quantised_with_files_that_are_handed_in(
    service: Serving, chromium: webdriver.Chrome, tmp_path: Path
) -> None:
    write_network(tmp_path / "small.onnx")
    files = write_inputs(tmp_path / "samples", 4)
    np.savez(tmp_path / "wrong.npz", pixels=np.zeros(3, np.float32))
    chromium.get(f"{service.url}/new")
    hand_in(chromium, tmp_path / "small.onnx")
    wait_for(chromium, "9 operators of 6 kinds")
    choose(chromium, "Precision", "int8 where it is faster")
    wait_for(chromium, "One file for each set of inputs")
    click(chromium, "Make it fast")
    wait_for(chromium, "Calibration inputs: int8 needs inputs to find the ranges")

    send_sets(chromium, tmp_path / "wrong.npz")
    wait_for(chromium, "wrong.npz cannot be used: it has pixels, and the model takes x.")
    click(chromium, "Make it fast")
    wait_for(chromium, "Calibration inputs: wrong.npz cannot be used")
    click(chromium, "Remove all of them")
    send_sets(chromium, *files)
    wait_for(chromium, "4 sets of inputs will be used: 0.npz, 1.npz, 2.npz, 3.npz")
    for theme in ("light", "dark"):
        for width in (1280, 360):
            prefer(chromium, theme)
            widen(chromium, width)
            picture(chromium, f"2c-calibration-{theme}-{width}", whole=True)
            assert violations(chromium) == []
            wide = chromium.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
            assert wide <= 0
    widen(chromium, 1280)
    click(chromium, "Make it fast")
    wait_for(chromium, "precision int8 with an error of at most 0.01, quantised with 4 sets of inputs")

    with Client(service.url) as client:
        (job,) = [each for each in client.jobs() if each["model_name"] == "small"]
        assert len(job["wanted"]["calibrate"]) == 4
        found = client.wait(job["id"])
        assert found["state"] == "done", found
        report: dict[str, Any] = client.report(job["id"])
    told = " ".join(report["notes"])
    assert report["quantised"] is not None or "not quantised" in told, told
    wait_for(chromium, "Take it with you", seconds=60)
    picture(chromium, "4c-quantised", whole=True)


@pytest.mark.needs("chromium")
@pytest.mark.timeout(300)
def test_weights_of_few_bits_are_asked_for(service: Serving, chromium: webdriver.Chrome, tmp_path: Path) -> None:
    from tests.models.quantisation.test_weights import write_network as write_large

    write_large(tmp_path / "large.onnx")
    chromium.get(f"{service.url}/new")
    hand_in(chromium, tmp_path / "large.onnx")
    click(chromium, "More options")
    wait_for(chromium, "Precision and runtime")
    choose(chromium, "Large weights", "8 bits")
    wait_for(chromium, "Largest error")
    click(chromium, "Make it fast")
    wait_for(chromium, "large weights in 8 bits with an error of at most 0.01")
    with Client(service.url) as client:
        (job,) = [each for each in client.jobs() if each["model_name"] == "large"]
        assert job["wanted"]["weights"] == 8
        client.cancel(job["id"])


def send_sets(browser: webdriver.Chrome, *files: str | Path) -> None:
    """Choose files in the field for sets of inputs."""
    field = browser.find_element(By.CSS_SELECTOR, ".drop[data-sets] input")
    field.send_keys("\n".join(map(str, files)))
