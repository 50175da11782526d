from __future__ import annotations

from sibrepro import paths


def test_paths_do_not_depend_on_the_working_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("SIB_OUTPUT")
    before = paths.root(), paths.results(), paths.figures(), paths.notebooks()
    monkeypatch.chdir(tmp_path)
    assert (paths.root(), paths.results(), paths.figures(), paths.notebooks()) == before
    assert (paths.root() / "pyproject.toml").is_file()


def test_home_and_output_can_be_set(monkeypatch, tmp_path):
    monkeypatch.setenv("SIB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SIB_OUTPUT", str(tmp_path / "out"))
    assert paths.notebooks() == tmp_path / "home" / "notebooks"
    assert paths.results() == tmp_path / "out" / "results"


def test_relative_hides_the_machine_s_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("SIB_OUTPUT", str(tmp_path))
    assert paths.relative(tmp_path / "figures" / "a.png") == "figures/a.png"
