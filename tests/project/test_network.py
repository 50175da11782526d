"""Nothing is sent anywhere unless asked for: importing and running open no connection beyond this machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.thorough

# Every connection and every name that is looked up is an event of the audit of Python itself. Kernels talk through zmq,
# which has none: over files (see `execute`), so that there is nothing to connect to.
WATCH = """
import ipaddress, sys

HERE = (None, "localhost", "127.0.0.1", "::1")

def watch(event, arguments):
    if event in ("socket.connect", "socket.sendto"):
        address = arguments[1]
        if isinstance(address, tuple) and not ipaddress.ip_address(address[0]).is_loopback:
            raise SystemExit(f"a connection to {address}")
    if event in ("socket.getaddrinfo", "socket.gethostbyname") and arguments[0] not in HERE:
        raise SystemExit(f"a look for {arguments[0]}")

sys.addaudithook(watch)
"""
IMPORT = """
import importlib, pkgutil, sibcore, sibrepro
for package in (sibcore, sibrepro):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""
RUN = """
from sibrepro.__main__ import main
few_shot = ["few-shot", "--features", "shipped", "--shots", "1", "--K", "0", "--steps", "1"]
raise SystemExit(main(["data", "list"]) or main(few_shot))
"""
CONTROL = """
import socket
socket.create_connection(("192.0.2.1", 80), timeout=1)
"""


def watched(code):
    return subprocess.run([sys.executable, "-c", WATCH + code], capture_output=True, text=True)


@pytest.mark.parametrize("code", [IMPORT, RUN], ids=["import", "run"])
def test_nothing_is_connected_to(code):
    result = watched(code)
    assert result.returncode == 0, result.stderr


def test_a_connection_would_be_noticed():
    result = watched(CONTROL)
    assert result.returncode == 1
    assert "a connection to ('192.0.2.1', 80)" in result.stderr or "a look for 192.0.2.1" in result.stderr
