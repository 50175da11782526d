"""The repository's address, and what needs it: the badges that open notebook 00 on Colab and Binder.

The address stands in one place, `Repository` under `[project.urls]` in pyproject.toml. After it has changed,

    python -m sibrepro.online

writes it into the notebook's cell that installs the project on Colab, and puts the badges into the README. Without an
address there are no badges, and Colab cannot install the project.
"""

from __future__ import annotations

import re
from pathlib import Path

from sibcore.files import write_atomically
from sibrepro import paths

NOTEBOOK = "notebooks/00_sib_in_ten_minutes.ipynb"
PLACEHOLDER = "REPOSITORY"  # stands in the notebook where the address would be
CLONE = re.compile(r"(?<=git clone -q --depth 1 )\S+(?= /content/sib)")
HOSTS = ("Open in Colab", "Open in Binder")  # the texts of the badges


def repository(root: Path | None = None) -> str:
    """Return the address of the repository, such as "https://github.com/someone/sibcore", or "" if there is none.

    Args:
        root: the checkout; by default that of this package.
    """
    text = ((root or paths.root()) / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'^Repository = "(.*)"$', text, re.MULTILINE)
    return found[1].removesuffix(".git").rstrip("/") if found else ""


def badges(address: str) -> list[str]:
    """Return the badges as lines of Markdown. There are none for an address that is not on GitHub.

    Args:
        address: what `repository` returns.
    """
    owner = re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", address)
    if not owner:
        return []
    colab = f"https://colab.research.google.com/github/{owner[1]}/blob/HEAD/{NOTEBOOK}"
    binder = f"https://mybinder.org/v2/gh/{owner[1]}/HEAD?labpath={NOTEBOOK.replace('/', '%2F')}"
    pictures = ("https://colab.research.google.com/assets/colab-badge.svg", "https://mybinder.org/badge_logo.svg")
    return [
        f"[![{host}]({picture})]({link})" for host, picture, link in zip(HOSTS, pictures, (colab, binder), strict=True)
    ]


def write(root: Path | None = None) -> list[Path]:
    """Write the address into the notebook and the badges into the README, and return the files that changed.

    Args:
        root: the checkout; by default that of this package.
    """
    root = root or paths.root()
    address, changed = repository(root), []
    for name, rewrite in ((NOTEBOOK, _with_address), ("README.md", _with_badges)):
        path = root / name
        old = path.read_text(encoding="utf-8")
        new = rewrite(old, address)
        if new != old:
            write_atomically(path, new.encode())
            changed.append(path)
    return changed


def _with_address(notebook: str, address: str) -> str:
    """Return the notebook's text with the address in the command that clones the project."""
    return CLONE.sub(lambda _: address or PLACEHOLDER, notebook)


def _with_badges(readme: str, address: str) -> str:
    """Return the README with the badges below those that it has, and without earlier ones."""
    lines = [line for line in readme.splitlines() if not line.startswith(tuple(f"[![{host}]" for host in HOSTS))]
    last = max((i for i, line in enumerate(lines) if line.startswith("[![")), default=0)
    lines[last + 1 : last + 1] = badges(address)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path in write():
        print("wrote", path)
