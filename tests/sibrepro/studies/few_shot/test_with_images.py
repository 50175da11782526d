"""The studies of notebook 03 that need images."""

from __future__ import annotations

from few_shot_records import sib

from sibcore import datasets
from sibrepro.studies.few_shot import plan
from sibrepro.studies.few_shot.plan import FewShotNotebook


def test_without_images_there_is_a_message_and_no_run(monkeypatch, capsys, tmp_path):
    monkeypatch.delenv("SIB_DATA", raising=False)
    monkeypatch.setenv("SIB_CACHE", str(tmp_path))
    assert plan.with_images(FewShotNotebook(), []) == []
    assert "left out for want of images: cifar-fs: found none of" in capsys.readouterr().out


def test_each_study_gets_the_runs_that_it_is_about(monkeypatch):
    seen = []
    monkeypatch.setattr(datasets, "load", lambda name: name)
    monkeypatch.setattr(plan, "compression", lambda record, data: seen.append(("compression", data, record.params)))
    monkeypatch.setattr(plan, "jpeg", lambda record, data: seen.append(("jpeg", data, record.params)))
    monkeypatch.setattr(plan, "together", lambda settings, data: [(p.views, p.epochs, p.K) for p in settings])
    kinds = [{}, {"K": 0}, {"K": 5}, {"shots": 5}, {"seed": 1}, {"backbone": "conv4-128"}, {"dataset": "glyphs"}]
    made = plan.with_images(FewShotNotebook(), [sib(60, **change) for change in kinds])
    assert made[-3:] == [(4, 0, 3), (0, 5, 3), (0, 5, 0)]
    assert sorted((name, data, p["shots"], p["K"]) for name, data, p in seen) == [
        ("compression", "cifar-fs", 1, 0),
        ("compression", "cifar-fs", 1, 3),
        ("compression", "cifar-fs", 5, 3),
        ("jpeg", "cifar-fs", 1, 0),
        ("jpeg", "cifar-fs", 1, 3),
    ]
    seen.clear()
    plan.with_images(FewShotNotebook(), [sib(60, features="images")])
    assert [name for name, *_ in seen] == ["jpeg"], "there is no compression where features are exact"
