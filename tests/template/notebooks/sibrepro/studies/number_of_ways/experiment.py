"""The accuracy of the nearest class mean on tasks of so many ways, as runs."""

from __future__ import annotations

import dataclasses

from pydantic import Field

from sibcore.evaluate import evaluate
from sibcore.sib import SIB
from sibrepro.facts import Experiment, Numbers
from sibrepro.meta_training.banks import Banks, banks_of, numbers, tasks
from sibrepro.meta_training.settings import Tested, Where
from sibrepro.params import Count, parameters


@parameters
class Ways(Tested):
    """One number of ways."""

    features: Where = Field("shipped", description="computed from images, or the project's own")
    test_episodes: Count = Field(100, description="tasks of test classes")


def compute(p: Ways, banks: Banks) -> Numbers:
    """Test SIB without steps, which answers with the nearest class mean.

    Returns:
        metrics: the "accuracy" in percent, with "accuracy_ci95".
        arrays: queries answered rightly in each task, "accuracy".
    """
    bank = banks["test"]
    scores = {"accuracy": evaluate(SIB(p.ways, bank.features.shape[1], 0), bank.features, tasks(p, bank, "test"))}
    return numbers(scores, p.ways * p.queries)


WAYS = Experiment("number_of_ways", Ways, compute, banks_of, tolerance={"*": 0.01})


@parameters
class WaysNotebook:
    """Notebook 90."""

    ways: list[Count] = Field([2, 5], description="numbers of classes in a task")
    episodes: Count = Field(100, description="tasks of test classes")

    def experiments(self) -> list[Ways]:
        """Return the settings of each number of ways."""
        base = Ways(test_episodes=self.episodes)
        return [dataclasses.replace(base, ways=ways) for ways in self.ways]
