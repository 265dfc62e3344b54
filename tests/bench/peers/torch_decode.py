# SPDX-License-Identifier: Apache-2.0
"""torch's DataLoader over torchvision's ImageFolder with torchvision.io.decode_image, libjpeg-turbo without PIL."""

import torch_common
import trainer
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_image


def load(path):
    return decode_image(path, ImageReadMode.RGB)


def make(options):
    dataset = ImageFolder(str(options.data), torch_common.of_tensors(options), loader=load)
    return torch_common.Torch(dataset, options)


if __name__ == "__main__":
    trainer.main(make, torch_common.PACKAGES)
