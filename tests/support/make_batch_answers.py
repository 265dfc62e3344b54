# SPDX-License-Identifier: Apache-2.0
"""Makes tests/support/fixtures/batch_answers.json: what torchvision.transforms.v2 makes of small batches with loaderd.random's lam and
box, and those parameters themselves, which the daemon's must equal.

    PYTHONPATH=client/python python tests/support/make_batch_answers.py    # with torchvision
"""
import itertools
import json
import pathlib

from loaderd import random as R

FILE = pathlib.Path(__file__).parent / "fixtures" / "batch_answers.json"
ALPHAS = (0.0001, 0.01, 0.2, 0.5, 0.999, 1.0, 1.5, 8.0, 10000.0)
SHAPE = (3, 5, 7)
CLASSES = 6
WEIGHTS = (0.5, 0.0, 2.0)


def parameters(seed, epoch, step, rank):
    key = (seed, epoch, step)
    return {
        "key": [str(part) for part in (*key, rank)],
        "lam": [R.mix_up_lam(*key, number=2, alpha=alpha, rank=rank) for alpha in ALPHAS],
        "cut": [list(R.cut_mix(*key, 33, 50, 1, alpha, rank)) for alpha in (0.2, 1.0, 3.0)],
        "choice": [R.batch_choice(*key, 3, rank=rank), R.batch_choice(*key, 3, WEIGHTS, rank)],
    }


def all_parameters():
    keys = [(2**63 + 5, 3, 2**33 + 1, 65535), *((7, e, s, r) for e in range(2) for s in range(30) for r in range(2))]
    return [parameters(*key) for key in keys]


def _hex(tensor):
    import torch

    return tensor.contiguous().view(torch.uint8).numpy().tobytes().hex() if tensor.numel() else ""


def mixed(kind, dtype, step, count, alpha):
    """One batch before and after torchvision's own transform."""
    import real_torchvision
    import torch

    real_torchvision.load()
    from torchvision.transforms import v2

    generator = torch.Generator().manual_seed(step)
    images = torch.randint(256, (count, *SHAPE), generator=generator, dtype=torch.uint8)
    if dtype != torch.uint8:  # with values below 2^-14 as well
        images = ((images.float() / 255 - 0.45) / 0.22 * torch.tensor([1.0, 1e-6, 3.0])[:, None, None]).to(dtype)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    transform = getattr(v2, kind)(alpha=alpha, num_classes=CLASSES)
    if kind == "MixUp":
        params = {"lam": R.mix_up_lam(1, 2, step, alpha=alpha)}
    else:
        *box, lam = R.cut_mix(1, 2, step, *SHAPE[1:], alpha=alpha)
        params = {"box": box, "lam_adjusted": lam}
    transform.make_params = lambda _: params
    out, soft = transform(images, labels)
    return {
        "kind": kind,
        "dtype": str(dtype).removeprefix("torch."),
        "step": step,
        "alpha": alpha,
        "count": count,
        "images": _hex(images),
        "labels": labels.tolist(),
        "mixed": _hex(out),
        "mixed_labels": _hex(soft),
    }


def all_mixed():
    import torch

    floats = (torch.float32, torch.float16, torch.bfloat16)
    cases = [("MixUp", dtype) for dtype in floats] + [("CutMix", dtype) for dtype in (torch.uint8, *floats)]
    steps = itertools.count()
    return [
        mixed(kind, dtype, next(steps), count, alpha)
        for kind, dtype in cases
        for count, alpha in ((1, 1.0), (2, 0.2), (4, 1.0), (3, 8.0))
    ]


if __name__ == "__main__":
    sets = {"parameters": all_parameters(), "batches": all_mixed()}
    text = ",\n".join(f'"{name}": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]" for name, rows in sets.items())
    FILE.write_text(f"{{{text}}}\n")
