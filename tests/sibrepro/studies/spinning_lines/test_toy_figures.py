from __future__ import annotations

import io

import matplotlib.pyplot as plt
import pytest
from PIL import Image

from sibrepro import plots
from sibrepro.studies.spinning_lines import figures as toy_figures
from sibrepro.studies.spinning_lines import model as toy
from sibrepro.studies.spinning_lines.model import SpinningLines
from sibrepro.studies.spinning_lines.plan import BNN, OPTIMUM, SIB

pytestmark = pytest.mark.thorough

SMALL = SpinningLines(tasks=4, epochs=1, seeds=2, n=4, K=1)


@pytest.fixture
def records(scratch):
    return (
        SIB.run(SMALL),
        BNN.run(SMALL),
        OPTIMUM.run(SMALL),
    )


def test_every_figure_can_be_drawn_for_the_smallest_problem(records):
    plots.style()
    sib, bnn, exact = records
    figures = [toy_figures.figure_3(SMALL, sib, bnn, reading) for reading in toy.likelihood_weights(SMALL)]
    figures += [toy_figures.readings(SMALL, sib, exact), toy_figures.conditions(SMALL, exact)]
    figures += [toy_figures.trajectories(SMALL, sib, "sum")]
    for figure in figures:
        assert all(axis.get_xlabel() for axis in figure.axes if axis.get_label() != "<colorbar>")
        plt.close(figure)


def test_the_film_shows_k_from_zero_to_one_beyond_the_trained_steps(records):
    film = Image.open(io.BytesIO(toy_figures.animation(SMALL, records[0], "sum")))
    assert film.format == "GIF"
    assert film.n_frames > 8 * (SMALL.K + 1)
