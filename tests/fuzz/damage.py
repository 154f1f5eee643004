"""Damaged files: each is a function of a random generator and some valid files."""

from __future__ import annotations

from random import Random

ODD = (
    *(text.encode() for text in ("\u2028", "\u2029", "\u0085", "\ufeff", "\ufffd", "\xa0", "٣", "𝟗", "\U0010ffff")),
    *(b"\0", b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf8\x88\x80\x80\x80", b"\x1a", b"\x7f"),
    *(b"\n", b"\r", b"\r\n", b"\n\n\n", b" ", b"\t", b"\\", b'"', b"'", b'"""', b"#", b"=", b".", b",", b"{}", b"[]"),
    *(b"-1", b"0", b"00", b"1e999", b"-0", b"nan", b"-inf", b"NaN", b"Infinity", b"0x" + b"f" * 5000, b"1_0", b"true"),
    *(b"null", b"{}", b"[", b"{", b'"\\ud800"', b'"\\u0000"', b"1979-05-27T07:32:00Z", b"25:61:61", b"1-1", b"0?0"),
    *(b"9" * 19, b"9" * 400, b"9" * 5000, b"0-" + b"9" * 30, b"1." + b"0" * 3000),
)  # fmt: skip
NESTS = ((b"[", b"]"), (b'{"a":', b"}"), (b"{a=", b"}"), (b"a.", b"b=1"), (b"[[", b"]]"), (b"(", b")"))


def _cut(random: Random, data: bytes) -> tuple[int, int]:
    """A stretch of a file: mostly short, sometimes anything."""
    start = random.randrange(len(data) + 1)
    size = random.randrange(1, 9) if random.random() < 0.6 else random.randrange(len(data) + 1)
    return start, min(len(data), start + size)


def flip(random: Random, data: bytes) -> bytes:
    """A few bits the other way round."""
    changed = bytearray(data or b"\0")
    for _ in range(random.randrange(1, 4)):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def truncate(random: Random, data: bytes) -> bytes:
    """Only the beginning, or only the end."""
    place = random.randrange(len(data) + 1)
    return data[:place] if random.random() < 0.7 else data[place:]


def delete(random: Random, data: bytes) -> bytes:
    start, stop = _cut(random, data)
    return data[:start] + data[stop:]


def duplicate(random: Random, data: bytes) -> bytes:
    start, stop = _cut(random, data)
    place = random.randrange(len(data) + 1)
    return data[:place] + data[start:stop] * random.choice((1, 1, 2, 30)) + data[place:]


def swap(random: Random, data: bytes) -> bytes:
    a, b, c, d = sorted(random.randrange(len(data) + 1) for _ in range(4))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def insert(random: Random, data: bytes) -> bytes:
    """Something odd at some place, or instead of what stands there."""
    start, stop = _cut(random, data)
    return data[:start] + random.choice(ODD) + data[start if random.random() < 0.6 else stop :]


def number(random: Random, data: bytes) -> bytes:
    """Another number for one that stands there."""
    places = [place for place, byte in enumerate(data[:5000]) if 48 <= byte <= 57]
    if not places:
        return insert(random, data)
    place = random.choice(places)
    other = random.choice(
        (b"-1", b"1e400", b"9" * 5000, b"0x1", b"1.5", b"999999", b"1000000", b"", b"true", b'"3"')
    )
    return data[:place] + other + data[place + 1 :]


def nest(random: Random, data: bytes) -> bytes:
    """Brackets in brackets where a value may stand, closed or not."""
    left, right = random.choice(NESTS)
    depth = random.choice((5, 90, 400, 3000))
    place = random.choice([0, *(end + 1 for end, byte in enumerate(data[:5000]) if byte in b":=,\n")])
    closed = right * (depth * (random.random() < 0.7))
    return data[:place] + left * depth + random.choice((b"", b"1", b"a")) + closed + data[place:]


def stretch(random: Random, data: bytes) -> bytes:
    """A very long line."""
    place = random.randrange(len(data) + 1)
    return data[:place] + random.choice((b"x", b"9", b" ", b"1-1 ", "ü".encode())) * 20_000 + data[place:]


def line_ends(random: Random, data: bytes) -> bytes:
    """Windows, old Macintosh and Unix line ends in a mixture."""
    pieces = data.split(b"\n")
    return b"".join(piece + random.choice((b"\n", b"\r\n", b"\r", b"\r\r\n")) for piece in pieces[:2000])


DAMAGES = (flip, truncate, delete, duplicate, swap, insert, insert, number, number, line_ends)
RARE = (nest, stretch)


def hostile(random: Random, valid: list[bytes]) -> bytes:
    """Random bytes, or a valid file with up to four damages."""
    if random.random() < 0.1:
        alphabet = random.choice(
            (bytes(range(256)), b"0123456789-?pSP \t\r\n", b'{}[]":,\\u 0aenrtf', b"[]=\"'.\n#a1 {}")
        )
        return bytes(random.choices(alphabet, k=random.choice((0, 1, 3, 20, 200))))
    data = random.choice(valid)
    for _ in range(random.choice((0, 1, 1, 1, 2, 4))):
        data = random.choice(RARE if random.random() < 0.05 else DAMAGES)(random, data)
    return data
