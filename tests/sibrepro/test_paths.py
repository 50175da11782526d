from __future__ import annotations

from sibrepro import paths


def test_paths_do_not_depend_on_the_working_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("SIB_OUTPUT")
    places = (paths.root, paths.published, paths.local, paths.figures, paths.tables, paths.notebooks)
    before = [place() for place in places]
    monkeypatch.chdir(tmp_path)
    assert [place() for place in places] == before
    assert (paths.root() / "pyproject.toml").is_file()


def test_home_and_output_can_be_set(monkeypatch, tmp_path):
    monkeypatch.setenv("SIB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SIB_OUTPUT", str(tmp_path / "out"))
    assert paths.notebooks() == tmp_path / "home" / "notebooks"
    assert paths.published() == tmp_path / "home" / "results"
    assert paths.local() == tmp_path / "out"
    assert (paths.figures(), paths.tables()) == (tmp_path / "out" / "figures", tmp_path / "out" / "tables")


def test_what_is_computed_here_never_goes_beside_what_is_published(monkeypatch, tmp_path):
    monkeypatch.delenv("SIB_OUTPUT")
    monkeypatch.setenv("SIB_HOME", str(tmp_path))
    assert paths.local() == tmp_path / "results" / "local"
    assert all(place().is_relative_to(paths.local()) for place in (paths.figures, paths.tables))


def test_figures_and_tables_can_be_sent_elsewhere_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("SIB_FIGURES", str(tmp_path / "f"))
    monkeypatch.setenv("SIB_TABLES", str(tmp_path / "t"))
    assert (paths.figures(), paths.tables()) == (tmp_path / "f", tmp_path / "t")
    assert paths.local() == tmp_path / "output"


def test_relative_hides_the_machine_s_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("SIB_OUTPUT", str(tmp_path))
    assert paths.relative(tmp_path / "figures" / "a.png") == "figures/a.png"
    assert paths.relative(paths.root() / "results" / "facts" / "a.jsonl") == "results/facts/a.jsonl"
