# SPDX-License-Identifier: Apache-2.0
"""loaderd.random draws as torchvision does: for every random transform, parameters of both, by two-sample tests with fixed seeds.

A component of many values is compared by Kolmogorov and Smirnov's test, one of few by chi-square; each at about one in a thousand.
"""

import random as python_random

import numpy as np
import pytest

from loaderd import random

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import real_torchvision  # noqa: E402

try:
    real_torchvision.load()
except ImportError:
    pytest.skip("torchvision is not installed", allow_module_level=True)
from PIL import Image  # noqa: E402
from torchvision.transforms import autoaugment  # noqa: E402
from torchvision.transforms import transforms as V  # noqa: E402

DRAWS = 20000
FEW = 40
HEIGHT, WIDTH = 61, 83
IMAGE = Image.new("RGB", (WIDTH, HEIGHT))
TENSOR = torch.zeros(3, HEIGHT, WIDTH)
# Two pixels which every mirror, inversion and loss of colour changes.
TINY = Image.new("RGB", (2, 2))
TINY.putpixel((0, 0), (200, 30, 90))
KEY = (5, 1)  # seed and epoch
PLACE = 3


def happens(p):
    return lambda i: (random.happens(*KEY, i, PLACE, p),)


def changes(transform):
    """Whether `transform` does anything."""
    before = TINY.tobytes()
    return lambda: (transform(TINY).tobytes() != before,)


class Told:
    """A transform that tells that it was applied."""

    told: list = []

    def __init__(self, name):
        self.name = name

    def __call__(self, image):
        Told.told.append(self.name)
        return image


def applied(transform):
    def draw():
        Told.told.clear()
        transform(None)
        return tuple(Told.told) or ("none",)

    return draw


def in_words(ops, count):
    """What is done, and how strongly, of at most `count` operations."""
    ops = [(op[0], float(op[1])) for op in ops] + [("none", 0.0)] * (count - len(ops))
    return tuple(f"{name} {strength:.4f}" for name, strength in ops)


def operations(transform, count, monkeypatch):
    done = []
    monkeypatch.setattr(autoaugment, "_apply_op", lambda image, name, strength, **_: (done.append((name, strength)), image)[1])

    def draw():
        done.clear()
        transform(IMAGE)
        return in_words([op for op in done], count)

    return draw


def erased():
    top, left, height, width, _ = V.RandomErasing.get_params(TENSOR, (0.02, 0.33), (0.3, 3.3), [0])
    return (-1, -1, -1, -1) if (height, width) == (HEIGHT, WIDTH) else (top, left, height, width)


def jitter():
    order, *factors = V.ColorJitter.get_params((0.6, 1.4), (0.2, 1.8), (0.5, 1.5), (-0.1, 0.1))
    return (*order.tolist(), *factors)


def our_jitter(i):
    order, factors = random.color_jitter(*KEY, i, PLACE, (0.6, 1.4), (0.2, 1.8), (0.5, 1.5), (-0.1, 0.1))
    return (*order, *factors)


def affine():
    angle, moved, scale, shear = V.RandomAffine.get_params((-20, 50), (0.1, 0.3), (0.5, 1.75), (-10, 10, 3, 4), [WIDTH, HEIGHT])
    return (angle, *moved, scale, *shear)


def our_affine(i):
    affine = random.random_affine(*KEY, i, PLACE, HEIGHT, WIDTH, (-20, 50), (0.1, 0.3), (0.5, 1.75), (-10, 10, 3, 4))
    return (affine.angle, *affine.translate, affine.scale, *affine.shear)


def policy(name):
    return (
        lambda i: in_words(random.auto_augment_ops(*KEY, i, PLACE, HEIGHT, WIDTH, name), 2),
        lambda patch: operations(autoaugment.AutoAugment(autoaugment.AutoAugmentPolicy(name)), 2, patch),
    )


