"""The settings of runs on few-shot episodes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from sibcore.xi import XIS
from sibrepro.facts import Spelling
from sibrepro.params import Count, NonNegative, Positive, parameters

FULL = 40_000  # Meta-training steps of the paper's protocol.
TEST_EPISODES = {"cifar-fs": 5000, "mini-imagenet": 2000}  # Test tasks in the paper.
Where = Literal["images", "shipped"]  # Compute features from images, or take those in the repository.
ALPHA = 2.0  # The parameter of the Dirichlet distribution that spreads unbalanced queries over the classes.


def known_xi(name: str) -> str:
    """Return the name of a ξ unchanged. Raise a ValueError if no ξ has this name."""
    if name not in XIS:
        raise ValueError(f"there is no ξ {name!r}: expected one of {', '.join(XIS)}")
    return name


XiName = Annotated[str, AfterValidator(known_xi)]  # a key of `sibcore.xi.XIS`


@parameters
class Tested:
    """The settings that all methods share: their features and their test tasks."""

    dataset: str = Field("cifar-fs", description="name of the image set")
    backbone: str = Field("conv4-64", description="feature network")
    features: Where = Field("images", description="computed from images, or the project's own")
    ways: Count = Field(5, description="classes of a task, k")
    shots: Count = Field(1, description="labelled images per class")
    queries: Count = Field(15, description="unlabelled images per class")
    val_episodes: Count = Field(1000, description="fixed tasks of validation classes")
    test_episodes: Count = Field(5000, description="tasks of test classes")


@parameters
class FewShot(Tested):
    """The settings of one meta-training of SIB, such as one seed of a number in the paper's Table 1."""

    epochs: NonNegative = Field(
        0, description="epochs of pretraining, if the network is trained here; 0: as in its recipe"
    )
    views: NonNegative = Field(0, description="augmented views per training image; 0: images as they are")
    alpha: Annotated[float, Field(ge=0)] = Field(0.0, description="Dirichlet spread of training queries; 0: balanced")
    K: NonNegative = Field(3, description="synthetic gradient steps")
    eta: Positive = Field(1e-3, description="step size of the inner update")
    fidelity: Literal["release", "paper"] = Field(
        "release", description="which to follow where text and release differ"
    )
    optimiser: Literal["", "release", "paper"] = Field("", description="of meta-training; empty: as fidelity says")
    normalise: Literal["", "task", "running", "none"] = Field("", description="norm inside xi; empty: as fidelity says")
    reduction: Literal["", "sum", "mean"] = Field("", description="sum or mean over queries; empty: as fidelity says")
    transductive: bool = Field(True, description="False: true gradient on the support set (eq. maml)")
    xi: XiName = Field("mlp", description="synthetic gradient network, a name in sibcore.xi.XIS")
    steps: Count = Field(FULL, description="meta-training steps")
    batch: Count = Field(8, description="tasks per step")
    lr: Positive = Field(1e-3, description="learning rate of meta-training; the release sets eta to it")
    seed: NonNegative = Field(0, description="of xi and of the training tasks")
    rotation: Annotated[float, Field(ge=0, description="weight of the rotation loss in pretraining f")] = 0.0
    averaged: bool = Field(False, description="average f over an image and its mirror image, and over 2 x 2 places")
    precision: Literal["float32", "bfloat16"] = Field("float32", description="of the features of images")
    start: str = Field("", description="id of the published pretraining from which the pretraining of f starts")


def first_spelling(values: dict[str, Any]) -> dict[str, Any]:
    """Return the settings in their first spelling, in which `equivariant` (yes or no) named ξ."""
    xi = values.pop("xi", "mlp")
    named = {} if xi in ("mlp", "equivariant") else {"xi": xi}
    return values | {"equivariant": xi == "equivariant"} | named


def spelling_of_today(values: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run in today's spelling, in which `xi` names ξ."""
    equivariant = values.pop("equivariant", False)
    return {"xi": "equivariant" if equivariant else "mlp"} | values


SPELLING = Spelling(first_spelling, spelling_of_today)

# The fields that `FewShot` had when the first runs were published. They are part of every id. A field that was added
# later is part of an id only where its value is not the default. So a new option renames no run.
OLDEST = (
    "dataset backbone features epochs views ways shots queries alpha K eta fidelity optimiser normalise reduction "
    "transductive equivariant steps batch lr val_episodes test_episodes seed"
).split()
