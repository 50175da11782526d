"""An experiment: one kind of run. What its settings are, how a run is computed, and how far its numbers may move."""

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
from sibrepro.facts.record import Record, run_id

EXPERIMENTS: dict[str, Experiment] = {}  # all that were declared so far, by name
STALE = "†"
Numbers = tuple[Mapping[str, Any], Mapping[str, np.ndarray]]  # metrics and arrays of a run


@dataclasses.dataclass(frozen=True)
class Inputs:
    """What a run is computed from, loaded when it is needed, and the hashes of what that is made of."""

    hashes: dict[str, str]
    load: Callable[[], Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """One kind of run.

    Attributes:
        name: the first part of its runs' ids, and of the files that hold its published runs.
        settings: the class of its parameters.
        compute: makes `Numbers` from settings; with `inputs` also from what these load, with `keeps_files` also from
            the run's folder.
        inputs: makes `Inputs` from settings, and from what a caller of `run` has at hand already, such as images.
        keeps_files: whether a run leaves files besides its numbers: checkpoints from which it goes on, a network.
        state: the file in the run's folder that only a stopped run needs; it goes when the run is done.
        version: raised by hand when numbers may change; published runs of an older version are marked.
        oldest: the fields with which it was first published, part of every id. Later ones enter an id only where they
            are not default, so that a new option renames no run.
        tolerance: how far a metric may move when it is computed again, by pattern of its name.
        checkpoints: names of checkpoints that are published, those of all runs in one file.
        network: a file in the run's folder that is published as it is.
        kept_here: beginnings of the names of arrays that are not published.
    """

    name: str
    settings: type
    compute: Callable[..., Numbers]
    inputs: Callable[..., Inputs] | None = None
    keeps_files: bool = False
    state: str = ""
    version: int = 1
    oldest: Collection[str] = ()
    tolerance: compare.Tolerance = dataclasses.field(default_factory=dict)
    checkpoints: Collection[str] = ()
    network: str = ""
    kept_here: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        EXPERIMENTS[self.name] = self

    @property
    def code(self) -> fingerprint.Hashes:
        """The hash of every module that the computation of a run can reach."""
        return fingerprint.code_of(*filter(None, (self.compute, self.inputs)))

    def id(self, params: Any) -> str:
        """Return the id of the run with these parameters."""
        return run_id(self.name, params, self.oldest)

    def published(self, params: Any) -> Record | None:
        """Return the published run of these parameters, if there is one."""
        return published.find(self.name).get(self.id(params))

    def facts(self, plan: Iterable[Any]) -> list[Record]:
        """Return the published runs of a plan, in its order; what is not published yet is left out."""
        found = published.find(self.name)
        return [found[name] for name in map(self.id, plan) if name in found]

    def is_stale(self, record: Record) -> bool:
        """Tell whether a published run is of an older version of this experiment."""
        return record.version < self.version

    def settings_of(self, record: Record) -> Any:
        """Return a record's parameters as settings; fields that came later have their defaults."""
        unknown = set(record.params) - {field.name for field in dataclasses.fields(self.settings)}
        if unknown:
            raise ValueError(
                f"{record.id} has the parameters {', '.join(sorted(unknown))}, which this version does not know: "
                "it was made by a newer one; update the project"
            )
        return self.settings(**record.params)

    def run(
        self,
        params: Any,
        *,
        origin: Inputs | None = None,
        compute: Callable[[Any, Path], Numbers] | None = None,
        spent: float = 0.0,
        **given: Any,
    ) -> Record:
        """Return the run of these parameters: computed here earlier by the same code, published, or computed now.

        A run that is published too is compared with it. If the two agree the published one is returned, so that what is
        drawn does not depend on the machine; if not, the one computed here is, and a loud line names both.

        Args:
            params: the run's settings.
            origin: its inputs, where the caller has made them already.
            compute: takes the place of the experiment's own, for a run whose work was done together with others'.
            spent: seconds of that work.
            given: what `inputs` need not look for, such as images.
        """
        name, inputs = self.id(params), origin or self._inputs(params, given)
        folder, made_of = local.folder_of(name), self._made_of(inputs)
        known = self._known(params, inputs)
        why = local.why_not(folder, made_of)
        if why and self._suffices(known):
            local.say(f"{name}: published")
            manifest.note("run", name, how="published")
            return known
        if why:
            function = functools.partial(compute, folder=folder) if compute else self._function(inputs, folder)
            here, how = local.compute(folder, made_of, params, function, spent, self.state), "computed"
        else:
            here, how = local.read(folder), "loaded"
        if changes := local.code_changes(folder, made_of.code):  # accepted by name, or it would have been computed
            how, why = "kept", f"code changed: {fingerprint.listed(changes)}"
        local.say(f"{name}: {how}" + (f" although {why}" if how == "kept" else ""))
        verdict = compare.compare(known, here, self.tolerance) if known and how != "kept" else None
        if verdict:
            local.say(str(verdict))
        manifest.note("run", name, how=how, why=why, compared=dataclasses.asdict(verdict) if verdict else None)
        return known if verdict and verdict.agrees else here

    def verify(self, record: Record) -> tuple[compare.Comparison, Record]:
        """Compute a published run now, whatever was computed before, and compare.

        It is computed in a folder of its own that nothing else reads. A FileNotFoundError says that the data which it
        was made of are not here.
        """
        params = self.settings_of(record)
        inputs, folder = self._inputs(params, {}), local.verified(record.id)
        if inputs.hashes != record.provenance.get("data", {}):
            raise FileNotFoundError("it was made of other data or features than are here")
        shutil.rmtree(folder, ignore_errors=True)
        here = local.compute(folder, self._made_of(inputs), params, self._function(inputs, folder), state=self.state)
        return compare.compare(record, here, self.tolerance), here

    def recomputed(self, record: Record) -> compare.Comparison | None:
        """Compare a published run with that of this machine, if the present code computed one from the same data."""
        folder, data = local.folder_of(record.id), record.provenance.get("data", {})
        if not folder.is_dir():
            return None
        made_of = local.MadeOf(self.version, data, self.code)
        here = local.load(folder, made_of)
        mine = here is not None and not local.code_changes(folder, made_of.code)
        return compare.compare(record, here, self.tolerance) if mine else None

    def is_done(self, params: Any, inputs: Inputs) -> bool:
        """Tell whether `run` would have nothing to compute."""
        here = local.why_not(local.folder_of(self.id(params)), self._made_of(inputs)) is None
        return here or self._suffices(self._known(params, inputs))

    def _inputs(self, params: Any, given: Mapping[str, Any]) -> Inputs:
        return self.inputs(params, **given) if self.inputs else Inputs({}, lambda: None)

    def _made_of(self, inputs: Inputs) -> local.MadeOf:
        return local.MadeOf(self.version, inputs.hashes, self.code)

    def _function(self, inputs: Inputs, folder: Path) -> Callable[[Any], Numbers]:
        def function(params: Any) -> Numbers:
            loaded = [inputs.load()] if self.inputs else []
            return self.compute(params, *loaded, *([folder] if self.keeps_files else []))

        return function

    def _known(self, params: Any, inputs: Inputs) -> Record | None:
        """Return the published run of these parameters and data."""
        record = self.published(params)
        return record if record and record.provenance.get("data", {}) == inputs.hashes else None

    def _suffices(self, known: Record | None) -> bool:
        return known is not None and not self.is_stale(known) and not local.recompute()


def named(records: Sequence[Record]) -> str:
    """Return their ids, as tables have them; a dagger marks one of an older version of its experiment."""
    versions = {name: experiment.version for name, experiment in EXPERIMENTS.items()}
    stale = [record.version < versions.get(record.id.rpartition("-")[0], 0) for record in records]
    return " ".join(record.id + STALE * old for record, old in zip(records, stale, strict=True))


def is_stale(record: Record) -> bool:
    """Tell whether a published run is of an older version of its experiment."""
    return named([record]).endswith(STALE)


def recomputed() -> list[compare.Comparison]:
    """Compare every published run that the present code computed on this machine too."""
    facts = ((e, record) for e in EXPERIMENTS.values() for record in published.find(e.name).values())
    return [verdict for experiment, record in facts if (verdict := experiment.recomputed(record))]


def facts(experiment: Experiment, plan: Mapping[Any, Sequence[Any]]) -> dict[Any, list[Record]]:
    """Return the published runs of a plan by its keys; a key without any is left out."""
    return {key: records for key, several in plan.items() if (records := experiment.facts(several))}


def single_facts(experiment: Experiment, plan: Mapping[Any, Any]) -> dict[Any, Record]:
    """Do the same for a plan with one run for each key."""
    return {key: records[0] for key, p in plan.items() if (records := experiment.facts([p]))}


def flat(plan: Mapping[Any, Sequence[Any]]) -> list[Any]:
    """Return all that a plan, or what was found of it, has."""
    return [run for several in plan.values() for run in several]
