# SPDX-License-Identifier: Apache-2.0
"""torchvision beside a torch that it was not built for.

Its datasets and transforms on PIL images are plain Python, but its import looks for operators of its compiled part, which
such a pair cannot load. Declared without an implementation, they let the import pass; nothing here calls them.
"""

from __future__ import annotations

import importlib

import torch

_OPERATORS = ("nms", "qnms")  # whose absence its import does not forgive
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declared: list[torch.library.Library] = []  # a declaration lasts as long as its Library


def load():
    """The module torchvision. ImportError where it is not installed."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "does not exist" not in str(error):
            raise
    if not _declared:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in _OPERATORS:
            if not hasattr(torch.ops.torchvision, name):
                library.define(name + _SCHEMA)
        _declared.append(library)
    return importlib.import_module("torchvision")
