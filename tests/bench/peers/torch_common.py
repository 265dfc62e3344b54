# SPDX-License-Identifier: Apache-2.0
"""What the peers on torch share: torchvision's transforms, v2, as its documentation recommends them."""

import torch
import trainer
from torchvision.transforms import v2


def of_tensors(options):
    """On uint8 tensors of decode_image; antialias as on PIL images."""
    if options.random_crop:
        steps = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    else:
        steps = [v2.Resize(256, antialias=True), v2.CenterCrop(224)]
    if options.floats:
        steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(trainer.MEAN, trainer.STD)]
    return v2.Compose(steps)


def of_images(options):
    """On PIL images; they become tensors last."""
    if options.random_crop:
        steps = [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.PILToTensor()]
    else:
        steps = [v2.Resize(256), v2.CenterCrop(224), v2.PILToTensor()]
    if options.floats:
        steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(trainer.MEAN, trainer.STD)]
    return v2.Compose(steps)


class Torch(trainer.Loader):
    """A torch DataLoader with as many workers as threads, which live on from epoch to epoch."""

    def __init__(self, dataset, options):
        if options.long:
            dataset = torch.utils.data.ConcatDataset([dataset] * trainer.LONG)
        self._loader = torch.utils.data.DataLoader(
            dataset,
            batch_size=options.batch,
            shuffle=options.random_crop,
            num_workers=options.threads,
            persistent_workers=True,
            drop_last=True,
        )

    def epoch(self, number):
        return iter(self._loader)

    def stream(self):
        return iter(self._loader)

    def images(self, batch):
        return batch[0].numpy()


PACKAGES = ["torch", "torchvision", "pillow", "numpy"]
