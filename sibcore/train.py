"""Meta-training on a bank of frozen features (Algorithm 1): one loop, for one model or for many in one pass.

Episode i depends on (seed, i) alone and the noise on (seed, step) alone. So parameters, momenta and the step are the
whole state: a training that was interrupted and resumed with the same number of threads ends in the same bits. The
loss of several models is the sum of their losses, which keeps their gradients apart: each is trained as if alone.

    <folder>/training.safetensors     all models, momenta and histories at the last checkpoint of a running training
    <folder>/best.safetensors         the parameters with the best validation accuracy so far
    <folder>/last.safetensors         the parameters, momenta and history at the end

With several models, the files of model e of stream s are in `<folder>/<s>-<e>/`.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from sibcore import fingerprint
from sibcore.device import threads
from sibcore.episodes import EpisodeSampler, Tasks
from sibcore.evaluate import evaluate_each, rows, unit_bank
from sibcore.files import check_same, hash_of, put_weights, read_tensors, weights_of, write_tensors
from sibcore.group import Group, grouped
from sibcore.settings import Settings, one_of, setting
from sibcore.sib import SIB

STATE, LAST, BEST = "training.safetensors", "last.safetensors", "best.safetensors"
SEEN = ("support", "support_labels", "query", "query_labels")  # of tasks, by a step
STATE_OF = ("history", "threads")  # what a checkpoint says of how far it is, and how it got there

History = list[dict[str, Any]]  # a row for every `Schedule.every` steps


@dataclass(frozen=True, kw_only=True)
class Schedule(Settings):
    """The settings of a meta-training's outer loop."""

    optimiser: str = one_of("sgd", "adam")  # adam's rate rises to lr in a tenth of the steps, and falls to 0
    steps: int = setting(40_000, least=1)
    batch: int = setting(8, least=1)
    lr: float = setting(1e-3, above=0)
    momentum: float = setting(0.9, least=0, below=1)  # Nesterov's, of sgd
    weight_decay: float = setting(5e-4, least=0)  # of sgd
    every: int = setting(1000, least=1)  # steps between validations, each with a checkpoint
    seed: int = setting(0, least=0)  # of the noise of q; tasks have the sampler's seed

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0: constant for SGD, one cycle for Adam."""
        if self.optimiser == "sgd":
            return self.lr
        rise, t = max(1, self.steps // 10), step + 1
        fallen = (t - rise) / (self.steps - rise + 1)
        return self.lr * (t / rise if t < rise else (1 + math.cos(math.pi * fallen)) / 2)


# "We run SGD with batch size 8 for 40000 steps, where the learning rate is fixed to 1e-3", says the paper. The release
# adds Nesterov momentum and weight decay; its 50,000 steps of one task are not taken over.
SCHEDULES = {"paper": Schedule(momentum=0.0, weight_decay=0.0), "release": Schedule()}


def train(
    models: nn.Module | Sequence[Sequence[nn.Module]],
    bank: Tensor,
    samplers: EpisodeSampler | Sequence[EpisodeSampler],
    schedule: Schedule | None = None,
    *,
    validation: tuple[Tensor, Tasks] | None = None,
    folder: Path | None = None,
    compile: bool = False,
    report: Callable[[str], None] | None = None,
) -> History | list[list[History]]:
    """Train one model, or a grid of models `[S][E]`, in place.

    Args:
        models: a SIB, or any other module with a `setup`, `ways`, `dim` and `answer`; or a grid of such models. Of
            several models, one whose loss becomes NaN or infinite does not stop the others.
        bank: features of all training images, `[N, d]`.
        samplers: draws the training episodes; of a grid one sampler for each stream.
        schedule: settings of the outer loop; the defaults are those of the authors' release.
        validation: features and fixed episodes of validation classes.
        folder: where checkpoints go. A training that finds checkpoints of its own there resumes from them.
        compile: whether to compile the step, which takes about a minute and pays from a few thousand steps on.
        report: is called with a line of progress now and then. By default there is a progress bar on a terminal, and
            elsewhere a line on stderr.

    Returns:
        The history, a row for every `schedule.every` steps; of a grid the histories `[S][E]`.
    """
    alone = isinstance(models, nn.Module)
    grid, streams = ([[models]], [samplers]) if alone else (models, samplers)
    _check_samplers(grid, bank, streams)
    names = [f"{s}-{e}" for s, stream in enumerate(grid) for e in range(len(stream))]
    files = Files(Path(folder), [""] if alone else names) if folder else None
    arguments = (grid, bank, streams, schedule or Schedule(), validation, files, report)
    histories = None
    # running statistics change inside the loss, which a compiled step cannot have
    if compile and all(model.setup.get("normalise") != "running" for stream in grid for model in stream):
        try:
            histories = _train(*arguments, compile=True)
        except NoCompiler as error:
            _to_stderr(f"torch.compile does not work here, going on without: {error}")
    histories = histories or _train(*arguments, compile=False)
    width = len(grid[0])
    return histories[0] if alone else [histories[i : i + width] for i in range(0, len(histories), width)]


def _train(
    grid: Sequence[Sequence[nn.Module]],
    bank: Tensor,
    samplers: Sequence[EpisodeSampler],
    schedule: Schedule,
    validation: tuple[Tensor, Tasks] | None,
    files: Files | None,
    report: Callable[[str], None] | None,
    compile: bool,
) -> list[History]:
    """Train the models of a grid, eagerly or compiled, and return their histories in one list."""
    models = [model for stream in grid for model in stream]
    data = [bank, *([validation[0], validation[1].support, validation[1].query] if validation else [])]
    learned = [*models, *(model.xi for model in models if isinstance(model, SIB) and model.xi)]
    code = fingerprint.code_of(train, *{type(module) for module in learned})
    same = {"schedule": asdict(schedule), "data": hash_of(data), "code": code}  # or a checkpoint does not go on
    abouts = [
        {"model": model.setup, "tasks": sampler.setup, **same, "history": [], "threads": torch.get_num_threads()}
        for stream, sampler in zip(grid, samplers, strict=True)
        for model in stream
    ]
    saved = files.resume(models, abouts) if files else [{}] * len(models)
    group = grouped(grid, compile)
    features = unit_bank(models[0], bank, samplers[0].ways)
    first, watched = len(abouts[0]["history"]) * schedule.every, report is None and sys.stderr.isatty()
    optimiser = Optimiser(group, schedule, first, saved)
    gradients = _compiled(gradients_of) if compile else gradients_of

    def advance(step: int, tasks: Sequence[Tensor], noise: list[Tensor | None] | None) -> Tensor:
        scores, found = gradients(group, optimiser.parameters, features, tasks, noise)
        optimiser.step(step, found)
        return scores

    bar = tqdm(total=schedule.steps, initial=min(first, schedule.steps), unit="step", disable=not watched)
    with threads(abouts[0]["threads"]), bar:
        say = bar.set_postfix_str if watched else report or _to_stderr
        for start in range(first, schedule.steps, schedule.every):
            stop = min(start + schedule.every, schedule.steps)
            rows = _train_steps(advance, group, samplers, schedule, start, stop, bar)
            group.write_back()
            if validation:
                for row, scores in zip(rows, evaluate_each(group, *validation), strict=True):
                    row |= {"validation": scores.mean, "interval": scores.interval}
            for about, row in zip(abouts, rows, strict=True):
                about["history"].append(row)
            if files:
                kept = [optimiser.state_of(i) for i in range(len(models))]
                files.save(models, kept, abouts, stop == schedule.steps)
            say(_line(rows, schedule.steps))
    return [about["history"] for about in abouts]


def _train_steps(
    advance: Callable[..., Tensor],
    group: Group,
    samplers: Sequence[EpisodeSampler],
    schedule: Schedule,
    start: int,
    stop: int,
    bar: tqdm,
) -> list[dict[str, Any]]:
    """Take the steps from `start` to `stop` - 1 and return the new row of each model's history."""
    began, sums = time.perf_counter(), 0
    streams = zip(*(sampler.batches(start, stop, schedule.batch) for sampler in samplers), strict=True)
    for step, tasks in enumerate(streams, start):
        stacked = [torch.stack([getattr(one, name) for one in tasks]) for name in SEEN]
        noise = group.noise(schedule.batch, schedule.seed, step)
        sums = sums + advance(step, stacked, noise)
        bar.update()
    losses, accuracies = (sums / (stop - start)).tolist()
    if not any(map(math.isfinite, losses)):
        raise ValueError(f"the loss became NaN or infinite in steps {start} to {stop}: lower lr or eta")
    rate = (stop - start) / (time.perf_counter() - began)
    return [
        {"step": stop, "loss": loss, "accuracy": accuracy, "steps_per_second": rate}
        for loss, accuracy in zip(losses, accuracies, strict=True)
    ]


