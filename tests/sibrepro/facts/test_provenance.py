from __future__ import annotations

import ast
import hashlib

import pytest

from sibcore.files import sha256
from sibrepro import paths
from sibrepro.facts import provenance


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A tiny sibcore: a imports b, c stands alone."""
    folder = tmp_path / "sibcore"
    folder.mkdir()
    (folder / "a.py").write_text('"""Doc."""\nfrom sibcore import b\nx = b.y\n')
    (folder / "b.py").write_text("y = 1\n")
    (folder / "c.py").write_text("z = 1\n")
    monkeypatch.setattr(paths, "PACKAGE", folder)
    return folder


def test_the_fingerprint_follows_imports_and_nothing_else(package):
    before = provenance.code_fingerprint(["sibcore.a"])
    (package / "c.py").write_text("z = 2\n")
    assert provenance.code_fingerprint(["sibcore.a"]) == before
    (package / "b.py").write_text("y = 2\n")
    assert provenance.code_fingerprint(["sibcore.a"]) != before


def test_comments_docstrings_and_layout_do_not_count_as_a_change(package):
    before = provenance.code_fingerprint(["sibcore.a"])
    (package / "a.py").write_text('"""Another doc."""\n\nfrom sibcore import b  # why\n\nx = (b.y)\n')
    assert provenance.code_fingerprint(["sibcore.a"]) == before


def test_skipped_modules_do_not_count(package):
    before = provenance.code_fingerprint(["sibcore.a"], skip=frozenset({"sibcore.b"}))
    (package / "b.py").write_text("y = 2\n")
    assert provenance.code_fingerprint(["sibcore.a"], skip=frozenset({"sibcore.b"})) == before


@pytest.mark.parametrize(
    "line", ["import sibcore.b", "from sibcore import b", "from sibcore.b import y", "import sibcore.b as q"]
)
def test_every_form_of_import_is_found(package, line):
    assert provenance.imports(ast.parse(line)) == {"sibcore.b"}


def test_sha256_is_that_of_the_file(tmp_path):
    content = b"abc" * 1_000_000
    (tmp_path / "f").write_bytes(content)
    assert sha256(tmp_path / "f") == hashlib.sha256(content).hexdigest()
