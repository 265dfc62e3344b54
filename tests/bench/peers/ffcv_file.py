# SPDX-License-Identifier: Apache-2.0
"""FFCV over a file of its own. Variant "jpg": re-encoded at quality 90, at most 400 pixels; "raw": uncompressed, at most 256.

Both files hold other images than the folder does, smaller ones: FFCV has no loader for a folder.
"""

import os

import numpy as np
import trainer
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import CenterCropRGBImageDecoder, IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
from ffcv.writer import DatasetWriter
from PIL import Image

MAX_EDGE = {"jpg": 400, "raw": 256}


class Folder:
    def __init__(self, data):
        self._samples = list(zip(*trainer.samples(data), strict=True))

    def __len__(self):
        return len(self._samples)

    def __getitem__(self, index):
        path, label = self._samples[index]
        with Image.open(path) as file:
            return np.asarray(file.convert("RGB")), label


def path_of(options):
    return str(options.work / f"ffcv-{options.variant}.beton")


def prepare(options):
    path = path_of(options)
    if os.path.exists(path):
        return
    fields = {
        "image": RGBImageField(write_mode=options.variant, max_resolution=MAX_EDGE[options.variant], jpeg_quality=90),
        "label": IntField(),
    }
    DatasetWriter(path + ".part", fields, num_workers=options.threads).from_indexed_dataset(Folder(options.data))
    os.rename(path + ".part", path)


class Ffcv(trainer.Loader):
    def __init__(self, options):
        if options.random_crop:
            images = [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip()]
        else:
            images = [CenterCropRGBImageDecoder((224, 224), ratio=224 / 256)]
        if options.floats:
            mean, std = (np.array(values, np.float32) * 255 for values in (trainer.MEAN, trainer.STD))
            images.append(NormalizeImage(mean, std, np.float32))
        count = len(trainer.samples(options.data)[0])
        self._loader = Loader(
            path_of(options),
            indices=np.tile(np.arange(count), trainer.LONG if options.long else 1),
            batch_size=options.batch,
            num_workers=options.threads,
            order=OrderOption.RANDOM if options.random_crop else OrderOption.SEQUENTIAL,
            os_cache=True,
            drop_last=True,
            pipelines={"image": [*images, ToTensor(), ToTorchImage()], "label": [IntDecoder(), ToTensor(), Squeeze()]},
        )

    def epoch(self, number):
        return iter(self._loader)

    def stream(self):
        return iter(self._loader)

    def images(self, batch):
        return batch[0].permute(0, 2, 3, 1).numpy()  # as it lies in memory


if __name__ == "__main__":
    trainer.main(Ffcv, ["ffcv", "torch", "numba", "opencv-python", "numpy"], prepare)
