"""`Experiment`: one kind of run. It says which settings a run has, how it is computed and how exactly it repeats.

`Experiment.run` is how notebooks compute runs, `Experiment.published` and `facts` are how tables and figures read them.
"""

from __future__ import annotations

import dataclasses
import functools
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sibcore import fingerprint
from sibrepro.facts import compare, local, manifest, published
from sibrepro.facts.record import SAME_SPELLING, Record, Spelling, experiment_of, run_id

EXPERIMENTS: dict[str, Experiment] = {}  # every experiment declared so far, by name
STALE = "†"  # follows the id of a published run that an older version of its experiment computed
Numbers = tuple[Mapping[str, Any], Mapping[str, np.ndarray]]  # the metrics and arrays of a run, by name


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The data that a run is computed from.

    Attributes:
        hashes: the hash of each data set or file by name; a run of other data is not used again.
        load: loads the data. It is called only if the run has to be computed.
    """

    hashes: dict[str, str]
    load: Callable[[], Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """One kind of run: its settings, its computation and the tolerances of its metrics.

    Attributes:
        name: the beginning of its runs' ids, and the name of the files that hold its published runs.
        settings: the class of a run's parameters, a dataclass.
        compute: computes the metrics and arrays of a run. It is called with the settings, then what `inputs` loaded (if
            there are inputs), then the run's folder (if it keeps files).
        inputs: returns the `Inputs` for some settings. It also takes what a caller of `run` has loaded already, such as
            images, as keyword arguments.
        keeps_files: whether a run writes files into its folder, such as a network or a checkpoint to resume from.
        state: the file from which a stopped run resumes. It is deleted when the run is done.
        version: raised by hand when numbers may change. Published runs of an older version are marked and recomputed.
        oldest: the fields with which the experiment was first published, which are part of every id. A later field is
            part of an id only where it is not the default, so a new option renames no run.
        spelling: how settings that were renamed later were spelled at first, which ids are hashes of.
        tolerance: how far a metric may move when it is computed again, by a pattern of its name.
        checkpoints: the names of the checkpoints that are published, all runs' in one file.
        network: a file of the run's folder that is published as it is.
        kept_here: arrays whose names begin like this are not published.
    """

    name: str
    settings: type
    compute: Callable[..., Numbers]
    inputs: Callable[..., Inputs] | None = None
    keeps_files: bool = False
    state: str = ""
    version: int = 1
    oldest: Collection[str] = ()
    spelling: Spelling = SAME_SPELLING
    tolerance: compare.Tolerance = dataclasses.field(default_factory=dict)
    checkpoints: Collection[str] = ()
    network: str = ""
    kept_here: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        EXPERIMENTS[self.name] = self

    @property
    def code(self) -> fingerprint.Hashes:
        """Return the hash of every module that the computation of a run can reach."""
        return fingerprint.code_of(*filter(None, (self.compute, self.inputs)))

    def id(self, params: Any) -> str:
        """Return the id of the run with these settings."""
        return run_id(self.name, params, self.oldest, self.spelling)

    def published(self, params: Any) -> Record | None:
        """Return the published run with these settings, or None if there is none."""
        return published.find(self.name).get(self.id(params))

    def facts(self, plan: Iterable[Any]) -> list[Record]:
        """Return the published runs with the settings in `plan`, in its order, without those not published yet."""
        found = published.find(self.name)
        return [found[name] for name in map(self.id, plan) if name in found]

    def is_stale(self, record: Record) -> bool:
        """Tell whether an older version of this experiment computed the run."""
        return record.version < self.version

    def settings_of(self, record: Record) -> Any:
        """Return a run's parameters as settings. A field that did not exist when the run was made has its default.

        Raises:
            ValueError: if the run has a parameter that the settings do not know.
        """
        params = self.spelling.today(dict(record.params))
        unknown = set(params) - {field.name for field in dataclasses.fields(self.settings)}
        if unknown:
            raise ValueError(
                f"{record.id} has the parameters {', '.join(sorted(unknown))}, which this version does not know. "
                "A newer version of the project computed it: update yours"
            )
        return self.settings(**params)

    def run(
        self,
        params: Any,
        *,
        origin: Inputs | None = None,
        compute: Callable[[Any, Path], Numbers] | None = None,
        spent: float = 0.0,
        **given: Any,
    ) -> Record:
        """Return the run with these settings: one computed here by the same code, or a published one, or a new one.

        A run of this machine that is also published is compared with the published one. If the two agree, the published
        one is returned, so that figures do not depend on the machine. Otherwise this machine's run is returned, and
        stderr names the metric that disagrees.

        Args:
            params: the run's settings.
            origin: the run's inputs, if the caller has them already.
            compute: replaces the experiment's own function, for a run that was trained together with others. It takes
                the settings and the run's folder.
            spent: the seconds that such a common training took, as this run's share.
            given: passed on to `inputs`, such as images that the caller has loaded already.
        """
        name = self.id(params)
        folder = local.folder_of(name)
        inputs = origin or self._inputs(params, **given)
        made_of = self._made_of(inputs)
        known = self._known(params, inputs)
        why = local.why_not(folder, made_of)
        if why and self._suffices(known):
            local.say(f"{name}: published")
            manifest.note("run", name, how="published")
            return known

        if why:
            function = functools.partial(compute, folder=folder) if compute else self._function(inputs, folder)
            here = local.compute(folder, made_of, params, function, spent, self.state)
            how = "computed"
        else:
            here = local.read(folder)
            how = "loaded"

        verdict = None
        if changes := local.code_changes(folder, made_of.code):  # the user asked by name to keep this run all the same
            how, why = "kept", f"code changed: {fingerprint.listed(changes)}"
            local.say(f"{name}: kept although {why}")
        else:
            local.say(f"{name}: {how}")
            if known:
                verdict = compare.compare(known, here, self.tolerance)
                local.say(str(verdict))
        manifest.note("run", name, how=how, why=why, compared=dataclasses.asdict(verdict) if verdict else None)
        return known if verdict and verdict.agrees else here

    def verify(self, record: Record) -> tuple[compare.Comparison, Record]:
        """Compute a published run now, even if it was computed here before, and compare the two.

        The new run goes to a folder that nothing else reads.

        Raises:
            FileNotFoundError: if the run was computed from other data than this machine has.
        """
        params = self.settings_of(record)
        inputs = self._inputs(params)
        if inputs.hashes != record.provenance.get("data", {}):
            raise FileNotFoundError("it was computed from other data or features than this machine has")
        folder = local.verified(record.id)
        shutil.rmtree(folder, ignore_errors=True)
        here = local.compute(folder, self._made_of(inputs), params, self._function(inputs, folder), state=self.state)
        return compare.compare(record, here, self.tolerance), here

    def recomputed(self, record: Record) -> compare.Comparison | None:
        """Compare a published run with this machine's, or return None if the present code has not computed it here."""
        folder = local.folder_of(record.id)
        if not folder.is_dir():
            return None
        made_of = local.MadeOf(self.version, record.provenance.get("data", {}), self.code)
        here = local.load(folder, made_of)
        if here is None or local.code_changes(folder, made_of.code):
            return None
        return compare.compare(record, here, self.tolerance)

    def is_done(self, params: Any, inputs: Inputs) -> bool:
        """Tell whether `run` would have nothing to compute."""
        here = local.why_not(local.folder_of(self.id(params)), self._made_of(inputs)) is None
        return here or self._suffices(self._known(params, inputs))

    def _inputs(self, params: Any, **given: Any) -> Inputs:
        return self.inputs(params, **given) if self.inputs else Inputs({}, lambda: None)

    def _made_of(self, inputs: Inputs) -> local.MadeOf:
        return local.MadeOf(self.version, inputs.hashes, self.code)

    def _function(self, inputs: Inputs, folder: Path) -> Callable[[Any], Numbers]:
        """Return `compute` as a function of the settings alone."""

        def function(params: Any) -> Numbers:
            arguments = [params]
            if self.inputs:
                arguments.append(inputs.load())
            if self.keeps_files:
                arguments.append(folder)
            return self.compute(*arguments)

        return function

    def _known(self, params: Any, inputs: Inputs) -> Record | None:
        """Return the published run with these settings if it was computed from the same data."""
        record = self.published(params)
        return record if record and record.provenance.get("data", {}) == inputs.hashes else None

    def _suffices(self, known: Record | None) -> bool:
        """Tell whether the published run makes it unnecessary to compute the run here."""
        return known is not None and not self.is_stale(known) and not local.recompute()