def gradients_of(
    group: Group,
    parameters: dict[str, Tensor],
    bank: Tensor,
    tasks: Sequence[Tensor],
    noise: list[Tensor | None] | None,
) -> tuple[Tensor, list[Tensor]]:
    """Return losses and accuracies on some episodes, and the gradients of the losses.

    Drawing features from the bank, the loss and its gradient are all in here, so that a compiler can make one piece of
    them.

    Args:
        group: the models.
        parameters: their parameters, by name.
        bank: unit features, `[N, d]`.
        tasks: support, support_labels, query and query_labels, `[S, B, ...]`; images are rows of the bank.
        noise: what `group.noise` drew.

    Returns:
        losses and accuracies, `[2, M]`, and a gradient for each of the parameters.
    """
    support, support_labels, query, query_labels = tasks
    seen = rows(bank, support), support_labels, rows(bank, query), query_labels, noise

    def loss(values: dict[str, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        losses, accuracies = torch.func.functional_call(group, values, seen)
        return losses.sum(), (losses, accuracies)

    if torch.compiler.is_compiling():  # autograd itself cannot be compiled; eagerly it is the faster of the two
        fixed = {name: p.detach() for name, p in parameters.items()}
        found, (_, (losses, accuracies)) = torch.func.grad_and_value(loss, has_aux=True)(fixed)
        gradients = list(found.values())
    else:
        losses, accuracies = group(*seen)
        gradients = list(torch.autograd.grad(losses.sum(), parameters.values()))
    return torch.stack([losses, accuracies]).detach(), gradients


class Optimiser:
    """SGD or Adam of `torch.optim` for a group, with its state as tensors that checkpoints keep model by model."""

    def __init__(self, group: Group, schedule: Schedule, step: int, saved: Sequence[Mapping[str, Tensor]]) -> None:
        """Start at a step of the schedule, from the state that each model's checkpoint has, if it has any."""
        self.group, self.schedule, self.parameters = group, schedule, group.trained()
        parameters = list(self.parameters.values())
        fused = all(p.device.type in ("cpu", "cuda") for p in parameters)
        if schedule.optimiser == "adam":
            self.kept = ["exp_avg", "exp_avg_sq"]
            self.torchs = torch.optim.Adam(parameters, schedule.lr, fused=fused)
        else:
            self.kept = ["momentum_buffer"] if schedule.momentum else []
            options = {"weight_decay": schedule.weight_decay, "nesterov": bool(schedule.momentum), "fused": fused}
            self.torchs = torch.optim.SGD(parameters, schedule.lr, schedule.momentum, **options)
        for p in parameters:
            self.torchs.state[p] = {kind: torch.zeros_like(p, requires_grad=False) for kind in self.kept}
            if schedule.optimiser == "adam":
                self.torchs.state[p]["step"] = torch.tensor(float(step), device=p.device)
        for i, tensors in enumerate(saved):
            for name, own in self.state_of(i).items():
                own.copy_(tensors.get(name, own))

    def step(self, number: int, gradients: Sequence[Tensor]) -> None:
        """Take the step with this number, counted from 0."""
        for parameter, gradient in zip(self.parameters.values(), gradients, strict=True):
            parameter.grad = gradient.contiguous()  # fused updates read memory in the order of the parameter
        self.torchs.param_groups[0]["lr"] = self.schedule.rate(number)
        self.torchs.step()
        self.torchs.zero_grad()

    def state_of(self, i: int) -> dict[str, Tensor]:
        """Return the state that belongs to model i, by names such as "exp_avg.scale"."""
        found = {}
        for kind in self.kept:
            state = {name: self.torchs.state[p][kind] for name, p in self.parameters.items()}
            found |= {f"{kind}.{name}": own for name, own in self.group.of_model(i, state).items()}
        return found


class NoCompiler(RuntimeError):
    """torch.compile does not work here; the message is what it said on its first call."""


def _compiled(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return the compiled function. Its first call raises `NoCompiler` where torch.compile does not work."""
    chosen, works = torch.compile(step, dynamic=False), False

    @torch.no_grad()
    def call(*arguments: Any) -> Any:
        nonlocal works
        if works:
            return chosen(*arguments)
        try:
            result = chosen(*arguments)
        except Exception:
            torch.compiler.reset()  # it keeps eight versions of a function; the ninth kind of training starts afresh
            try:
                result = chosen(*arguments)
            except Exception as error:
                raise NoCompiler(str(error).strip().splitlines()[0]) from error
        works = True
        return result

    return call


class Files:
    """The checkpoint files of models in training."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        """Keep the common state in `folder`, and each model's own files in the folder of its name below it."""
        self.state, self.folders = folder / STATE, [folder / name for name in names]

    def resume(self, models: Sequence[nn.Module], abouts: list[dict[str, Any]]) -> list[dict[str, Tensor]]:
        """Put the last checkpoint, if there is one, into models and abouts.

        Returns:
            For each model the tensors of its checkpoint, momenta among them.
        """
        found = self._read()
        if not found:
            return [{}] * len(models)
        check_same(self.state.parent, {"number of models": len(found)}, {"number of models": len(models)})
        for model, about, (tensors, was) in zip(models, abouts, found, strict=True):
            fingerprint.check_code(self.state.parent, was.get("code"), about["code"])
            asked = {name: value for name, value in about.items() if name not in (*STATE_OF, "code")}
            check_same(self.state.parent, was, asked)
            put_weights(model, tensors)
            about |= {name: was.get(name, about[name]) for name in STATE_OF}
        return [tensors for tensors, _ in found]

    def save(
        self,
        models: Sequence[nn.Module],
        kept: Sequence[Mapping[str, Tensor]],
        abouts: Sequence[Mapping[str, Any]],
        finished: bool,
    ) -> None:
        """Write a checkpoint of all models.

        `best` goes first: a crash before the rest leaves an older state, which makes the same `best` again.
        """
        for folder, model, about in zip(self.folders, models, abouts, strict=True):
            scores = [row.get("validation", 0) for row in about["history"]]
            if scores[-1] >= max(scores):
                write_tensors(folder / BEST, weights_of(model), about)
        states = [weights_of(model) | own for model, own in zip(models, kept, strict=True)]
        if not finished:
            every = {f"{i} {name}": tensor for i, state in enumerate(states) for name, tensor in state.items()}
            return write_tensors(self.state, every, {"models": abouts})
        for folder, state, about in zip(self.folders, states, abouts, strict=True):
            write_tensors(folder / LAST, state, about)
        return self.state.unlink(missing_ok=True)  # the last files say the same

    def _read(self) -> list[tuple[dict[str, Tensor], dict[str, Any]]]:
        """Return tensors and description of each model at the last checkpoint; nothing if there is none."""
        if self.state.exists():
            every, about = read_tensors(self.state)
            parts: list[dict[str, Tensor]] = [{} for _ in about["models"]]
            for name, tensor in every.items():
                i, own = name.split(" ")
                parts[int(i)][own] = tensor
            return list(zip(parts, about["models"], strict=True))
        lasts = [folder / LAST for folder in self.folders]
        return [read_tensors(path) for path in lasts] if all(path.exists() for path in lasts) else []


def seconds(history: History) -> float:
    """Return how many seconds a training took, without its validations."""
    starts = [0, *(row["step"] for row in history[:-1])]
    return sum((row["step"] - start) / row["steps_per_second"] for row, start in zip(history, starts, strict=True))


def load_sib(path: Path) -> tuple[SIB, dict[str, Any]]:
    """Return the SIB in a checkpoint file (`best` or `last`), and what the file says about its training."""
    tensors, about = read_tensors(path)
    try:
        model = SIB.from_setup(about["model"])
        put_weights(model, tensors)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path} holds no trained SIB ({error}): delete it and train it again") from error
    return model, about


def _check_samplers(grid: Sequence[Sequence[nn.Module]], bank: Tensor, samplers: Sequence[EpisodeSampler]) -> None:
    """Raise a ValueError if samplers, models and bank do not fit each other."""
    if len(samplers) != len(grid):
        raise ValueError(f"{len(grid)} streams of models need as many samplers, got {len(samplers)}")
    first = samplers[0].setup | {"seed": 0}
    for sampler in samplers:
        if sampler.setup | {"seed": 0} != first or sampler.rows != samplers[0].rows:
            raise ValueError(f"samplers may differ in seed only: {sampler.setup} is not like {samplers[0].setup}")
        if len(bank) != sampler.rows:
            raise ValueError(
                f"the sampler draws from {sampler.rows} rows ({sampler.views} views), the bank has {len(bank)}"
            )


def _line(rows: Sequence[Mapping[str, Any]], steps: int) -> str:
    """Return a line of progress from the newest rows of all models' histories."""
    sound = [row for row in rows if math.isfinite(row["loss"])]

    def span(name: str, factor: float, digits: int) -> str:
        texts = [f"{factor * row[name]:.{digits}f}" for row in sorted(sound, key=lambda row: row[name])]
        return " to ".join(dict.fromkeys([texts[0], texts[-1]]))

    checked = f"  validation {span('validation', 100, 2)} %" if "validation" in rows[0] else ""
    learned = f"loss {span('loss', 1, 4)}  accuracy {span('accuracy', 100, 2)} %{checked}"
    lost = len(rows) - len(sound)
    diverged = f"  {lost} of {len(rows)} models diverged" if lost else ""
    step, rate = rows[0]["step"], rows[0]["steps_per_second"]
    left = f"{(steps - step) / rate / 60:.0f} min left"
    return f"step {step}/{steps}  {learned}{diverged}  {rate:.0f} steps/s  {left}"


def _to_stderr(line: str) -> None:
    """Print a line to stderr at once."""
    print(line, file=sys.stderr, flush=True)
