# SPDX-License-Identifier: Apache-2.0
"""Files that try to cost a decoder more than they are worth: huge claims, bombs, endless scans, loops. By kind, as bytes."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence

from PIL import Image

OVER = (40000, 40000)  # over the default limit of 178,956,970 pixels
UNDER = (13000, 13000)  # within it: nothing but the file's own lack of data says that the claim is false
TAKEN = (5000, 3000)
EDGES = ((16_000_000, 10), (10, 16_000_000))


def saved(kind: str, size: tuple[int, int] = (8, 8), mode: str = "RGB", **options) -> bytes:
    out = io.BytesIO()
    Image.new(mode, size).save(out, kind, **options)
    return out.getvalue()


# ---- JPEG


def _segment(data: bytes, *markers: int) -> int:
    at = 2
    while data[at + 1] not in markers:
        at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return at


def jpeg(width: int, height: int, progressive: bool = False, mode: str = "RGB") -> bytes:
    """An 8 x 8 picture that says it is larger."""
    data = bytearray(saved("JPEG", mode=mode, progressive=progressive))
    at = _segment(bytes(data), 0xC0, 0xC2)
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def endless_scans(edge: int, count: int) -> bytes:
    """A progressive JPEG whose last scan comes again and again."""
    data = saved("JPEG", (edge, edge), "L", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:-2] + data[last:-2] * count + data[-2:]


# ---- PNG


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(
    width: int, height: int, rows: bytes, interlaced: bool = False, depth: int = 8, colour: int = 2, extra: bytes = b""
) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def zeros(count: int) -> bytes:
    """`count` zeros, deflated: a thousandth of their length."""
    packer = zlib.compressobj(9)
    block = bytes(1 << 20)
    parts = [packer.compress(block) for _ in range(count >> 20)]
    return b"".join(parts) + packer.compress(bytes(count & 0xFFFFF)) + packer.flush()


# ---- others


def gif(screen: tuple[int, int], frame: tuple[int, int], data: bytes | None = None) -> bytes:
    """A frame of its size in a screen of its own; data: of the frame instead of its pixels."""
    image = saved("GIF", frame if data is None else (4, 4), "P")
    at = image.rindex(b"\x2c\0\0\0\0")
    head = image[:6] + struct.pack("<HH", *screen) + image[10:at]
    if data is None:
        return head + image[at:]
    return head + b"\x2c\0\0\0\0" + struct.pack("<HH", *frame) + b"\0" + data


def bmp(width: int, height: int, bits: int = 24, compression: int = 0, data: bytes = bytes(64)) -> bytes:
    palette = bytes(1024) if bits == 8 else b""
    begin = 54 + len(palette)
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", begin + len(data), 0, 0, begin) + header + palette + data


def webp_canvas(width: int, height: int) -> bytes:
    """A damaged 8 x 8 picture on a canvas of its own."""
    picture = bytearray(saved("WEBP", lossless=True)[12:])
    picture[14:] = b"\xff" * (len(picture) - 14)
    canvas = struct.pack("<I", (width - 1) & 0xFFFFFF)[:3] + struct.pack("<I", (height - 1) & 0xFFFFFF)[:3]
    frame = bytes(6) + b"\7\0\0\7\0\0" + bytes(4) + bytes(picture)
    body = b"VP8X" + struct.pack("<I", 10) + b"\2\0\0\0" + canvas + b"ANIM" + struct.pack("<I", 6) + bytes(6)
    body += b"ANMF" + struct.pack("<I", len(frame)) + frame
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def webp(width: int, height: int, lossless: bool) -> bytes:
    """An 8 x 8 picture that says it is larger; at most 16,383."""
    data = bytearray(saved("WEBP", lossless=lossless))
    if lossless:
        data[21:25] = struct.pack("<I", (width - 1) | (height - 1) << 14)
    else:
        data[26:30] = struct.pack("<HH", width, height)
    return bytes(data)


Tag = tuple[int, int, int, int]  # number, type, count, value or where it is


def tiff(tags: list[Tag], data: bytes = b"", following: int = 0) -> bytes:
    """Little-endian, with the data behind the directory, at `8 + 6 + 12 * len(tags)`."""
    entries = b"".join(struct.pack("<HHII", *tag) for tag in sorted(tags))
    return (
        b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(tags)) + entries + struct.pack("<I", following) + data
    )


def tiff_of(
    width: int,
    height: int,
    more: Sequence[Tag] = (),
    data: bytes = bytes(64),
    samples: int = 3,
    compression: int = 1,
    **options,
):  # noqa: B006
    """Strips of 8-bit samples, all of the height in one unless `more` says otherwise."""
    tags = {
        256: (256, 4, 1, width),
        257: (257, 4, 1, height),
        258: (258, 3, 1, 8),
        259: (259, 3, 1, compression),
        262: (262, 3, 1, 2 if samples >= 3 else 1),
        277: (277, 3, 1, samples),
        278: (278, 4, 1, height),
    }
    tags.update({tag[0]: tag for tag in more})
    if not {322, 324} & set(tags):
        tags.update({273: tags.get(273, (273, 4, 1, 0)), 279: tags.get(279, (279, 4, 1, len(data)))})
    begin = 8 + 6 + 12 * len(tags)
    placed = [
        (n, kind, count, begin if n in (273, 324) and value == 0 else value) for n, kind, count, value in tags.values()
    ]
    return tiff(placed, data, **options)


def tiles(width: int, height: int, edge: tuple[int, int], compression: int = 1, data: bytes = bytes(64)) -> bytes:
    more = [(322, 4, 1, edge[0]), (323, 4, 1, edge[1]), (324, 4, 1, 0), (325, 4, 1, len(data))]
    return tiff_of(width, height, more, data, compression=compression)


def refused() -> dict[str, bytes]:
    """Files of which each must be a bad sample that costs little."""
    over, under, (wide, tall) = OVER, UNDER, EDGES
    bomb = zeros(3 * 20000 * 20000 + 20000)
    small_bomb = zeros(50 << 20)
    files = {
        "JPEG claim": jpeg(65500, 65500),
        "JPEG of no height": jpeg(64, 0),
        "progressive JPEG claim": jpeg(20000, 20000, True),
        "progressive JPEG of endless scans": endless_scans(512, 20000),
        "PNG bomb over the limit": png(20000, 20000, bomb),
        "PNG claim": png(*over, bytes(40)),
        "PNG claim within the limit": png(*under, zlib.compress(bytes(40))),
        "PNG of wide rows": png(*wide, zlib.compress(bytes(40))),
        "PNG of wide rows, 16 bits": png(*wide, zlib.compress(bytes(40)), depth=16, colour=6),
        "PNG of many rows": png(*tall, zlib.compress(bytes(40))),
        "interlaced PNG claim": png(*over, bytes(40), True),
        "interlaced PNG claim within the limit": png(*under, zlib.compress(bytes(40)), True),
        "interlaced PNG of wide rows": png(*wide, zlib.compress(bytes(40)), True),
        "PNG of no pixels, text bomb": png(9, 9, zlib.compress(b""), extra=chunk(b"zTXt", b"k\0\0" + small_bomb)),
        "PNG of no pixels, profile bomb": png(9, 9, zlib.compress(b""), extra=chunk(b"iCCP", b"k\0\0" + small_bomb)),
        "PNG with a chunk of 2 GB": png(9, 9, zlib.compress(b""))[:33]
        + struct.pack(">I", 0x7FFFFFFF)
        + b"tEXt"
        + bytes(50),
        "PNG with a palette of 2 GB": png(9, 9, zlib.compress(b""))[:33]
        + struct.pack(">I", 0x7FFFFFFF)
        + b"PLTE"
        + bytes(50),
        "WebP claim": webp(16383, 16383, False),
        "WebP claim within the limit": webp(*under, False),
        "lossless WebP claim": webp(16383, 16383, True),
        "WebP canvas claim": webp_canvas(1 << 24, 1 << 24),
        "WebP canvas claim within the limit": webp_canvas(*under),
        "GIF claim": gif((65535, 65535), (65535, 65535), b"\2"),
        "GIF small frame, huge screen": gif((65535, 65535), (4, 4)),
        "GIF small damaged frame, large screen": gif(under, (4, 4), b"\2\1"),
        "GIF claim within the limit": gif((1, 1), under, b"\2\1\4"),
        "BMP claim": bmp(*over),
        "BMP claim within the limit": bmp(*under),
        "BMP of wide rows": bmp(*wide),
        "BMP run lengths": bmp(*under, 8, 1, b"\xff\0" * 40),
        "BMP of 32 bits of height": bmp(1, -(2**31)),
        "PPM claim": b"P6 40000 40000 255\n" + bytes(40),
        "PPM claim within the limit": b"P6 13000 13000 255\n" + bytes(40),
        "PPM of wide rows": b"P6 16000000 10 65535\n" + bytes(40),
        "plain PPM of wide rows": b"P3 16000000 10 65535\n" + b"1 " * 40,
        "plain PBM of wide rows": b"P1 16000000 10\n" + b"1 " * 40,
        "TIFF claim": tiff_of(*over),
        "TIFF claim within the limit": tiff_of(*under),
        "TIFF of wide rows": tiff_of(*wide),
        "TIFF of many strips": tiff_of(*tall, [(278, 4, 1, 1)]),
        "TIFF that claims many strips": tiff_of(
            *tall, [(278, 4, 1, 1), (273, 4, 16_000_000, 8), (279, 4, 16_000_000, 8)]
        ),
        "TIFF tile claim": tiles(64, 64, over),
        "TIFF tile within the limit": tiles(64, 64, (12800, 12800)),
        "TIFF of many tiles": tiles(12800, 12800, (16, 16)),
        "TIFF of counts": tiff_of(
            8, 8, [(number, 12, 0xFFFFFFFF, 8) for number in (270, 305, 320, 333, 700, 33432, 34675, 34665)]
        ),
        "TIFF of long texts": tiff_of(8, 8, [(number, 2, 0x7FFFFFFF, 8) for number in (270, 305, 306, 315)]),
        "TIFF whose directory is its own": tiff([(330, 4, 1, 8), (34665, 4, 1, 8)], following=8),
        "TIFF of samples": tiff_of(5000, 5000, [(277, 3, 1, 65535), (258, 3, 1, 8)]),
    }
    for name, compression in (
        ("deflate", 8),
        ("LZW", 5),
        ("PackBits", 32773),
        ("JPEG", 7),
        ("Zstandard", 50000),
        ("LZMA", 34925),
    ):
        files[f"{name} TIFF within the limit"] = tiff_of(*under, compression=compression, data=zlib.compress(bytes(9)))
        files[f"{name} TIFF of wide rows"] = tiff_of(*wide, compression=compression, data=zlib.compress(bytes(9)))
        files[f"{name} TIFF tile"] = tiles(64, 64, (12800, 12800), compression, zlib.compress(bytes(9)))
    mixed = [(262, 3, 1, 6), (530, 3, 2, 2 | 2 << 16)]
    files["TIFF of mixed colours"] = tiff_of(*under, mixed, zlib.compress(bytes(9)), compression=8)
    files["TIFF with a bomb in a strip"] = tiff_of(*over, data=bomb, compression=8)
    return files


def beside_the_picture() -> dict[str, bytes]:
    """Files of a whole grey-blue picture of 64 x 64, with a load that nobody has to carry."""
    colour, bomb = (90, 90, 160), zeros(400 << 20)
    rows = zlib.compress((b"\0" + bytes(colour) * 64) * 64)
    out = io.BytesIO()
    Image.new("RGB", (64, 64), colour).save(out, "GIF")
    plain = out.getvalue()
    at = plain.index(b"\x2c\0\0\0\0")
    comments = (b"\x21\xfe" + (b"\xff" + bytes(range(1, 256))) * 40 + b"\0") * 400
    tags = [(270, 2, 0x7FFFFFFF, 8), (700, 1, 0xFFFFFFFF, 8), (34675, 7, 0xFFFFFFFF, 8), (330, 4, 1, 8)]
    return {
        "PNG, text bomb": png(64, 64, rows, extra=chunk(b"zTXt", b"k\0\0" + bomb)),
        "PNG, profile bomb": png(64, 64, rows, extra=chunk(b"iCCP", b"k\0\0" + bomb)),
        "PNG, international text bomb": png(64, 64, rows, extra=chunk(b"iTXt", b"k\0\1\0\0\0" + bomb)),
        "PNG, many texts": png(64, 64, rows, extra=chunk(b"tEXt", b"k\0v") * 200_000),
        "GIF, many comments": plain[:at] + comments + plain[at:],
        "TIFF, directory in a loop": tiff_of(64, 64, tags, bytes(colour) * 4096, following=8),
    }


def taken() -> dict[str, tuple[bytes, int]]:
    """Files that Pillow takes as they are, although they hold next to nothing, and the bytes a pixel that they may cost."""
    width, height = TAKEN
    return {
        "JPEG claim": (jpeg(width, height), 3),
        "progressive JPEG claim": (jpeg(width, height, True), 9),
        "lossless WebP claim": (webp(width, height, True), 7),
        "PNG bomb": (png(width, height, zeros((3 * width + 1) * height)), 3),
        "GIF small frame": (gif((width, height), (4, 4)), 3),
        "BMP run lengths": (bmp(width, height, 8, 1, b"\0\2\0\xff" * 12), 5),
    }
