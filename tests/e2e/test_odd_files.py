# SPDX-License-Identifier: Apache-2.0
"""Two thousand odd files through the client, each beside Pillow's pixels."""

import collections
import io

import numpy as np
import pytest
from odd_files import write
from PIL import Image, ImageOps

import loaderd
import loaderd.transforms as T

COUNT, EDGE = 2000, 200


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    return folder, write(folder / "files", COUNT)


def by_pillow(path, mode, upright):
    # From memory: of an uncompressed TIFF that lies on its side Pillow misreads a named file, which it maps.
    with Image.open(io.BytesIO(path.read_bytes())) as image:
        if upright:
            image = ImageOps.exif_transpose(image)
        pixels = np.asarray(image.convert(mode))
    height, width = pixels.shape[:2]
    padded = np.zeros((EDGE, EDGE, 1 if mode == "L" else 3), np.uint8)
    top, left = (EDGE - height) // 2, (EDGE - width) // 2
    padded[top : top + height, left : left + width] = pixels.reshape(height, width, -1)
    return padded


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("mode", "upright"), [("RGB", False), ("RGB", True), ("L", False)])
def test_odd_files_are_pillows_pixels(corpus, daemon, mode, upright):
    folder, written = corpus
    dataset = loaderd.ImageFolder(folder, mode, exif_transpose=upright, wide="clip")
    loader = loaderd.DataLoader(dataset, 32, transform=T.CenterCrop(EDGE), socket=daemon.socket)
    other = collections.Counter()
    seen = 0
    for batch in loader:
        for index, pixels in zip(batch.index, batch.images, strict=True):
            kind, name = written[int(index)]
            seen += 1
            if not np.array_equal(pixels, by_pillow(folder / "files" / name, mode, upright)):
                other[kind] += 1
    print(f"{mode}{' upright' if upright else ''}: {seen - other.total()} of {seen} equal; not: {dict(other)}")
    assert seen == COUNT
    assert not other
