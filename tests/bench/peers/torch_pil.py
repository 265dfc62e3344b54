# SPDX-License-Identifier: Apache-2.0
"""torch's DataLoader over torchvision's ImageFolder, whose default loader is PIL."""

import torch_common
import trainer
from torchvision.datasets import ImageFolder


def make(options):
    return torch_common.Torch(ImageFolder(str(options.data), torch_common.of_images(options)), options)


if __name__ == "__main__":
    trainer.main(make, torch_common.PACKAGES)
