"""JupyterLab for real: notebooks opened in Chromium, all cells run through the menu, a figure seen, a slider moved."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import nbformat
import psutil
import pytest
from chromium import browser, look, needs_chromium
from selenium.common.exceptions import (
    ElementClickInterceptedException,
    StaleElementReferenceException,
    WebDriverException,
)
from selenium.webdriver.common.keys import Keys
from tiny_notebooks import until

from sibrepro import paths

pytestmark = [pytest.mark.exhaustive, needs_chromium]

SMALL = "\nepochs, tasks, seeds = 2, 16, 1"
STATE = """
const all = (selector, root) => [...(root || document).querySelectorAll(selector)];
return {
    prompts: all(".jp-Notebook .jp-CodeCell .jp-InputPrompt").map(prompt => prompt.textContent),
    errors: all("[data-mime-type='application/vnd.jupyter.error']").map(output => output.textContent),
    pictures: all(".jp-OutputArea-output img").map(picture => picture.naturalWidth),
};
"""


# the picture under the sliders, and the handle of the slider with a label
DRAWN = """
const drawn = document.querySelector(".widget-output img");
return drawn && drawn.src;
"""
HANDLE = """
const sliders = [...document.querySelectorAll(".widget-slider")];
const named = sliders.find(slider => slider.querySelector(".widget-label").textContent === arguments[0]);
return named && named.querySelector(".noUi-handle");
"""


def fresh(name, folder, upto="", added=""):
    """A notebook of the repository up to the cell with a tag, as if never run: the prompts tell the tests what ran."""
    content = nbformat.read(paths.PACKAGE.parents[1] / "notebooks" / name, as_version=4)
    tags = [cell.metadata.get("tags", []) for cell in content.cells]
    last = next((i for i, own in enumerate(tags) if upto in own), len(tags))
    content.cells = content.cells[: last + 1]
    for cell in content.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            cell.source += added if "parameters" in cell.metadata.get("tags", []) else ""
    nbformat.write(content, folder / name)
    return folder / name


@contextlib.contextmanager
def jupyterlab(notebook):
    """The address of a notebook in a JupyterLab of its own; at the end neither server nor kernel is left."""
    folder = notebook.parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    own = {f"JUPYTER_{kind}_DIR": str(folder / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    own |= {"IPYTHONDIR": str(folder / "ipython"), "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings")}
    own |= {"JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"), "JUPYTER_PREFER_ENV_PATH": "1"}
    options = [f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={folder}"]
    options += [f"--IdentityProvider.token={token}", "--no-browser", "--allow-root"]
    with (folder / "server.log").open("w") as log:
        command = [sys.executable, "-m", "jupyterlab", *options]
        server = subprocess.Popen(command, env=os.environ | own, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        try:
            until(lambda: _answers(f"http://127.0.0.1:{port}/api/status?token={token}", server))
            yield f"http://127.0.0.1:{port}/lab/tree/{notebook.name}?token={token}"
        finally:
            _stop(server)


def _answers(address, server):
    assert server.poll() is None, "JupyterLab ended at once; see its server.log"
    with contextlib.suppress(urllib.error.URLError):
        return urllib.request.urlopen(address, timeout=5).status == 200


def _stop(server):
    """Ask it to end, which ends its kernels; whatever does not is killed."""
    if server.poll() is not None:
        return
    family = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    server.terminate()
    _, left = psutil.wait_procs(family, timeout=20)
    for process in left:
        process.kill()
    server.wait()
    assert left == [], "the server or a kernel did not end when asked to"


def test_all_cells_run_from_the_menu_and_the_figure_is_seen(tmp_path):
    notebook = fresh("02_spinning_lines.ipynb", tmp_path, "figure:02_figure_3", SMALL)
    with jupyterlab(notebook) as address, browser() as chromium:
        state = _opened_and_run(chromium, address)
        figure = until(lambda: max(chromium.execute_script(STATE)["pictures"], default=0))
    cells = nbformat.read(notebook, as_version=4).cells
    assert len(state["prompts"]) == sum(cell.cell_type == "code" for cell in cells)
    assert state["errors"] == []
    assert figure > 500
    assert (paths.figures() / "02_figure_3.png").is_file(), "the kernel has the test's own output folder"


def test_a_slider_changes_the_picture(tmp_path):
    notebook = fresh("00_sib_in_ten_minutes.ipynb", tmp_path)
    with jupyterlab(notebook) as address, browser() as chromium:
        state = _opened_and_run(chromium, address)
        assert state["errors"] == []
        picture = until(lambda: chromium.execute_script(DRAWN))
        handle = until(lambda: chromium.execute_script(HANDLE, "K"))
        handle.send_keys(Keys.ARROW_LEFT)
        until(lambda: chromium.execute_script(DRAWN) not in (None, picture))
        assert chromium.execute_script("return arguments[0].getAttribute('aria-valuetext')", handle) == "4"


def _opened_and_run(chromium, address):
    look(chromium, 1400, 5000, "light")  # tall: JupyterLab draws the cells that are on the screen
    chromium.get(address)
    until(lambda: _has(chromium, ".jp-Notebook .jp-CodeCell"))
    until(lambda: _idle(chromium))
    _run_all(chromium)
    return until(lambda: _finished(chromium))


def _idle(chromium):
    _answer_dialogs(chromium)
    return _has(chromium, ".jp-Notebook-ExecutionIndicator[data-status='idle']")


def _run_all(chromium):
    """Through the menu; again if nothing starts: a click while JupyterLab still connects to the kernel can get lost."""
    for _ in range(6):
        _click(chromium, ".lm-MenuBar-item", "Run")
        _click(chromium, ".lm-Menu-item[data-command='runmenu:run-all']", "Run All Cells")
        with contextlib.suppress(AssertionError):
            until(lambda: any(p.strip("[]: ") for p in chromium.execute_script(STATE)["prompts"]), 15)
            return
    raise AssertionError("no cell started after six clicks on Run All Cells")


def _finished(chromium):
    """The state once every cell has a number, or one has failed."""
    state = chromium.execute_script(STATE)
    done = state["prompts"] and all(prompt.strip("[]: ").isdigit() for prompt in state["prompts"])
    return state if done or state["errors"] else None


def _has(chromium, selector):
    return chromium.find_elements("css selector", selector)


def _click(chromium, selector, text):
    def clicked():
        for item in (item for item in _has(chromium, selector) if text in item.text):
            try:
                item.click()
            except (ElementClickInterceptedException, StaleElementReferenceException):
                _answer_dialogs(chromium)
                return False
            return True

    until(clicked)


def _answer_dialogs(chromium):
    """On a slow machine JupyterLab may ask something first, such as which kernel to use: its own proposal will do."""
    for button in _has(chromium, ".jp-Dialog .jp-Dialog-button.jp-mod-accept"):
        print("JupyterLab asked:", _has(chromium, ".jp-Dialog")[0].text)
        with contextlib.suppress(WebDriverException):
            button.click()
