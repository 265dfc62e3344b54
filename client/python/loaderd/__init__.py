# SPDX-License-Identifier: Apache-2.0
"""loaderd: decoded image batches from a daemon, without worker processes and without copies.

    import loaderd
    import loaderd.transforms as T

    loader = loaderd.DataLoader(loaderd.ImageFolder("photos"), batch_size=32, shuffle=True,
                                transform=T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()]))
    for images, labels in loader:
        ...

`loaderd.torch.DataLoader` yields torch tensors. Importing this package starts no thread and opens nothing.
"""

from .batch import BadSample, Batch
from .datasets import ImageFolder
from .errors import (
    BadSampleError,
    Error,
    ForkedError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    StateError,
    StorageError,
    TimeoutError,
    UnavailableError,
    UnsupportedError,
)
from .loader import DataLoader

__version__ = "0.1.0"
__all__ = [
    "BadSample",
    "BadSampleError",
    "Batch",
    "DataLoader",
    "Error",
    "ForkedError",
    "ImageFolder",
    "InvalidArgumentError",
    "NotFoundError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "StateError",
    "StorageError",
    "TimeoutError",
    "UnavailableError",
    "UnsupportedError",
]
