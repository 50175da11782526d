"""Meta-training of SIB on a bank of frozen features (Algorithm 1), and evaluation on many tasks at once.

Task i is a function of (seed, i) and noise one of (seed, step), so parameters, momenta and the step are the whole
state: an interrupted run that goes on ends in the same bits.

    <folder>/last.safetensors    parameters, momenta and history at the last checkpoint
    <folder>/best.safetensors    parameters at the best validation accuracy so far
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

from sibcore.episodes import EpisodeSampler, Tasks
from sibcore.files import momenta_of, put_weights, read_tensors, resume, weights_of, write_tensors
from sibcore.seeds import combine
from sibcore.settings import Settings, setting
from sibcore.sib import SIB, unit

LAST = "last.safetensors"
BEST = "best.safetensors"


@dataclass(frozen=True, kw_only=True)
class Schedule(Settings):
    """How to meta-train."""

    steps: int = setting(40_000, least=1)
    batch: int = setting(8, least=1)
    lr: float = setting(1e-3, above=0)
    momentum: float = setting(0.9, least=0, below=1)  # Nesterov's
    weight_decay: float = setting(5e-4, least=0)
    every: int = setting(1000, least=1)  # steps between validations, each with a checkpoint
    seed: int = setting(0, least=0)  # of the noise of q; tasks have the sampler's seed


# "We run SGD with batch size 8 for 40000 steps, where the learning rate is fixed to 1e-3", says the paper. The release
# adds Nesterov momentum and weight decay; its 50,000 steps of one task are not taken over.
SCHEDULES = {"paper": Schedule(momentum=0.0, weight_decay=0.0), "release": Schedule()}


class Method(Protocol):
    """What can be evaluated: SIB, and every class of `sibcore.baselines`."""

    ways: int

    def answer(self, support: Tensor, support_labels: Tensor, query: Tensor) -> Tensor:
        """Unit features support [B, m, d] and query [B, n, d], support_labels [B, m] -> logits [B, n, k]."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Accuracies of the single tasks [N] and their mean with a 95 % interval."""

    accuracies: Tensor

    @property
    def mean(self) -> float:
        return self.accuracies.mean().item()

    @property
    def interval(self) -> float:
        return 1.96 * self.accuracies.std(correction=0).item() / math.sqrt(len(self.accuracies))

    def right(self, queries: int) -> np.ndarray:
        """How many of its queries each task answered rightly, [N], for records: a byte each, where that is enough."""
        counts = (self.accuracies * queries).round().numpy()
        return counts.astype(np.uint8 if queries < 256 else np.uint16)

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f} ± {100 * self.interval:.2f} %"


def evaluate(method: Method, bank: Tensor, tasks: Tasks, batch: int = 128) -> Evaluation:
    """Accuracy of every task, whose indices are rows of `bank [N, d]`."""
    answered = answers(method, bank, tasks, batch)
    right = [logits.argmax(-1) == part.query_labels for logits, part in answered]
    return Evaluation(torch.cat([rows.double().mean(1).cpu() for rows in right]))


@torch.no_grad()
def answers(method: Method, bank: Tensor, tasks: Tasks, batch: int = 128) -> Iterator[tuple[Tensor, Tasks]]:
    """The logits [b, n, k] of `batch` tasks at a time, beside these tasks; w is the mean of q, theta^K."""
    bank = unit_bank(method, bank, tasks.classes.shape[1])
    for start in range(0, len(tasks), batch):
        part = tasks[start : start + batch]
        with _evaluation_mode(method):
            logits = method.answer(rows(bank, part.support), part.support_labels, rows(bank, part.query))
        yield logits, part


@contextlib.contextmanager
def _evaluation_mode(method: Method) -> Iterator[None]:
    """Matters to a xi with running statistics."""
    was_training = method.training
    method.eval()
    try:
        yield
    finally:
        method.train(was_training)


