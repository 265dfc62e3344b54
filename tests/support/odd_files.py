# SPDX-License-Identifier: Apache-2.0
"""A seeded corpus of odd images: sizes from 1 to 200, every mode, coding and option that Pillow and the JPEG tools write.

    python tests/support/odd_files.py FOLDER [COUNT [SEED]]

Nobody tunes for single files of it; what is compared with Pillow's pixels is in tests/e2e/test_odd_files.py.
"""

from __future__ import annotations

import io
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from PIL import Image, ImageFilter

SEED = 20261
MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16")
FILTERS = (None, ImageFilter.SMOOTH, ImageFilter.GaussianBlur(3))


def picture(rng: random.Random, mode: str) -> Image.Image:
    """Noise, smoothed or not, or a gradient, in a mode."""
    width, height = rng.randint(1, 200), rng.randint(1, 200)
    if mode == "I;16":
        return Image.frombytes("I;16", (width, height), rng.randbytes(width * height * 2))
    image = Image.frombytes("RGBA", (width, height), rng.randbytes(width * height * 4))
    blur = rng.choice(FILTERS)
    if blur is not None:
        image = image.filter(blur)
    if rng.random() < 0.3:
        ramp = Image.linear_gradient("L").resize((width, height))
        image = Image.merge("RGBA", (ramp, *image.split()[1:]))
    if mode == "P":
        return image.convert("RGB").quantize(rng.choice((2, 3, 4, 5, 16, 17, 100, 255, 256)))
    if mode == "1":
        return image.convert("RGB").convert("1")
    return image.convert("RGB").convert(mode) if mode == "CMYK" else image.convert(mode)


def exif(rng: random.Random, most: int = 9) -> dict:
    if rng.random() < 0.7:
        return {}
    data = Image.Exif()
    if rng.random() < 0.5:
        data[0x010F] = "a maker of cameras"
    data[0x0112] = rng.randint(9 - most, most)
    return {"exif": data}


def save(image: Image.Image, form: str, **options) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def tool(name: str, *arguments: str, data: bytes) -> bytes | None:
    """What a JPEG tool makes of `data`; None where it is not installed or refuses (grey to grey)."""
    if shutil.which(name) is None:
        return None
    done = subprocess.run([name, *arguments], input=data, capture_output=True)
    return done.stdout if done.returncode == 0 else None


def jpeg(rng: random.Random) -> tuple[str, bytes]:
    mode = rng.choice(("L", "RGB", "RGB", "RGB", "CMYK"))
    image = picture(rng, mode)
    options = {"quality": rng.choice((1, 10, 30, 50, 75, 90, 95, 100)), "progressive": rng.random() < 0.3, **exif(rng)}
    if mode != "L":
        options["subsampling"] = rng.choice(("4:4:4", "4:2:2", "4:2:0", "4:1:1"))
    if rng.random() < 0.2:
        options["restart_marker_blocks"] = rng.randint(1, 5)
    if mode == "RGB" and rng.random() < 0.1:
        options["keep_rgb"] = True
        options.pop("subsampling")
    data = save(image, "JPEG", **options)
    kind = f"jpeg {mode}"
    if mode == "CMYK" and rng.random() < 0.5:  # Adobe's marker: YCCK, or none
        place = data.index(b"\xff\xee")
        if rng.random() < 0.5:
            return "jpeg YCCK", data[: place + 15] + b"\2" + data[place + 16 :]
        return "jpeg unmarked CMYK", data[:place] + data[place + 16 :]
    if mode == "CMYK":
        return kind, data
    choice = rng.random()
    made = None
    if choice < 0.3:
        rate = f"{rng.randint(1, 4)}x{rng.randint(1, 2)}"
        coding = rng.choice(((), ("-progressive",), ("-arithmetic",), ("-optimize",), ("-restart", "1")))
        source = save(image, "PPM")
        made = tool("cjpeg", "-quality", str(rng.randint(5, 100)), "-sample", rate, *coding, data=source)
        kind = f"cjpeg {mode} {' '.join(coding)}"
    elif choice < 0.4:
        change = rng.choice((("-arithmetic",), ("-progressive",), ("-grayscale",), ("-rotate", "90"), ("-flip", "vertical")))
        made = tool("jpegtran", *change, data=data)
        kind = f"jpegtran {mode} {' '.join(change)}"
    elif choice < 0.45:
        data += rng.randbytes(20)
        kind += " trailing"
    return (kind, made) if made is not None else (kind, data)


def interlaced(data: bytes, rng: random.Random) -> bytes | None:
    """A PNG's pixels in Adam7's seven passes; Pillow itself does not write them."""
    import struct
    import zlib

    with Image.open(io.BytesIO(data)) as image:
        if image.mode not in ("L", "LA", "RGB", "RGBA") and not (image.mode == "P" and len(image.getpalette()) > 48):
            return None
        raw, (width, height), step = image.tobytes(), image.size, len(image.getbands())
    head = struct.unpack(">IIBBBBB", data[16:29])
    if head[2] != 8:
        return None
    rows = b""
    for left, top, across, down in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        if left >= width:
            continue
        for y in range(top, height, down):
            row = b"".join(raw[(y * width + x) * step : (y * width + x + 1) * step] for x in range(left, width, across))
            rows += b"\0" + row

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    begin, end = data.index(b"IDAT") - 4, data.index(b"IEND") - 4
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", *head[:6], 1))
    return data[:8] + header + data[33:begin] + chunk(b"IDAT", zlib.compress(rows, rng.randint(0, 9))) + data[end:]