THREE = [Told(name) for name in "abc"]
CASES = {
    "RandomCrop": (
        lambda i: random.random_crop_box(*KEY, i, PLACE, HEIGHT, WIDTH, (11, 24))[:2],
        lambda _: lambda: V.RandomCrop.get_params(IMAGE, (11, 24))[:2],
    ),
    "RandomResizedCrop": (
        lambda i: random.random_resized_crop_box(*KEY, i, PLACE, HEIGHT, WIDTH),
        lambda _: lambda: V.RandomResizedCrop.get_params(IMAGE, [0.08, 1.0], [3 / 4, 4 / 3]),
    ),
    "RandomResizedCrop of a narrow image": (
        lambda i: random.random_resized_crop_box(*KEY, i, PLACE, 300, 40, (0.3, 0.5)),
        lambda _: lambda: V.RandomResizedCrop.get_params(Image.new("L", (40, 300)), [0.3, 0.5], [3 / 4, 4 / 3]),
    ),
    "RandomHorizontalFlip": (happens(0.5), lambda _: changes(V.RandomHorizontalFlip())),
    "RandomVerticalFlip": (happens(0.3), lambda _: changes(V.RandomVerticalFlip(0.3))),
    "RandomGrayscale": (happens(0.1), lambda _: changes(V.RandomGrayscale())),
    "RandomInvert": (happens(0.5), lambda _: changes(V.RandomInvert())),
    "RandomRotation": (
        lambda i: (random.random_rotation_angle(*KEY, i, PLACE, (-45, 30)),),
        lambda _: lambda: (V.RandomRotation.get_params((-45.0, 30.0)),),
    ),
    "RandomAffine": (our_affine, lambda _: affine),
    "RandomPerspective": (
        lambda i: sum(random.random_perspective_corners(*KEY, i, PLACE, HEIGHT, WIDTH, 0.6, 1.0), []),
        lambda _: lambda: sum(V.RandomPerspective.get_params(WIDTH, HEIGHT, 0.6)[1], []),
    ),
    "ColorJitter": (our_jitter, lambda _: jitter),
    "GaussianBlur": (
        lambda i: (random.gaussian_blur_sigma(*KEY, i, PLACE),),
        lambda _: lambda: (V.GaussianBlur.get_params(0.1, 2.0),),
    ),
    "RandomErasing": (
        lambda i: random.random_erasing_box(*KEY, i, PLACE, HEIGHT, WIDTH, 1.0) or (-1, -1, -1, -1),
        lambda _: erased,
    ),
    "RandomErasing's noise": (
        lambda i: tuple(random.random_erasing_noise(*KEY, i, PLACE, 4)),
        lambda _: lambda: tuple(V.RandomErasing.get_params(TENSOR[:1], (0.02, 0.3), (0.3, 3.3), None)[4].flatten()[:4].tolist()),
    ),
    "RandAugment": (
        lambda i: in_words(random.rand_augment_ops(*KEY, i, PLACE, HEIGHT, WIDTH), 2),
        lambda patch: operations(autoaugment.RandAugment(), 2, patch),
    ),
    "TrivialAugmentWide": (
        lambda i: in_words([random.trivial_augment_op(*KEY, i, PLACE)], 1),
        lambda patch: operations(autoaugment.TrivialAugmentWide(), 1, patch),
    ),
    "AutoAugment imagenet": policy("imagenet"),
    "AutoAugment cifar10": policy("cifar10"),
    "AutoAugment svhn": policy("svhn"),
    "RandomApply": (
        lambda i: ("a" if random.happens(*KEY, i, PLACE, 0.3) else "none",),
        lambda _: applied(V.RandomApply(THREE[:1], 0.3)),
    ),
    "RandomChoice": (
        lambda i: ("abc"[random.random_choice(*KEY, i, PLACE, 3)],),
        lambda _: applied(V.RandomChoice(THREE)),
    ),
    "RandomChoice by weights": (
        lambda i: ("abc"[random.random_choice(*KEY, i, PLACE, 3, (0.5, 0.3, 2.0))],),
        lambda _: applied(V.RandomChoice(THREE, [0.5, 0.3, 2.0])),
    ),
    "RandomOrder": (
        lambda i: ("".join("abc"[k] for k in random.random_order(*KEY, i, PLACE, 3)),),
        lambda _: lambda: ("".join(applied(V.RandomOrder(list(THREE)))()),),
    ),
}