def train(
    model: SIB,
    bank: Tensor,
    sampler: EpisodeSampler,
    schedule: Schedule | None = None,
    *,
    validation: tuple[Tensor, Tasks] | None = None,
    folder: Path | None = None,
    compile: bool = False,
    report: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """Train `model` in place on tasks of `bank [N, d]` and return the history, a row for every `schedule.every` steps.

    `validation` is a bank and its fixed tasks. With a `folder` the run leaves checkpoints there and goes on from them.
    `compile` is worth its minute of compilation in runs of more than a few thousand steps. On a terminal there is a
    bar, elsewhere a line per row; `report` takes the lines instead.
    """
    schedule = schedule or Schedule()
    features = training_bank(model, bank, sampler)
    optimizer = sgd(model, schedule)
    about = _describe(model, bank, sampler, schedule, validation)
    if folder:
        about = resume(Path(folder) / LAST, model, optimizer, about, same=("model", "tasks", "schedule", "data"))
    history = about["history"]
    loss_of = compiled(task_loss) if compile else task_loss

    def part(start: int, stop: int, bar: tqdm) -> str:
        row = _train_steps(model, features, sampler, schedule, optimizer, loss_of, start, stop, bar)
        if validation:
            scores = evaluate(model, *validation)
            row |= {"validation": scores.mean, "interval": scores.interval}
        history.append(row)
        if folder:
            _save(Path(folder), model, optimizer, about)
        return _line(row, schedule.steps)

    run_parts(part, len(history), schedule, report)
    return history


def task_loss(
    model: SIB, support: Tensor, support_labels: Tensor, query: Tensor, query_labels: Tensor, noise: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The negative ELBO of eq. (avi), mean over the tasks, and the logits [B, n, k]; features are unit vectors."""
    theta = model.infer(support, support_labels, query, noise)[-1]
    logits = model.classify(query, model.sample(theta, noise, -1))
    loss = F.cross_entropy(logits.flatten(0, 1), query_labels.flatten())
    if model.kl_weight:
        loss = loss + model.kl_weight * model.kl(theta).mean()
    return loss, logits


def load_sib(path: Path) -> tuple[SIB, dict[str, Any]]:
    """The model in a checkpoint file (`best` or `last`) and what the file says of its making."""
    tensors, about = read_tensors(path)
    model = SIB(**about["model"])
    put_weights(model, tensors)
    return model, about


def run_parts(
    part: Callable[[int, int, tqdm], str], done: int, schedule: Schedule, report: Callable[[str], None] | None
) -> None:
    """Call `part(start, stop, bar)` for every `schedule.every` steps, `done` parts being done, and show its line."""
    first = done * schedule.every
    watched = report is None and sys.stderr.isatty()
    with tqdm(total=schedule.steps, initial=min(first, schedule.steps), unit="step", disable=not watched) as bar:
        for start in range(first, schedule.steps, schedule.every):
            line = part(start, min(start + schedule.every, schedule.steps), bar)
            if watched:
                bar.set_postfix_str(line)
            else:
                (report or _to_stderr)(line)


def sgd(model: nn.Module, schedule: Schedule) -> torch.optim.SGD:
    return torch.optim.SGD(
        model.parameters(),
        schedule.lr,
        schedule.momentum,
        nesterov=schedule.momentum > 0,
        weight_decay=schedule.weight_decay,
        fused=True,
    )


def _train_steps(
    model: SIB,
    bank: Tensor,
    sampler: EpisodeSampler,
    schedule: Schedule,
    optimizer: torch.optim.SGD,
    loss_of: Callable[..., tuple[Tensor, Tensor]],
    start: int,
    stop: int,
    bar: tqdm,
) -> dict[str, Any]:
    began = time.perf_counter()
    loss_sum, accuracy_sum = bank.new_zeros(()), bank.new_zeros(())
    for step, tasks in enumerate(sampler.batches(start, stop, schedule.batch), start):
        support, query = rows(bank, tasks.support), rows(bank, tasks.query)
        noise = model.noise(len(tasks), _generator(schedule.seed, step)) if model.sigma else None
        loss, logits = loss_of(model, support, tasks.support_labels, query, tasks.query_labels, noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.detach()
        accuracy_sum += (logits.detach().argmax(-1) == tasks.query_labels).float().mean()
        bar.update()
    loss, accuracy = (total.item() / (stop - start) for total in (loss_sum, accuracy_sum))
    if not math.isfinite(loss):
        raise ValueError(f"the loss became NaN or infinite in steps {start} to {stop}: lower lr or eta")
    rate = (stop - start) / (time.perf_counter() - began)
    return {"step": stop, "loss": loss, "accuracy": accuracy, "steps_per_second": rate}


def compiled(function: Callable) -> Callable:
    """`torch.compile(function)`, or the function itself, with a message, where no compiler works."""
    chosen = torch.compile(function, dynamic=False)
    tried = False

    def call(*arguments: Any) -> Any:
        nonlocal chosen, tried
        try:
            result = chosen(*arguments)
        except Exception as error:
            if tried:
                raise
            _to_stderr(f"torch.compile does not work here, going on without: {str(error).strip().splitlines()[0]}")
            chosen = function
            result = chosen(*arguments)
        tried = True
        return result

    return call


def rows(bank: Tensor, index: Tensor) -> Tensor:
    """bank [N, d], index [B, m] -> [B, m, d]; index_select is several times faster than bank[index] on a CPU."""
    return bank.index_select(0, index.flatten()).view(*index.shape, -1)


def unit_bank(method: Method, bank: Tensor, ways: int) -> Tensor:
    """The bank with every feature scaled to length 1, once for all tasks, where a trained method has its parameters."""
    name = type(method).__name__
    if ways != method.ways:
        raise ValueError(f"the tasks have {ways} ways, but this {name} was made for {method.ways}")
    dim = getattr(method, "dim", None)  # methods that learn nothing take features of any size
    if bank.ndim != 2 or dim not in (None, bank.shape[1]):
        raise ValueError(f"features: expected [N, {dim or 'd'}] for this {name}, got {[*bank.shape]}")
    bad = ~torch.isfinite(bank).all(1)
    if bad.any():
        first = int(bad.nonzero()[0])
        raise ValueError(f"{int(bad.sum())} of {len(bank)} features hold NaN or infinity, the first is row {first}")
    return unit(bank).to(next(method.parameters(), bank))


def training_bank(model: Method, bank: Tensor, sampler: EpisodeSampler) -> Tensor:
    """`unit_bank`, if it is the bank that the sampler draws from."""
    if len(bank) != sampler.rows:
        raise ValueError(
            f"the sampler draws from {sampler.rows} rows ({sampler.views} views), the bank has {len(bank)}"
        )
    return unit_bank(model, bank, sampler.ways)


def _generator(seed: int, step: int) -> torch.Generator:
    return torch.Generator().manual_seed(combine(seed, step))


def _describe(model: SIB, bank: Tensor, sampler: EpisodeSampler, schedule: Schedule, validation: Any) -> dict[str, Any]:
    """What must be the same for a checkpoint to be continued, and an empty history."""
    return {
        "model": model.setup,
        "tasks": sampler.setup,
        "schedule": asdict(schedule),
        "data": digest(bank, validation),
        "history": [],
    }


def digest(bank: Tensor, validation: tuple[Tensor, Tasks] | None) -> str:
    """A hash of all features and validation tasks."""
    tensors = [bank, *([validation[0], validation[1].support, validation[1].query] if validation else [])]
    hashed = hashlib.sha256()
    for tensor in tensors:
        hashed.update(tensor.detach().cpu().contiguous().numpy())
    return hashed.hexdigest()


def _save(folder: Path, model: SIB, optimizer: torch.optim.SGD, about: dict[str, Any]) -> None:
    """`best` goes first: a crash between the two leaves an older `last`, which makes the same `best` again."""
    save_best(folder, model, about)
    write_tensors(folder / LAST, weights_of(model) | momenta_of(model, optimizer), about)


def save_best(folder: Path, model: SIB, about: dict[str, Any]) -> None:
    history = about["history"]
    if history[-1].get("validation", 0) >= max(row.get("validation", 0) for row in history):
        write_tensors(folder / BEST, weights_of(model), about)


def _line(row: dict[str, Any], steps: int) -> str:
    checked = f"  validation {100 * row['validation']:.2f} %" if "validation" in row else ""
    learned = f"loss {row['loss']:.4f}  accuracy {100 * row['accuracy']:.2f} %{checked}"
    return f"step {row['step']}/{steps}  {learned}  {pace(row, steps)}"


def pace(row: dict[str, Any], steps: int) -> str:
    left = (steps - row["step"]) / row["steps_per_second"] / 60
    return f"{row['steps_per_second']:.0f} steps/s  {left:.0f} min left"


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
