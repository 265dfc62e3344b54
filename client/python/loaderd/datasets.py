# SPDX-License-Identifier: Apache-2.0
"""Datasets that the daemon reads. They name data and hold none."""

from __future__ import annotations

import base64
import operator
import os
from collections.abc import Mapping
from typing import Any

from . import _session

_HIDDEN = {"torchvision": "HIDDEN_RULE_TORCHVISION", "skip": "HIDDEN_RULE_SKIP"}
_MODES = {"RGB": "IMAGE_MODE_RGB", "L": "IMAGE_MODE_L"}
_WIDE = {"scale": "WIDE_MODE_SCALE", "clip": "WIDE_MODE_CLIP"}


class Dataset:
    """Base: what the daemon tells about a dataset, asked for once and kept."""

    def __init__(self) -> None:
        self._description: _session.Description | None = None
        self._socket: Any = None

    def use_socket(self, socket: Any) -> None:
        """The daemon to ask from now on, where none was named before; a DataLoader with socket= calls this."""
        if self._socket is None:
            self._socket = socket

    def to_json(self) -> dict[str, Any]:
        """This dataset as a loaderd.v1.DatasetSpec in JSON form."""
        raise NotImplementedError

    def describe(self, socket: str | None = None) -> _session.Description:
        """What the daemon found, kept after the first call. socket: as in DataLoader; None: the one that a loader used."""
        if self._description is None:
            self._description = _session.describe(self.to_json(), self._socket if socket is None else socket)
        return self._description

    @property
    def classes(self) -> list[str]:
        """Names of the classes, in the order of their numbers."""
        return list(self.describe().class_names)

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Number of each class, as in `labels`."""
        return {name: number for number, name in enumerate(self.describe().class_names)}

    def __len__(self) -> int:
        """Number of samples."""
        return self.describe().num_samples

    def __bool__(self) -> bool:  # len() would ask the daemon
        return True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_description": None}


class ImageFolder(Dataset):
    """A folder with one folder of images for each class, as torchvision's ImageFolder: the same classes, class numbers and
    sample order (byte-wise), links followed.

    path: str, bytes or PathLike; made absolute. Names need not be UTF-8.
    mode: "RGB" or "L", what every image is converted to.
    exif_transpose: turn every image upright by its EXIF orientation first, as PIL.ImageOps.exif_transpose; one that is
        broken or out of range counts as upright.
    wide: of 16-bit grey images: "scale" keeps the high byte, "clip" makes what is over 255 white, as Pillow's convert.

    hidden: "torchvision" takes entries whose names begin with a dot, and __MACOSX, as classes and samples like all others;
        "skip" leaves them out. `describe().notes` counts what was left out and what looks odd, with the first few names.
    class_to_idx: a number for each class, by name, so that a validation set has the training set's labels; it may name
        classes that the folder lacks. None: classes are numbered in byte order of their names.

    Making one touches nothing: the daemon indexes the folder when `len`, `classes`, `class_to_idx` or a loader first
    ask, once for all processes. Errors then: NotFoundError, PermissionDeniedError, InvalidArgumentError (no images,
    empty class). `index` i of a batch is the i-th sample in that order. Thread-safe.
    """

    def __init__(
        self,
        path: str | bytes | os.PathLike,
        mode: str = "RGB",
        exif_transpose: bool = False,
        wide: str = "scale",
        *,
        hidden: str = "torchvision",
        class_to_idx: Mapping[str, int] | None = None,
    ) -> None:
        raw = os.fsencode(path)
        if not raw:
            raise ValueError("path is empty: name the folder that holds a folder for each class")
        if b"\0" in raw:
            raise ValueError("path has a NUL byte")
        if mode not in _MODES:
            raise ValueError(f"mode should be one of {', '.join(_MODES)}, not {mode!r}")
        if hidden not in _HIDDEN:
            raise ValueError(f"hidden should be one of {', '.join(_HIDDEN)}, not {hidden!r}")
        if class_to_idx is not None and not class_to_idx:
            raise ValueError("class_to_idx is empty: leave it out to number the classes by their names")
        if wide not in _WIDE:
            raise ValueError(f"wide should be one of {', '.join(_WIDE)}, not {wide!r}")
        super().__init__()
        self.hidden = hidden
        self._class_to_idx = None
        if class_to_idx is not None:
            self._class_to_idx = {name: operator.index(number) for name, number in class_to_idx.items()}
        self._path = os.path.abspath(raw)
        self.mode = mode
        self.exif_transpose = bool(exif_transpose)
        self.wide = wide

    @property
    def path(self) -> str:
        """The absolute path; bytes that are not UTF-8 as surrogates (os.fsdecode)."""
        return os.fsdecode(self._path)

    root = path

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Number of each class, as in `labels`."""
        return super().class_to_idx if self._class_to_idx is None else dict(self._class_to_idx)

    def to_json(self) -> dict[str, Any]:
        folder: dict[str, Any] = {"mode": _MODES[self.mode]}
        if self.exif_transpose:
            folder["exif_transpose"] = True
        if self.wide != "scale":
            folder["wide"] = _WIDE[self.wide]
        try:
            folder["path"] = self._path.decode("utf-8")
        except UnicodeDecodeError:
            folder["path_bytes"] = base64.b64encode(self._path).decode("ascii")
        if self.hidden != "torchvision":
            folder["hidden"] = _HIDDEN[self.hidden]
        if self._class_to_idx is not None:
            folder["class_to_idx"] = [
                {**_name(os.fsencode(name)), "number": str(number)} for name, number in self._class_to_idx.items()
            ]
        return {"image_folder": folder}

    def __repr__(self) -> str:
        return f"ImageFolder({self.path!r}, mode={self.mode!r})"


def _name(raw: bytes) -> dict[str, str]:
    try:
        return {"name": raw.decode("utf-8")}
    except UnicodeDecodeError:
        return {"name_bytes": base64.b64encode(raw).decode("ascii")}


class NamedDataset(Dataset):
    """A dataset that the daemon's configuration defines; a DataLoader makes one of a str."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name}

    def __repr__(self) -> str:
        return f"NamedDataset({self.name!r})"
