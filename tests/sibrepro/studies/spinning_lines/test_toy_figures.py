from __future__ import annotations

import dataclasses
import io

import matplotlib.pyplot as plt
import pytest
from cells import drawn
from PIL import Image

from sibrepro import plots
from sibrepro.studies.spinning_lines import figures as toy_figures
from sibrepro.studies.spinning_lines import model as toy
from sibrepro.studies.spinning_lines.model import SpinningLines, SpinningLinesNotebook
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
    names = {"p": SMALL, "notebook": SpinningLinesNotebook(), "readings": toy.likelihood_weights(SMALL)}
    names |= {"sib": sib, "exact": exact}
    figures += [drawn(name, **names) for name in ("02_readings", "02_trajectories", "02_conditions")]
    for figure in figures:
        assert all(axis.get_xlabel() for axis in figure.axes if axis.get_label() != "<colorbar>")
        plt.close(figure)


def test_the_film_shows_k_from_zero_to_one_beyond_the_trained_steps(records):
    film = Image.open(io.BytesIO(toy_figures.animation(SMALL, records[0], "sum")))
    assert film.format == "GIF"
    assert film.n_frames > 8 * (SMALL.K + 1)


def test_the_table_has_a_row_for_every_run_sorted_by_its_settings(records):
    wide = dataclasses.replace(SMALL, sigma=2.0)
    table = toy_figures.table_of_runs([SIB.run(wide), records[0]])
    assert table["sigma"].tolist() == [1.0, 2.0]
    assert table.loc[records[0].id, "kl_prior"] == round(records[0].metrics["sum/kl_prior"], 3)
    assert table.loc[SIB.id(wide), "true I(w;d)"] == round(wide.information, 3)
