"""Damage the contents of files: flip bits, cut, repeat, and put in what parsers stumble over."""

from __future__ import annotations

import json
import random

# Bytes that have a meaning in some format: text and JSON, YAML, values, and binary files.
WORDS = [
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\r",
    b"\n\n",
    b'"',
    b"'",
    b",",
    b":",
    b"\\u0000",
    b"{",
    b"}",
    b"[" * 3000,
    b"{" * 50,
    b"- " * 200,
    b"*a",
    b"&a [*a]",
    b"!!python/object:os.system x",
    b"<<: *a",
    b"\t",
    b"---\n",
    b"NaN",
    b"1e999",
    b"-1",
    b"9" * 5000,
    b"0x10",
    b"null",
    b"true",
    b"../../etc/passwd",
    b"/",
    b"\xf0\x9f\x98\x80",
    b"PK\x01\x02",
    b"PK\x05\x06",
    b"IHDR",
    b"\xff\xd8\xff",
    b"GIF89a",
    b"\x7f\xff\xff\xff",
    b"\xff" * 8,
]
# What a value of a JSON text may become.
VALUES = [
    None,
    True,
    0,
    -1,
    10**30,
    1.5,
    float("inf"),
    "",
    "x" * 1000,
    [],
    {},
    [[]],
    {"a": 1},
    "../x",
    "\ud800",
    [None],
]


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return a content after one to four accidents of random kinds.

    Args:
        content: the content of a file.
        chance: chooses the accidents. Its state decides everything, so a seed gives the same damage again.
    """
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        content = chance.choice(ACCIDENTS)(content, chance)
    return content


def flip(content: bytes, chance: random.Random) -> bytes:
    """Flip one bit."""
    if not content:
        return content
    changed = bytearray(content)
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut(content: bytes, chance: random.Random) -> bytes:
    """Drop everything after some place."""
    return content[: chance.randrange(len(content) + 1)]


def leave_out(content: bytes, chance: random.Random) -> bytes:
    """Leave out some bytes."""
    start, end = _slice(content, chance)
    return content[:start] + content[end:]


def double(content: bytes, chance: random.Random) -> bytes:
    """Repeat some bytes."""
    start, end = _slice(content, chance)
    return content[:end] + content[start:]


def put_in(content: bytes, chance: random.Random) -> bytes:
    """Insert one of `WORDS`."""
    place = chance.randrange(len(content) + 1)
    return content[:place] + chance.choice(WORDS) + content[place:]


def put_over(content: bytes, chance: random.Random) -> bytes:
    """Overwrite some bytes with one of `WORDS`."""
    word, place = chance.choice(WORDS), chance.randrange(len(content) + 1)
    return content[:place] + word + content[place + len(word) :]


def noise(content: bytes, chance: random.Random) -> bytes:
    """Overwrite some bytes with random ones."""
    start, end = _slice(content, chance)
    return content[:start] + chance.randbytes(end - start) + content[end:]


def other_value(content: bytes, chance: random.Random) -> bytes:
    """Replace one value of a JSON text by one of `VALUES`, or leave it out.

    The value is found by walking down from the outermost one, a random entry at a time. If the content is no JSON, a
    bit is flipped instead.
    """
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):  # the second if thousands of brackets are open
        return flip(content, chance)
    whole = [value]  # so that the outermost value can be replaced too
    holder, key = whole, 0
    while isinstance(holder[key], (dict, list)) and holder[key] and chance.random() < 0.8:
        holder = holder[key]
        key = chance.choice([*holder] if isinstance(holder, dict) else range(len(holder)))
    if chance.random() < 0.2 and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = chance.choice(VALUES)
    return json.dumps(whole[0]).encode()


# A kind that stands here twice happens twice as often.
ACCIDENTS = [flip, flip, cut, leave_out, double, put_in, put_over, noise, other_value, other_value]


def _slice(content: bytes, chance: random.Random) -> tuple[int, int]:
    """Choose where some bytes begin and end."""
    start = chance.randrange(len(content) + 1)
    return start, min(len(content), start + chance.choice([1, 4, 16, 256]))
