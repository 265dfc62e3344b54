# SPDX-License-Identifier: Apache-2.0
"""Makes tests/support/fixtures: small JPEGs in many encodings, and the right answers for them by Pillow and torch.

    python tests/support/make_fixtures.py            # with Pillow 13 (and torch): the files and all answers
    python tests/support/make_fixtures.py --dirty    # with Pillow 13: only fixtures/dirty, files of all formats, and its answers.json
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
import zlib

import PIL
from PIL import Image, ImageOps

FOLDER = pathlib.Path(__file__).parent / "fixtures"
DIRTY = FOLDER / "dirty"
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


def image_of(image: Image.Image, form: str, **options) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def raw_png(width: int, height: int, bits: int, kind: int, rows: bytes, more: bytes = b"") -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + more + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def bitmap(width: int, height: int, bits: int, data: bytes, compression: int = 0, masks=(), colors=b"") -> bytes:
    """A BMP with a header of 40 bytes; negative height: the first row on top."""
    extra = struct.pack(f"<{len(masks)}I", *masks) + colors
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(data), 0, 0, len(colors) // 4, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(extra) + len(data), 0, 0, 54 + len(extra)) + header + extra + data


def quadrants() -> Image.Image:
    """Red, green, blue and yellow quarters."""
    image = Image.new("RGB", (96, 64), (220, 40, 30))
    for box, colour in (((48, 0, 96, 32), (40, 200, 60)), ((0, 32, 48, 64), (30, 60, 220)), ((48, 32, 96, 64), (230, 210, 40))):
        image.paste(colour, box)
    return image


def dirty_files() -> dict[str, bytes]:
    """What datasets hold besides plain JPEGs: other codings, names that lie, files that are cut, claims, odd orientations."""
    quad, colour = quadrants(), picture(23, 31)
    inverse = ImageOps.invert(quad)
    y, cb, cr = inverse.convert("YCbCr").split()
    inks = [ImageOps.invert(plane) for plane in (y, cb, cr)]

    def ycck(black: int) -> bytes:
        data = bytearray(jpeg(Image.merge("CMYK", [*inks, Image.new("L", quad.size, black)])))
        data[data.index(b"\xff\xee") + 15] = 2
        return bytes(data)

    out = {
        "cmyk_quad.jpg": jpeg(quad.convert("CMYK")),
        "ycck.jpg": ycck(0),
        "ycck_black.jpg": ycck(128),
        "png_named.jpg": image_of(quad, "PNG"),
        "gif_named.jpg": image_of(quad, "GIF"),
        "animated.gif": image_of(quad, "GIF", save_all=True, append_images=[inverse]),
        "bmp_named.jpg": image_of(quad, "BMP"),
        "webp_named.jpg": image_of(quad, "WEBP", lossless=True),
        "tiff_named.jpg": image_of(quad, "TIFF", compression="tiff_lzw"),
        "jpeg_named.png": jpeg(quad),
    }
    unmarked = out["cmyk_quad.jpg"]
    place = unmarked.index(b"\xff\xee")
    out["cmyk_unmarked.jpg"] = unmarked[:place] + unmarked[place + 16 :]
    noise = image_of(picture(64, 64), "PNG")
    half = len(noise) // 2
    damaged = bytearray(noise)
    damaged[half] ^= 255
    late = bytearray(noise)
    late[-14] ^= 255  # in the checksum of the image data
    out |= {
        "half.png": noise[:half],
        "bad_data.png": bytes(damaged),
        "bad_checksum.png": bytes(late),
        "no_end.png": noise[:-12],
        "half.gif": image_of(colour, "GIF")[:300],
        "half.bmp": image_of(colour, "BMP")[:900],
        "half.webp": image_of(colour, "WEBP")[:150],
        "half.tif": image_of(colour, "TIFF", compression="tiff_adobe_deflate")[:300],
        "half.ppm": image_of(colour, "PPM")[:900],
    }
    for number in range(10):
        data = Image.Exif()
        data[0x0112] = number
        out[f"orientation_{number}.jpg"] = jpeg(quad, exif=data)
        if number in (3, 6):
            for form in ("PNG", "WEBP", "TIFF"):
                out[f"orientation_{number}.{form.lower()}"] = image_of(quad, form, exif=data)
    broken = bytearray(out["orientation_6.jpg"])
    place = broken.index(b"\xff\xe1")
    broken[place + 10 : place + 18] = b"\xff" * 8
    out["orientation_broken.jpg"] = bytes(broken)
    xmp = b'http://ns.adobe.com/xap/1.0/\0<rdf tiff:Orientation="6"/>'
    plain = jpeg(quad)
    out["orientation_xmp.jpg"] = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(xmp) + 2) + xmp + plain[2:]
    palette = quad.convert("P", palette=Image.Palette.ADAPTIVE, colors=4)
    alpha = quad.copy()
    alpha.putalpha(Image.linear_gradient("L").resize(quad.size))
    columns = range(96)
    deep = b"\0" + b"".join(struct.pack(">HHH", x * 257, 0x1234, 0xFF00) for x in columns)
    out |= {
        "flat_claim.png": raw_png(20000, 20000, 8, 2, b"\0" * 1000),
        "zero.png": raw_png(0, 64, 8, 2, b""),
        "claim.gif": b"GIF89a" + struct.pack("<HHBBB", 65500, 65500, 0, 0, 0) + b",\0\0\0\0" + struct.pack("<HHB", 65500, 65500, 0) + b"\2\0;",
        "claim.bmp": bitmap(60000, 60000, 24, b"\0" * 100),
        "claim.ppm": b"P6 60000 60000 255\n",
        "rgb16.png": raw_png(96, 64, 16, 2, deep * 64),
        "grey16.png": raw_png(96, 64, 16, 0, (b"\0" + b"".join(struct.pack(">H", x * 680) for x in columns)) * 64),
        "bit1.png": raw_png(96, 64, 1, 0, (b"\0" + b"\xaa" * 12) * 64),
        "grey2.png": raw_png(96, 4, 2, 0, (b"\0" + b"\x1b" * 24) * 4),
        "short_palette.png": raw_png(4, 1, 8, 3, b"\0\0\1\2\xff", chunk(b"PLTE", bytes(range(10, 70, 10)))),
        "palette.png": image_of(palette, "PNG"),
        "palette_one.png": image_of(palette, "PNG", transparency=0),
        "palette_many.png": image_of(palette, "PNG", transparency=bytes([0, 128, 255, 255])),
        "rgba.png": image_of(alpha, "PNG"),
        "la.png": image_of(quad.convert("L").convert("LA"), "PNG"),
        "fields565.bmp": bitmap(4, -1, 16, struct.pack("<4H", 0xF800, 0x7E0, 0x1F, 0xABCD), 3, (0xF800, 0x7E0, 0x1F)),
        "fields555.bmp": bitmap(4, 1, 16, struct.pack("<4H", 0x7C00, 0x3E0, 0x1F, 0x2BCD)),
        "fields32.bmp": bitmap(2, 1, 32, bytes(range(8)), 3, (0xFF000000, 0xFF0000, 0xFF00)),
        "rle8.bmp": bitmap(6, 2, 8, bytes([3, 1, 0, 3, 2, 0, 1, 0, 0, 0, 6, 2, 0, 1]), 1, (), bytes(range(12))),
        "rle4.bmp": bitmap(5, 2, 4, bytes([5, 0x12, 0, 0, 0, 5, 0x12, 0x01, 0x20, 0, 0, 1]), 2, (), bytes(range(64))),
        "samples.pgm": b"P5 4 1 1000\n" + struct.pack(">4H", 0, 1, 500, 1000),
        "samples.ppm": b"P6 2 1 1000\n" + struct.pack(">6H", 0, 1, 500, 1000, 333, 2000),
        "comment.ppm": b"P2 4 1 15 0 1#c\n1 15 7 ",
    }
    return out


def decoded(path: pathlib.Path) -> dict | None:
    """None where Pillow refuses it."""
    try:
        with Image.open(path) as image:
            rgb = image.convert("RGB")
        with Image.open(path) as image:
            grey = image.convert("L")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    return {"height": rgb.height, "width": rgb.width, "rgb": sha(rgb.tobytes()), "grey": sha(grey.tobytes())}


def read(path: pathlib.Path) -> dict[str, str | int] | None:
    """As decoded, also upright; None where Pillow refuses it."""
    answer = decoded(path)
    if answer is not None:
        with Image.open(path) as image:
            answer["upright"] = sha(ImageOps.exif_transpose(image).convert("RGB").tobytes())
    return answer


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
    DIRTY.mkdir(parents=True, exist_ok=True)
    if "--dirty" in sys.argv:
        for name, data in dirty_files().items():
            (DIRTY / name).write_bytes(data)
        right = {path.name: read(path) for path in sorted(DIRTY.iterdir()) if path.suffix != ".json"}
        (DIRTY / "answers.json").write_text(json.dumps({"pillow": PIL.__version__, "read": right}, indent=1) + "\n")
        return
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
