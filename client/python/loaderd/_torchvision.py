# SPDX-License-Identifier: Apache-2.0
"""Recognises torchvision's ImageFolder by its class's name and its attributes; torchvision is never imported."""

from __future__ import annotations

import sys
from typing import Any

from . import errors
from .datasets import ImageFolder

_MODULE = "torchvision.datasets.folder"


def is_image_folder(dataset: Any) -> bool:
    return type(dataset).__module__ == _MODULE and type(dataset).__name__ == "ImageFolder"


def image_folder(dataset: Any) -> ImageFolder:
    """The same dataset for the daemon. TypeError names what of it the daemon cannot do."""
    loader = getattr(dataset, "loader", None)
    if (getattr(loader, "__module__", ""), getattr(loader, "__name__", "")) != (_MODULE, "default_loader"):
        raise TypeError(
            f"ImageFolder(loader={loader!r}) cannot run in the daemon: only torchvision's default_loader is supported"
        )
    if getattr(dataset, "target_transform", None) is not None:
        raise TypeError("ImageFolder(target_transform=…) cannot run in the daemon: map the labels in the training loop")
    if getattr(dataset, "extensions", True) is None:
        raise TypeError("ImageFolder(is_valid_file=…) cannot run in the daemon: only torchvision's own extensions are")
    return _Checked(dataset)


class _Checked(ImageFolder):
    """An ImageFolder that must hold what torchvision's found."""

    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset.root)
        self._classes = tuple(dataset.classes)
        self._count = len(dataset.samples)

    def check(self, socket: Any) -> None:
        """ValueError where the daemon sees other classes or another number of samples."""
        found = self.describe(socket)
        if found.class_names != self._classes or found.num_samples != self._count:
            raise ValueError(
                f"{self.path}: torchvision's ImageFolder has {self._count} samples in {len(self._classes)} classes, the "
                f"daemon finds {found.num_samples} in {len(found.class_names)}: the folder or the dataset's lists were changed"
            )

    def must_have(self, samples: int) -> None:
        """StateError where a state is of another number of samples."""
        if samples != self._count:
            raise errors.StateError(f"the dataset is another one: it had {samples} samples, and now it has {self._count}")


def reference() -> str:
    """The reference that equals this process's Pillow."""
    version = getattr(sys.modules.get("PIL"), "__version__", "13")
    return "pillow13" if int(version.split(".")[0]) >= 13 else "pillow12"
