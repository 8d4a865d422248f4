"""Kept pictures of pages: small, grey, and compared with a tolerance, so that another font renderer passes and another layout does not."""

import os
import struct
import zlib

# A kept pixel is the mean of a square of so many pixels of the screenshot.
SQUARE = 8
# Mean difference of grey levels, and the share of pixels that may differ by more than a quarter of the range.
MEAN_MAX = 2.5
FAR_SHARE_MAX = 0.01


def decode(png):
    """Width, height and rows of grey levels of a PNG with 8 bits per channel, as Chromium and `encode` write it."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data = 8, b""
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at:at + 8])
        body = png[at + 8:at + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert depth == 8
            channels = {0: 1, 2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            data += body
        at += 12 + length
    data, stride = zlib.decompress(data), width * channels
    former, rows = bytearray(stride), []
    for y in range(height):
        kind = data[y * (stride + 1)]
        line = bytearray(data[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        if kind == 1:
            for x in range(channels, stride):
                line[x] = (line[x] + line[x - channels]) & 255
        elif kind == 2:
            line = bytearray((a + b) & 255 for a, b in zip(line, former))
        elif kind == 3:
            for x in range(stride):
                left = line[x - channels] if x >= channels else 0
                line[x] = (line[x] + (left + former[x]) // 2) & 255
        elif kind == 4:
            for x in range(stride):
                a, c = (line[x - channels], former[x - channels]) if x >= channels else (0, 0)
                b = former[x]
                p = a + b - c
                pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
                line[x] = (line[x] + (a if pa <= pb and pa <= pc else b if pb <= pc else c)) & 255
        rows.append(line if channels == 1 else bytearray((line[x] * 3 + line[x + 1] * 6 + line[x + 2]) // 10 for x in range(0, stride, channels)))
        former = line
    return width, height, rows


def small(png):
    """A screenshot as it is kept: each pixel the mean of a square."""
    width, height, rows = decode(png)
    lines = []
    for y in range(0, height - SQUARE + 1, SQUARE):
        sums = [sum(rows[y + i][x] for i in range(SQUARE)) for x in range(width)]
        lines.append(bytes(sum(sums[x:x + SQUARE]) // (SQUARE * SQUARE) for x in range(0, width - SQUARE + 1, SQUARE)))
    return lines


def encode(lines):
    """Rows of grey levels as a PNG."""
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    head = struct.pack(">IIBBBBB", len(lines[0]), len(lines), 8, 0, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + line for line in lines), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def compare(png, kept, keep):
    """What differs between a screenshot and the kept picture, in words; None if it is the same. `keep`: keeps this one instead."""
    lines = small(png)
    if keep:
        with open(kept, "wb") as out:
            out.write(encode(lines))
        return None
    if not os.path.exists(kept):
        return "no picture is kept: run tests/console/run.sh --keep"
    with open(kept, "rb") as file:
        width, height, rows = decode(file.read())
    if (width, height) != (len(lines[0]), len(lines)):
        return f"{len(lines[0])}x{len(lines)} where {width}x{height} is kept"
    differences = [abs(a - b) for ours, theirs in zip(lines, rows) for a, b in zip(ours, theirs)]
    mean, far = sum(differences) / len(differences), sum(d > 64 for d in differences) / len(differences)
    return None if mean <= MEAN_MAX and far <= FAR_SHARE_MAX else f"mean difference {mean:.2f}, {far:.1%} differ much"
