"""What holds of every study, whatever it is about: a new one is covered from the moment its folder is there."""

from __future__ import annotations

import pytest

from sibrepro import claims, params, paths
from sibrepro.claim import KINDS, OPEN
from sibrepro.facts import published
from sibrepro.facts.experiment import EXPERIMENTS
from sibrepro.params import of_profile
from sibrepro.study import all_tables, planned, studies
from sibrepro.tables import NOT_MEASURED

each_study = pytest.mark.parametrize("name", studies())
each_table = pytest.mark.parametrize("name", all_tables())


def test_a_folder_of_studies_is_a_study():
    folders = {file.parent.name for file in (paths.PACKAGE / "studies").glob("*/__init__.py")}
    assert set(studies()) == folders


@each_study
def test_its_notebook_and_its_parameters_for_every_profile_are_there(name):
    study = studies()[name]
    assert (paths.PACKAGE.parent / f"{study.notebook}.ipynb").is_file()
    for profile in paths.PROFILES if study.parameters else ():
        params.check(study.parameters, of_profile(profile, study.notebook))


@each_study
def test_what_it_plans_are_settings_of_declared_experiments(name):
    for experiment, settings in studies()[name].planned():
        assert EXPERIMENTS[experiment.name] is experiment
        assert isinstance(settings, experiment.settings)
        assert experiment.id(settings).startswith(f"{experiment.name}-")


@each_table
def test_a_table_is_made_of_planned_runs_and_says_how(name):
    declared = all_tables()[name]
    table, runs = declared.make(), {record.id for record in declared.records()}
    for column in {"run", "runs"} & set(table):
        runs |= {run for several in table[column].dropna() for run in several.split()}
    assert runs <= {experiment.id(p) for experiment, several in planned().items() for p in several}
    assert declared.title
    assert declared.how


@each_table
def test_the_papers_own_numbers_in_a_table_are_counted_once(name):
    if all_tables()[name].own:
        numbers = claims.compared()[name]
        assert sum(claims.counts(name).values()) == len(numbers)
        assert claims.counts(name).get(OPEN, 0) == (numbers["verdict"] == NOT_MEASURED).sum()


@each_study
def test_its_claims_have_verdicts_and_published_runs(name):
    for claim in studies()[name].claims():
        assert claim.verdict in KINDS
        assert {record.id for record in claim.records} <= {record.id for record in published.everything()}
        assert all((claim.claim, claim.where, claim.paper))
