# SPDX-License-Identifier: Apache-2.0
"""NVIDIA DALI, all operators on the CPU, as in its ResNet-50 example with --dali_cpu."""

import numpy as np
import trainer
from nvidia.dali import fn, pipeline_def, types


@pipeline_def
def pipeline(options):
    encoded, labels = fn.readers.file(file_root=str(options.data), random_shuffle=options.random_crop, name="Reader")
    mirror = False
    if options.random_crop:
        images = fn.decoders.image_random_crop(
            encoded, device="cpu", output_type=types.RGB, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3]
        )
        images = fn.resize(images, resize_x=224, resize_y=224)
        mirror = fn.random.coin_flip(probability=0.5)
    else:
        images = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
        images = fn.resize(images, resize_shorter=256)
    if not options.floats:
        return fn.flip(images, horizontal=mirror), labels
    images = fn.crop_mirror_normalize(
        images,
        dtype=types.FLOAT,
        output_layout="CHW",
        crop=(224, 224),
        mean=[value * 255 for value in trainer.MEAN],
        std=[value * 255 for value in trainer.STD],
        mirror=mirror,
    )
    return images, labels


class Dali(trainer.Loader):
    def __init__(self, options):
        self._pipeline = pipeline(
            options, batch_size=options.batch, num_threads=options.threads, device_id=None, prefetch_queue_depth=2, seed=1
        )
        self._pipeline.build()
        self._batches = self._pipeline.epoch_size("Reader") // options.batch

    def epoch(self, number):
        for _ in range(self._batches):  # the reader goes on from epoch to epoch
            yield self._pipeline.run()

    def stream(self):
        while True:
            yield self._pipeline.run()

    def images(self, batch):
        return np.asarray(batch[0].as_tensor())


if __name__ == "__main__":
    trainer.main(Dali, ["nvidia-dali-cuda120", "nvidia-dali-cuda130", "numpy"])