def png(rng: random.Random) -> tuple[str, bytes]:
    mode = rng.choice(("1", "L", "LA", "P", "P", "RGB", "RGBA", "I;16"))
    options = {"compress_level": rng.randint(0, 9), **exif(rng)}
    if mode in ("1", "L", "RGB", "P") and rng.random() < 0.3:
        options["transparency"] = (1, 2, 3) if mode == "RGB" else 0
    data = save(picture(rng, mode), "PNG", **options)
    if rng.random() < 0.3:
        made = interlaced(data, rng)
        if made is not None:
            return f"png {mode} interlaced", made
    return f"png {mode}", data


def webp(rng: random.Random) -> tuple[str, bytes]:
    mode = rng.choice(("RGB", "RGBA", "L"))
    image = picture(rng, mode)
    options = {"quality": rng.randint(0, 100), "method": rng.randint(0, 4), **exif(rng)}
    if rng.random() < 0.5:
        return f"webp {mode} lossless", save(image, "WEBP", lossless=True, exact=rng.random() < 0.5, **options)
    if rng.random() < 0.2:
        other = image.transpose(Image.Transpose.ROTATE_180)
        return f"webp {mode} animated", save(image, "WEBP", save_all=True, append_images=[other], **options)
    return f"webp {mode}", save(image, "WEBP", **options)


def gif(rng: random.Random) -> tuple[str, bytes]:
    mode = rng.choice(("1", "L", "P", "P", "RGB", "RGBA"))
    image = picture(rng, mode)
    options = {"interlace": rng.randint(0, 1)}
    if rng.random() < 0.3 and mode == "P":
        options["transparency"] = 1
    if rng.random() < 0.3:
        other = image.transpose(Image.Transpose.ROTATE_180)
        return f"gif {mode} animated", save(image, "GIF", save_all=True, append_images=[other], **options)
    data = bytearray(save(image, "GIF", **options))
    if rng.random() < 0.2:  # a larger screen, with the frame at its begin
        data[6:10] = (image.width + rng.randint(0, 9)).to_bytes(2, "little") + (image.height + rng.randint(0, 9)).to_bytes(2, "little")
        return f"gif {mode} screen", bytes(data)
    return f"gif {mode}", bytes(data)


def bmp(rng: random.Random) -> tuple[str, bytes]:
    mode = rng.choice(("1", "L", "P", "RGB", "RGBA"))
    data = bytearray(save(picture(rng, mode), "BMP"))
    if rng.random() < 0.3:  # the first row on top
        data[22:26] = (-int.from_bytes(data[22:26], "little") & 0xFFFFFFFF).to_bytes(4, "little")
        return f"bmp {mode} top-down", bytes(data)
    return f"bmp {mode}", bytes(data)


def pnm(rng: random.Random) -> tuple[str, bytes]:
    mode = rng.choice(("1", "L", "RGB", "I;16", "scaled", "plain"))
    if mode in ("scaled", "plain"):
        width, height, bands = rng.randint(1, 60), rng.randint(1, 60), rng.choice((1, 3))
        most = rng.choice((1, 2, 15, 100, 254, 255, 256, 1000, 65535))
        values = [rng.randint(0, most) for _ in range(width * height * bands)]
        size = 2 if most > 255 else 1
        kind = {"plain": {1: 2, 3: 3}, "scaled": {1: 5, 3: 6}}[mode][bands]
        head = f"P{kind}\n# a comment\n{width} {height}\n{most}\n".encode()
        if mode == "plain":
            return f"pnm P{kind}", head + b" ".join(b"%d" % value for value in values) + b"\n"
        return f"pnm P{kind} scaled", head + b"".join(value.to_bytes(size, "big") for value in values)
    return f"pnm {mode}", save(picture(rng, mode), "PPM")


def tiff(rng: random.Random) -> tuple[str, bytes]:
    mode = rng.choice(MODES)
    compressions = ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"]
    if mode in ("L", "RGB"):
        compressions.append("jpeg")
    if mode == "1":
        compressions += ["group3", "group4"]
    compression = rng.choice(compressions)
    options = {"compression": compression, **exif(rng, 8)}
    if rng.random() < 0.3:
        options["tiffinfo"] = {278: 8 * rng.randint(1, 5)}
        options.pop("exif", None)
    if compression == "jpeg":
        options["quality"] = rng.randint(20, 95)
    return f"tiff {mode} {compression}", save(picture(rng, mode), "TIFF", **options)


FORMATS = (jpeg, jpeg, jpeg, png, png, webp, gif, bmp, pnm, tiff)


def odd_files(count: int = 2000, seed: int = SEED) -> Iterator[tuple[str, bytes]]:
    """Kind and bytes of each file, the same ones for the same Pillow and tools."""
    for number in range(count):
        rng = random.Random(seed * 1_000_003 + number)
        yield FORMATS[number % len(FORMATS)](rng)


def write(folder: Path, count: int, seed: int = SEED) -> list[tuple[str, str]]:
    """Writes them as samples of one class; the kind and name of each in the order of the names."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, (kind, data) in enumerate(odd_files(count, seed)):
        name = f"{number:06d}.{kind.split()[0].replace('cjpeg', 'jpg').replace('jpegtran', 'jpg').replace('pnm', 'ppm').replace('gif', 'png')}"
        (folder / name).write_bytes(data)
        written.append((kind, name))
    return written


if __name__ == "__main__":
    for kind, name in write(Path(sys.argv[1]), int((sys.argv[2:] or [2000])[0]), int((sys.argv[3:] or [SEED])[0])):
        print(name, kind, sep="\t")
