# SPDX-License-Identifier: Apache-2.0
"""SPDL: images are decoded, cropped, scaled and flipped by FFmpeg's filters in a pool of threads, then made a batch, as its
guide of best practices says."""

import math
import random

import numpy as np
import spdl.io
import trainer
from spdl.pipeline import PipelineBuilder

SCALE = np.float32(1 / 255) / np.array(trainer.STD, np.float32)
SHIFT = -np.array(trainer.MEAN, np.float32) / np.array(trainer.STD, np.float32)


def random_filters(width, height):
    """RandomResizedCrop(224) and flip, by torchvision's rule."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            break
    else:
        w = h = min(width, height)
    x, y = random.randint(0, width - w), random.randint(0, height - h)
    flip = "hflip," if random.random() < 0.5 else ""
    return f"crop=w={w}:h={h}:x={x}:y={y},scale=w=224:h=224:flags=bilinear,{flip}format=pix_fmts=rgb24"


def eval_filters(width, height):
    w, h = (256, round(256 * height / width)) if width < height else (round(256 * width / height), 256)
    return f"scale=w={w}:h={h}:flags=bilinear,crop=w=224:h=224,format=pix_fmts=rgb24"


class Spdl(trainer.Loader):
    def __init__(self, options):
        self._options = options
        self._samples = list(zip(*trainer.samples(options.data), strict=True)) * (trainer.LONG if options.long else 1)

    def _decode(self, sample):
        path, label = sample
        packets = spdl.io.demux_image(path)
        filters = random_filters if self._options.random_crop else eval_filters
        frames = spdl.io.decode_packets(packets, filter_desc=filters(packets.width, packets.height))
        return frames, label

    def _batch(self, items):
        frames, labels = zip(*items, strict=True)
        images = spdl.io.to_numpy(spdl.io.convert_frames(list(frames)))
        if self._options.floats:
            images = np.multiply(images, SCALE, dtype=np.float32)
            images += SHIFT
        return images, np.array(labels)

    def epoch(self, number):
        order = list(self._samples)
        if self._options.random_crop:
            random.Random(number).shuffle(order)
        threads = self._options.threads
        pipeline = (
            PipelineBuilder()
            .add_source(order)
            .pipe(self._decode, concurrency=threads)
            .aggregate(self._options.batch, drop_last=True)
            .pipe(self._batch)
            .add_sink(3)
            .build(num_threads=threads)
        )
        with pipeline.auto_stop():
            yield from pipeline

    def stream(self):
        return self.epoch(0)


if __name__ == "__main__":
    trainer.main(Spdl, ["spdl", "spdl_io", "numpy"])
