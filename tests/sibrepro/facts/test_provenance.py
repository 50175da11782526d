from __future__ import annotations

import hashlib

from sibcore.files import sha256
from sibrepro.facts import provenance


def test_a_record_says_where_it_comes_from():
    made = provenance.collect({"seed": 3}, 1.23456)
    assert made["seed"] == 3
    assert made["wall_seconds"] == 1.235
    assert len(made["commit"]) == 40
    assert set(provenance.PACKAGES) <= set(made["versions"])


def test_sha256_is_that_of_the_file(tmp_path):
    content = b"abc" * 1_000_000
    (tmp_path / "f").write_bytes(content)
    assert sha256(tmp_path / "f") == hashlib.sha256(content).hexdigest()