def is_stale(record: Record) -> bool:
    """Tell whether an older version of its experiment computed a published run."""
    experiment = EXPERIMENTS.get(experiment_of(record.id))
    return experiment is not None and experiment.is_stale(record)


def named(records: Iterable[Record]) -> str:
    """Return the ids of runs as tables show them; a dagger marks a run of an older version of its experiment."""
    return " ".join(record.id + STALE * is_stale(record) for record in records)


def recomputed() -> list[compare.Comparison]:
    """Return a comparison for every published run that the present code also computed on this machine."""
    verdicts = []
    for experiment in EXPERIMENTS.values():
        verdicts += map(experiment.recomputed, published.find(experiment.name).values())
    return [verdict for verdict in verdicts if verdict]


def facts(experiment: Experiment, plan: Mapping[Any, Sequence[Any]]) -> dict[Any, list[Record]]:
    """Return the published runs of a plan, without the keys that have none yet.

    Args:
        experiment: whose runs they are.
        plan: lists of settings by key, such as the settings of every seed by shots.
    """
    found = {key: experiment.facts(settings) for key, settings in plan.items()}
    return {key: records for key, records in found.items() if records}


def single_facts(experiment: Experiment, plan: Mapping[Any, Any]) -> dict[Any, Record]:
    """Return the published runs of a plan that has one run for each key, without the keys not published yet."""
    found = facts(experiment, {key: [settings] for key, settings in plan.items()})
    return {key: records[0] for key, records in found.items()}


def flat(plan: Mapping[Any, Sequence[Any]]) -> list[Any]:
    """Return the values of a plan, or of the runs found for it, as one list."""
    return [run for several in plan.values() for run in several]
