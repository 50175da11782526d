"""An experiment: what its runs are called, how far their numbers may move, and how one is computed or found."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sibrepro.facts import compare, local, manifest, published
from sibrepro.facts.record import Record, experiment_of, run_id

EXPERIMENTS: dict[str, Experiment] = {}  # all there are, by name
STALE = "†"


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """Runs of one kind.

    settings: the class of their parameters
    version: raised by hand when numbers may change; facts of an older one are marked
    oldest: the fields with which it was first published, part of every id; later ones count where they are not default
    tolerance: how far a metric may move when computed again, by pattern of its name
    checkpoints: what it trains that is published for all runs together; network: a file that is published as it is
    kept_here: beginnings of the names of arrays that are not published
    """

    name: str
    settings: type
    version: int = 1
    oldest: Collection[str] = ()
    tolerance: compare.Tolerance = dataclasses.field(default_factory=dict)
    checkpoints: Collection[str] = ()
    network: str = ""
    kept_here: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        EXPERIMENTS[self.name] = self

    def id(self, params: Any) -> str:
        return run_id(self.name, params, self.oldest)

    def published(self, params: Any) -> Record | None:
        """The published run of these parameters."""
        return published.find(self.name).get(self.id(params))

    def facts(self, plan: Iterable[Any]) -> list[Record]:
        """The published runs of a plan, in its order; what is not published yet is left out."""
        found = published.find(self.name)
        return [found[name] for name in map(self.id, plan) if name in found]

    def is_stale(self, record: Record) -> bool:
        return record.version < self.version

    def settings_of(self, record: Record) -> Any:
        """A record's parameters as an object; fields that came later have their defaults."""
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
        compute: local.Compute,
        *,
        data: Mapping[str, str] | None = None,
        long: bool = False,
        spent: float = 0.0,
        state: str = "",
    ) -> Record:
        """The run of these parameters: computed here earlier, published, or computed now.

        `data` are the hashes of what it is made of: a run of other data is another run. `long` is for runs of hours:
        `compute(params, folder)` keeps checkpoints in the run's folder and goes on from them. `state` is a file there
        that only a stopped run needs: it goes when the run is done. `spent` are seconds of work done before, such as a
        share of a common training.

        A run that is published too is compared with it. If the two agree the published one is returned, so that what is
        drawn does not depend on the machine; if not, the one computed here is, and a loud line names both.
        """
        name, data = self.id(params), dict(data or {})
        known, here = self._known(params, data), local.load(name, self.version, data)
        if here is None and self._suffices(known):
            local.say(f"{name}: published")
            manifest.note("run", name, how="published")
            return known
        how = "loaded" if here else "computed"
        if here is None:
            folder = local.folder_of(name)
            function = functools.partial(compute, folder=folder) if long else compute
            here = local.compute(folder, self.version, data, params, function, spent, state)
        local.say(f"{name}: {how}")
        verdict = compare.compare(known, here, self.tolerance) if known else None
        if verdict:
            local.say(str(verdict))
        manifest.note("run", name, how=how, compared=dataclasses.asdict(verdict) if verdict else None)
        return known if verdict and verdict.agrees else here

    def recomputed(self, record: Record) -> compare.Comparison | None:
        """A published run against that of this machine, if it was computed here from the same data."""
        here = local.load(record.id, self.version, record.provenance.get("data", {}))
        return compare.compare(record, here, self.tolerance) if here else None

    def is_done(self, params: Any, data: Mapping[str, str]) -> bool:
        """Whether `run` would have nothing to compute."""
        return self._suffices(self._known(params, data)) or bool(local.load(self.id(params), self.version, data))

    def _known(self, params: Any, data: Mapping[str, str]) -> Record | None:
        """The published run of these parameters and data."""
        record = self.published(params)
        return record if record and record.provenance.get("data", {}) == dict(data) else None

    def _suffices(self, known: Record | None) -> bool:
        return known is not None and not self.is_stale(known) and not local.recompute()


def named(records: Iterable[Record]) -> str:
    """Their ids, as tables have them; a dagger marks one of an older version of its experiment."""
    return " ".join(record.id + (STALE if is_stale(record) else "") for record in records)


def is_stale(record: Record) -> bool:
    experiment = EXPERIMENTS.get(experiment_of(record.id))
    return experiment is not None and experiment.is_stale(record)


def recomputed() -> list[compare.Comparison]:
    """Every published run that was computed on this machine too, compared."""
    facts = ((e, record) for e in EXPERIMENTS.values() for record in published.find(e.name).values())
    return [verdict for experiment, record in facts if (verdict := experiment.recomputed(record))]