def ks(ours, theirs):
    """The greatest distance of the two distributions, 1 where it is significant."""
    both = np.sort(np.concatenate([ours, theirs]))
    distance = np.abs(
        np.searchsorted(np.sort(ours), both, "right") / len(ours) - np.searchsorted(np.sort(theirs), both, "right") / len(theirs)
    ).max()
    return distance / (1.95 * np.sqrt(1 / len(ours) + 1 / len(theirs)))


def chi_square(ours, theirs):
    """Pearson's test that both are of one distribution, rare values as one; 1 where it is significant."""
    names, codes = np.unique(np.concatenate([ours, theirs]), return_inverse=True)
    a = np.bincount(codes[: len(ours)], minlength=len(names))
    b = np.bincount(codes[len(ours) :], minlength=len(names))
    rare = a + b < 20
    a = np.append(a[~rare], a[rare].sum())
    b = np.append(b[~rare], b[rare].sum())
    a, b = a[a + b > 0].astype(float), b[a + b > 0].astype(float)
    ratio = np.sqrt(b.sum() / a.sum())
    statistic = ((ratio * a - b / ratio) ** 2 / (a + b)).sum()
    freedom = max(len(a) - 1, 1)
    # Wilson and Hilferty: the cube root is nearly normal.
    score = (np.cbrt(statistic / freedom) - (1 - 2 / (9 * freedom))) / np.sqrt(2 / (9 * freedom))
    return score / 3.1


def significance(ours, theirs):
    few = ours.dtype.kind in "bU" or len(np.unique(theirs)) <= FEW
    return (chi_square if few else ks)(ours, theirs)


@pytest.mark.parametrize("name", CASES)
def test_parameters_are_distributed_as_torchvisions(name, monkeypatch):
    our_draw, their_maker = CASES[name]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        python_random.seed(1)
        their_draw = their_maker(monkeypatch)
        theirs = list(zip(*(their_draw() for _ in range(DRAWS)), strict=True))
    ours = list(zip(*(our_draw(i) for i in range(DRAWS)), strict=True))
    assert len(ours) == len(theirs)
    for part, (our_values, their_values) in enumerate(zip(ours, theirs, strict=True)):
        our_values, their_values = np.asarray(our_values), np.asarray(their_values)
        assert significance(our_values, their_values) < 1, f"{name}, parameter {part}"
        values, counts = np.unique(our_values, return_counts=True)
        if len(values) == 1:
            continue
        # A planted skew is seen: one in twenty draws gives the rarest value, which of many is the least.
        skewed = our_values.copy()
        skewed[::20] = values[counts.argmin()]
        assert significance(skewed, their_values) > 1, f"{name}, parameter {part}: the test sees no skew"


@pytest.mark.parametrize("alpha", [0.1, 0.4, 1.0, 2.5, 20.0])
def test_lam_is_distributed_as_torchs_beta(alpha):
    with torch.random.fork_rng():
        torch.manual_seed(2)
        theirs = torch.distributions.Beta(alpha, alpha).sample((DRAWS,)).double().numpy()
    ours = np.asarray([random.mix_up_lam(*KEY, step, alpha=alpha) for step in range(DRAWS)])
    assert ks(ours, theirs) < 1
    assert ks(ours * 0.97, theirs) > 1 or alpha < 1
    skewed = np.asarray([random.mix_up_lam(*KEY, step, alpha=alpha * 1.2) for step in range(DRAWS)])
    assert ks(skewed, theirs) > 1


def test_a_cut_is_distributed_as_torchvisions():
    from torchvision.transforms import v2

    transform = v2.CutMix(num_classes=2)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        params = [transform.make_params([TENSOR]) for _ in range(DRAWS // 4)]
    theirs = np.asarray([(*p["box"], p["lam_adjusted"]) for p in params])
    ours = np.asarray([random.cut_mix(*KEY, step, HEIGHT, WIDTH) for step in range(DRAWS)])
    for part in range(5):
        assert ks(ours[:, part], theirs[:, part]) < 1
        skewed = ours[:, part].copy()
        skewed[::10] = skewed.min()
        assert ks(skewed, theirs[:, part]) > 1
