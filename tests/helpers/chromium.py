"""A real headless Chromium for tests; where there is none, tests are skipped and say so."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs Chromium and chromedriver on PATH (Debian: apt install chromium-driver)"
)


@contextlib.contextmanager
def browser() -> Iterator:
    """A Chromium that logs the console and the network; closed at the end, also after an error."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    # no sandbox: containers run as root; no shm: theirs is small
    for switch in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", "hide-scrollbars"):
        options.add_argument(f"--{switch}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def look(driver, width: int, height: int, scheme: str) -> None:
    """Be a screen of this size whose owner prefers this colour scheme, "light" or "dark"."""
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    wish = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", wish)


def requests(driver) -> list[str]:
    """Every address asked for since the last call."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
