from __future__ import annotations

import torch
from torch import Tensor

from sibcore.datasets._torchvision import torchvision  # noqa: F401, has to come before the next line
from sibcore.seeds import combine
from sibcore.vision.augment import Draw, augment, crop_and_flip, draw, resize

import torchvision.transforms.functional as reference  # isort: skip

PADDING = 3


def batch(images: int = 40, size: int = 16) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (images, size, size, 3), dtype=torch.uint8, generator=generator)


def drawn(images: int = 40, seed: int = 0) -> Draw:
    return draw(images, PADDING, 0.4, torch.Generator().manual_seed(seed))


def test_crop_and_flip_equal_torchvisions_image_by_image():
    images, numbers = batch(), drawn()
    ours = crop_and_flip(images, numbers, PADDING).permute(0, 3, 1, 2)
    for i, image in enumerate(images.permute(0, 3, 1, 2)):
        theirs = reference.crop(reference.pad(image, PADDING), *numbers.shift[i].tolist(), 16, 16)
        theirs = reference.hflip(theirs) if numbers.flip[i] else theirs
        assert torch.equal(ours[i], theirs)


def test_jitter_equals_torchvisions_image_by_image():
    images, numbers = batch(), drawn()
    ours = augment(images, numbers, PADDING)
    adjust = (reference.adjust_brightness, reference.adjust_contrast, reference.adjust_saturation)
    for i, image in enumerate(crop_and_flip(images, numbers, PADDING).permute(0, 3, 1, 2) / 255):
        for kind in numbers.order[i].tolist():
            image = adjust[kind](image, float(numbers.factor[i, kind]))
        assert torch.allclose(ours[i], image, atol=2e-4)  # torchvision rounds one weight of the grey to .2989


def test_the_numbers_cover_their_range_and_images_differ():
    numbers = drawn(images=20_000)
    assert numbers.shift.unique().tolist() == list(range(2 * PADDING + 1))
    assert 0.49 < numbers.flip.float().mean() < 0.51
    assert 0.6 <= numbers.factor.min() < 0.601
    assert 1.399 < numbers.factor.max() <= 1.4
    orders, counts = numbers.order.unique(dim=0, return_counts=True)
    assert len(orders) == 6
    assert counts.min() > 3000


def test_without_padding_and_jitter_only_the_flip_is_left():
    images = batch()
    numbers = draw(40, 0, 0.0, torch.Generator().manual_seed(0))
    ours = augment(images, numbers, 0)
    plain = images.permute(0, 3, 1, 2) / 255
    expected = torch.where(numbers.flip[:, None, None, None], plain.flip(3), plain)
    assert torch.allclose(ours, expected, atol=1e-6)


def test_a_part_of_a_batch_is_augmented_as_in_the_whole():
    images, numbers = batch(), drawn()
    part = slice(10, 30)
    assert torch.equal(augment(images[part], numbers[part], PADDING), augment(images, numbers, PADDING)[part])


def test_the_result_is_in_channels_last_memory():
    assert augment(batch(), drawn(), PADDING).is_contiguous(memory_format=torch.channels_last)


def test_the_same_seed_draws_the_same_numbers_and_streams_differ():
    assert torch.equal(drawn(seed=5).factor, drawn(seed=5).factor)
    assert len({combine(seed, number) for seed in range(20) for number in range(20)}) == 400


def test_a_small_image_is_torchvisions_to_half_a_level():
    images = batch(5, 24)
    small = resize(images, 16, batch=2)
    expected = reference.resize(images.permute(0, 3, 1, 2).float(), [16, 16], antialias=True).permute(0, 2, 3, 1)
    assert small.dtype == torch.uint8
    assert (small - expected).abs().max() <= 0.5 + 1e-4
    assert resize(images, 24) is images
