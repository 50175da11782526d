from __future__ import annotations

import pytest

from sibrepro import __main__
from sibrepro.facts import publish, published
from sibrepro.run import verify
from sibrepro.studies.spinning_lines import plan
from sibrepro.study import planned, studies

OPTIMUM = "spinning_lines_optimum"


def test_a_published_run_is_computed_again_and_agrees(capsys):
    assert __main__.main(["verify", OPTIMUM]) == 0
    assert "Recomputed 1 published run: 1 of 1 agree" in capsys.readouterr().out


def test_a_wrong_number_is_named_with_both_values(tmp_path, monkeypatch, capsys):
    import dataclasses

    (record,) = published.find(OPTIMUM).values()
    monkeypatch.setenv("SIB_HOME", str(tmp_path))
    wrong = dataclasses.replace(record, metrics=record.metrics | {"sum/kl_posterior": 0.5})
    publish.add(plan.OPTIMUM, [wrong])
    assert __main__.main(["verify", record.id]) == 1
    said = capsys.readouterr().out
    assert "DISAGREES with the published run: sum/kl_posterior 0.5 -> 0.766395" in said
    assert "0 of 1 agree" in said


def test_what_needs_images_is_left_out_by_name(tmp_path, monkeypatch, capsys):
    for name in ("SIB_DATA", "SIB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path))
    assert __main__.main(["verify", "pretrain", "--budget", "1m"]) == 0
    assert "not recomputed: pretrain-40e8d8a042c7: cifar-fs: found none of" in capsys.readouterr().out


def test_the_cheapest_come_first_and_a_budget_ends_it(capsys):
    assert __main__.main(["verify", "--budget", "0.000001s"]) == 0
    said = capsys.readouterr().out
    assert "s are over (--budget)" in said
    costs = [verify.cost(record) for record in sorted(verify.chosen([]), key=verify.cost)]
    assert costs == sorted(costs)


def test_an_unknown_name_lists_what_there_is(capsys):
    assert __main__.main(["verify", "few_shots"]) == 2
    assert "few_shot" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        __main__.main(["verify", "--budget", "soon"])
    assert "90s, 10m or 2h" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1.5h", 5400), ("7", 7)])
def test_times(text, seconds):
    assert __main__.seconds(text) == seconds


def test_every_published_experiment_is_declared_by_a_study():
    assert set(published.experiments()) == {experiment.name for experiment in planned()}


def test_the_quick_profile_of_every_study_is_published():
    for study in studies().values():
        for experiment, settings in study.quick().items():
            assert [experiment.id(p) for p in settings if experiment.published(p) is None] == []
