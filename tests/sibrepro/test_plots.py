from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from sibrepro import paths, plots
from sibrepro.facts import Record, manifest


def draw():
    plots.style()
    figure, axis = plt.subplots()
    axis.plot([0, 1], [0, 1])
    return figure


def test_a_figure_is_kept_as_png_and_pdf_with_the_runs_it_shows(monkeypatch, tmp_path):
    monkeypatch.setenv("SIB_MANIFEST", str(tmp_path / "manifest"))
    record = Record("toy-123", 1, {}, {}, {}, {}, None)
    png, pdf = plots.save(draw(), "plot", record)
    assert (png, pdf) == (paths.figures() / "plot.png", paths.figures() / "plot.pdf")
    assert Image.open(png).text["Source"] == "toy-123"
    assert b"toy-123" in pdf.read_bytes()
    assert [line["what"] for line in manifest.read(tmp_path / "manifest")] == ["figures/plot.png", "figures/plot.pdf"]


def test_the_same_figure_gives_the_same_bytes():
    first = [path.read_bytes() for path in plots.save(draw(), "plot")]
    second = [path.read_bytes() for path in plots.save(draw(), "plot")]
    assert first == second


def test_a_film_is_shown_as_html_with_its_text_escaped(tmp_path):
    (tmp_path / "film.gif").write_bytes(b"GIF")
    shown = plots.show_film(tmp_path / "film.gif", 'a "b" < c').data
    assert "data:image/gif;base64,R0lG" in shown
    assert 'alt="a &quot;b&quot; &lt; c"' in shown


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("sib", "sib"),
        ("SIB", "sib"),
        ("SIB, the paper's ξ", "sib"),
        ("SIB, K = 3", "sib"),
        ("sib-set-10", "sib set"),
        ("SIB, set-aware ξ, wide", "sib set"),
        ("SIB, equivariant ξ", "sib equivariant"),
        ("inductive SIB", "sib inductive"),
        ("SIB, inductive", "sib inductive"),
        ("nearest-centroid", "nearest centroid"),
        ("PT-MAP", "pt map"),
        ("tim", "tim"),
        ("TIM-ADM", "tim"),
        ("alpha-tim", "alpha tim"),
        ("α-TIM", "alpha tim"),
        ("PADDLE", "paddle"),
        ("LaplacianShot", "laplacian shot"),
        ("laplacian-shot", "laplacian shot"),
        ("TPN", "label propagation"),
        ("Label propagation (TPN)", "label propagation"),
        ("soft-k-means", "soft k means"),
        ("Soft k-means", "soft k means"),
        ("protoLP", "proto lp"),
        ("proto-lp", "proto lp"),
    ],
)
def test_a_method_has_one_colour_and_marker_by_whatever_name(method, name):
    assert (plots.colour(method), plots.marker(method)) == plots.METHODS[name]


@pytest.mark.parametrize("method", ["MAML", "Prototypical Network", "time series", "CTM", ""])
def test_other_methods_are_light_grey(method):
    assert plots.colour(method) == plots.FAINT


def test_markers_tell_methods_of_one_colour_apart():
    assert len(set(plots.METHODS.values())) == len(plots.METHODS)
    assert plots.OTHER not in plots.METHODS.values()


def drawn_names(points: np.ndarray, names: list[str], **options):
    """The boxes of the names, in pixels, and how coordinates become pixels."""
    plots.style()
    figure, axis = plt.subplots(figsize=(6, 5))
    axis.plot(*points.T, "o", markersize=6)
    axis.set(xlim=(-0.5, 1.5), ylim=(-0.2, 1.2))
    plots.name_points(axis, names, points[: len(names)], others=points[len(names) :], **options)
    figure.draw_without_rendering()
    boxes = {text.get_text(): text.get_window_extent() for text in axis.texts if text.get_text()}
    plt.close(figure)
    return boxes, axis.transData.transform


@pytest.mark.parametrize("seed", range(3))
def test_names_cover_neither_points_nor_each_other(seed):
    points = np.random.default_rng(seed).random((40, 2))
    names = [f"method {number}" for number in range(12)]
    boxes, pixels = drawn_names(points, names)
    assert list(boxes) == names
    for name, box in boxes.items():
        assert not any(box.contains(*place) for place in pixels(points))
        assert not any(box.overlaps(other) for key, other in boxes.items() if key != name)


def test_a_name_keeps_off_a_line():
    ends = np.array([[-1, 0.5], [2, 0.5]])
    line = np.linspace(*ends, 2000)
    boxes, pixels = drawn_names(np.array([[0.5, 0.5]]), ["a name"], lines=[ends])
    assert not any(boxes["a name"].contains(*place) for place in pixels(line))


def test_only_an_optional_name_may_be_left_out():
    points = np.array([[0.5, 0.5]] * 6 + [[1.0, 1.0]])
    names = [*"abcdef", "far away"]
    assert set(drawn_names(points, names)[0]) == set(names)
    assert "far away" in drawn_names(points, names, optional=7)[0]
    assert len(drawn_names(points, names, optional=7)[0]) < 7
