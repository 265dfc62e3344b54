# SPDX-License-Identifier: Apache-2.0
"""Grain with PIL in worker processes: a MapDataset that is shuffled anew each epoch, mapped, batched in the workers.

One iterator runs over all epochs (`repeat`), as Grain's documentation trains.
"""

import math

import grain
import numpy as np
import trainer
from absl import flags
from PIL import Image

SCALE = np.float32(1 / 255) / np.array(trainer.STD, np.float32)
SHIFT = -np.array(trainer.MEAN, np.float32) / np.array(trainer.STD, np.float32)


def random_crop(image, rng):
    """RandomResizedCrop(224) and flip, by torchvision's rule."""
    width, height = image.size
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1)
        aspect = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            break
    else:
        w = h = min(width, height)
    x, y = int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1))
    image = image.resize((224, 224), Image.Resampling.BILINEAR, box=(x, y, x + w, y + h))
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else image


def center_crop(image):
    width, height = image.size
    w, h = (256, int(256 * height / width)) if width < height else (int(256 * width / height), 256)
    left, top = (w - 224) // 2, (h - 224) // 2
    return image.resize((w, h), Image.Resampling.BILINEAR).crop((left, top, left + 224, top + 224))


class Sample(grain.transforms.RandomMap):
    def __init__(self, options):
        self._options = options

    def random_map(self, element, rng):
        path, label = element
        with Image.open(path) as file:
            image = file.convert("RGB")
        image = random_crop(image, rng) if self._options.random_crop else center_crop(image)
        pixels = np.asarray(image)
        if self._options.floats:
            pixels = np.multiply(pixels, SCALE, dtype=np.float32) + SHIFT
        return pixels, label


class Grain(trainer.Loader):
    def __init__(self, options):
        samples = list(zip(*trainer.samples(options.data), strict=True))
        self._batches = len(samples) // options.batch
        dataset = grain.MapDataset.source(samples[: self._batches * options.batch]).seed(1)
        if options.random_crop:
            dataset = dataset.shuffle()
        dataset = dataset.repeat().random_map(Sample(options)).batch(options.batch, drop_remainder=True)
        workers = grain.MultiprocessingOptions(num_workers=options.threads)
        read = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)  # of whole batches, in each worker
        self._stream = iter(dataset.to_iter_dataset(read).mp_prefetch(workers))

    def epoch(self, number):
        for _ in range(self._batches):
            yield next(self._stream)

    def stream(self):
        return self._stream


if __name__ == "__main__":
    flags.FLAGS(["grain_pil"])  # Grain's workers ask for them
    trainer.main(Grain, ["grain", "pillow", "numpy"])
