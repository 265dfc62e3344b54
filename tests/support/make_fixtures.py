# SPDX-License-Identifier: Apache-2.0
"""Makes tests/support/fixtures: small JPEGs in many encodings, and the right answers for them by Pillow and torch.

    python tests/support/make_fixtures.py            # with Pillow 13 (and torch): the files and all answers
    python tests/support/make_fixtures.py --answers  # with another Pillow: only answers_pillow<major>.json, from the files as they are

The files are committed: a later Pillow may encode other bytes. What torchvision does beyond Pillow is written out in torch here, so that
torchvision is not needed.
"""
import hashlib
import io
import json
import pathlib
import struct
import sys

import PIL
from PIL import Image

FOLDER = pathlib.Path(__file__).parent / "fixtures"
MAJOR = int(PIL.__version__.split(".")[0])
FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "box": Image.Resampling.BOX,
    "bilinear": Image.Resampling.BILINEAR,
    "hamming": Image.Resampling.HAMMING,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
# (height, width); the sources are 61x83, 200x3, 3x200, 17x31 and 1x1, so each goes up, down and both in both orders of the passes. The
# large one, 300x400, in the last two sizes shows that Hamming's constants are floats in Pillow: few pixels do.
SIZES = [(7, 5), (61, 20), (20, 83), (9, 100), (100, 9), (130, 170), (1, 1), (2, 83), (61, 2), (224, 224), (100, 150), (140, 301)]
RESIZED = ["large.jpg", "colour_444.jpg", "grey.jpg", "tall.jpg", "wide.jpg", "odd.jpg", "one_pixel.jpg"]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def picture(height: int, width: int) -> Image.Image:
    """Smooth colours with edges and some noise, by integers alone."""
    pixels = bytearray()
    noise = 12345
    for y in range(height):
        for x in range(width):
            noise = (noise * 1103515245 + 12345) & 0x7FFFFFFF
            edge = 90 if (x // 7 + y // 5) % 3 == 0 else 0
            pixels += bytes(
                min(255, base + edge + (noise >> 20) % 25)
                for base in (x * 140 // width, y * 140 // height, (x + y) * 140 // (width + height))
            )
    return Image.frombytes("RGB", (width, height), bytes(pixels))


def jpeg(image: Image.Image, **options) -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", **{"quality": 90, **options})
    return out.getvalue()


def with_size(data: bytes, height: int, width: int) -> bytes:
    """The same bytes with another size claimed in the frame header."""
    place = data.index(b"\xff\xc0") + 5
    return data[:place] + struct.pack(">HH", height, width) + data[place + 4 :]


def with_repeated_scan(data: bytes, count: int) -> bytes:
    """A progressive file whose first scan comes `count` times more."""
    first = data.index(b"\xff\xda")
    end = first + 2
    while data[end] != 0xFF or data[end + 1] == 0 or 0xD0 <= data[end + 1] <= 0xD7:
        end += 1
    return data[:end] + data[first:end] * count + data[end:]


def files() -> dict[str, bytes]:
    colour = picture(61, 83)
    plain = jpeg(colour)
    progressive = jpeg(colour, progressive=True)
    half = len(plain) // 2
    damaged = bytearray(plain)
    damaged[half] ^= 0x55
    return {
        "colour_420.jpg": plain,
        "colour_422.jpg": jpeg(colour, subsampling="4:2:2"),
        "colour_444.jpg": jpeg(colour, subsampling="4:4:4"),
        "rgb_coded.jpg": jpeg(colour, keep_rgb=True),
        "grey.jpg": jpeg(colour.convert("L")),
        "progressive.jpg": progressive,
        "restart.jpg": jpeg(colour, restart_marker_rows=1),
        "odd.jpg": jpeg(picture(17, 31)),
        "one_pixel.jpg": jpeg(picture(1, 1)),
        "large.jpg": jpeg(picture(300, 400), quality=50),
        "tall.jpg": jpeg(picture(200, 3)),
        "wide.jpg": jpeg(picture(3, 200)),
        "cmyk.jpg": jpeg(colour.convert("CMYK")),
        "trailing.jpg": plain + b"and then some",
        "damaged.jpg": bytes(damaged),
        "early_end.jpg": plain[:half] + b"\xff\xd9",
        "zeros_for_end.jpg": plain[:-2] + b"\0" * 100,
        "no_end.jpg": plain[:-2],
        "truncated.jpg": plain[:half],
        "truncated_progressive.jpg": progressive[:-2],
        "truncated_header.jpg": plain[:100],
        "empty.jpg": b"",
        "text.jpg": b"<html>no image</html>\n",
        "huge_claim.jpg": with_size(plain, 65500, 65500),
        "many_scans.jpg": with_repeated_scan(jpeg(picture(8, 8), progressive=True), 600),
    }


def decoded(path: pathlib.Path) -> dict | None:
    """None where Pillow refuses it."""
    try:
        with Image.open(path) as image:
            rgb = image.convert("RGB")
        with Image.open(path) as image:
            grey = image.convert("L")
    except (OSError, Image.DecompressionBombError):
        return None
    return {"height": rgb.height, "width": rgb.width, "rgb": sha(rgb.tobytes()), "grey": sha(grey.tobytes())}


def resized(path: pathlib.Path) -> dict[str, str]:
    """For each mode and filter a hash over the results in all of SIZES."""
    answers = {}
    for mode in ("RGB", "L"):
        with Image.open(path) as image:
            source = image.convert(mode)
        for name, number in FILTERS.items():
            results = (source.resize((width, height), number) for height, width in SIZES)
            answers[f"{mode} {name}"] = sha(b"".join(result.tobytes() for result in results))
    return answers


def tensor_tables() -> list[dict]:
    """For each chain of tensor steps: what torch makes of all 256 values in 3 channels. `first` is value 0, 1, 100 and 255 of channel 0."""
    import torch

    def to_tensor(value):  # ToTensor
        return value.to(torch.float32).div(255)

    def convert(value, dtype):  # ConvertImageDtype
        return value.to(dtype) if value.is_floating_point() else value.to(dtype) / 255.0

    def normalize(value, mean, std):  # Normalize
        mean, std = (torch.as_tensor(v, dtype=value.dtype).view(-1, 1, 1) for v in (mean, std))
        return value.clone().sub_(mean).div_(std)

    imagenet = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    odd = ([0.1234567, 1e-5, -3.25], [1e-3, 7.7, 65000.0])
    one = ([0.5], [0.5])
    pixels = torch.arange(256, dtype=torch.uint8).repeat(3, 1).view(3, 1, 256)
    answers = []

    def add(steps, value):
        bits = value.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[value.element_size()])
        data = bits.contiguous().numpy().tobytes()
        first = [int(bits[0, 0, v]) % (1 << 8 * value.element_size()) for v in (0, 1, 100, 255)]
        answers.append({"steps": steps, "sha256": sha(data), "first": first})

    add([], pixels)
    floats = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    starts = [(["to_tensor"], to_tensor(pixels))]
    starts += [([f"convert {name}"], convert(pixels, dtype)) for name, dtype in floats.items()]
    starts += [(["to_tensor", f"convert {name}"], convert(to_tensor(pixels), dtype)) for name, dtype in floats.items()]
    for steps, value in starts:
        add(steps, value)
        for mean, std in (imagenet, odd, one):
            normal = [*steps, {"mean": mean, "std": std}]
            add(normal, normalize(value, mean, std))
            for name, dtype in floats.items():
                add([*normal, f"convert {name}"], convert(normalize(value, mean, std), dtype))
    return answers


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    if "--answers" not in sys.argv:
        for name, data in files().items():
            (FOLDER / name).write_bytes(data)
        tables = ",\n".join(json.dumps(answer) for answer in tensor_tables())
        (FOLDER / "tensor_tables.json").write_text(f'{{"tables": [\n{tables}\n]}}\n')
    answers = {
        "pillow": PIL.__version__,
        "decoded": {path.name: decoded(path) for path in sorted(FOLDER.glob("*.jpg"))},
        "sizes": SIZES,
        "resized": {name: resized(FOLDER / name) for name in RESIZED},
    }
    (FOLDER / f"answers_pillow{MAJOR}.json").write_text(json.dumps(answers, indent=1) + "\n")


main()
