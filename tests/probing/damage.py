"""Files that were valid once: flipped, cut, doubled, filled with what parsers stumble over."""

from __future__ import annotations

import json
import random

WORDS = [
    *(
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
    ),
    *(
        b"[" * 3000,
        b"{" * 50,
        b"- " * 200,
        b"*a",
        b"&a [*a]",
        b"!!python/object:os.system x",
        b"<<: *a",
        b"\t",
        b"---\n",
    ),
    *(b"NaN", b"1e999", b"-1", b"9" * 5000, b"0x10", b"null", b"true", b"../../etc/passwd", b"/", b"\xf0\x9f\x98\x80"),
    *(b"PK\x01\x02", b"PK\x05\x06", b"IHDR", b"\xff\xd8\xff", b"GIF89a", b"\x7f\xff\xff\xff", b"\xff" * 8),
]
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
    """`content` after one to four accidents."""
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        content = chance.choice(ACCIDENTS)(content, chance)
    return content


def flip(content: bytes, chance: random.Random) -> bytes:
    if not content:
        return content
    changed = bytearray(content)
    changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def leave_out(content: bytes, chance: random.Random) -> bytes:
    start, end = _slice(content, chance)
    return content[:start] + content[end:]


def double(content: bytes, chance: random.Random) -> bytes:
    start, end = _slice(content, chance)
    return content[:end] + content[start:]


def put_in(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(content) + 1)
    return content[:place] + chance.choice(WORDS) + content[place:]


def put_over(content: bytes, chance: random.Random) -> bytes:
    word, place = chance.choice(WORDS), chance.randrange(len(content) + 1)
    return content[:place] + word + content[place + len(word) :]


def noise(content: bytes, chance: random.Random) -> bytes:
    start, end = _slice(content, chance)
    return content[:start] + chance.randbytes(end - start) + content[end:]


def other_value(content: bytes, chance: random.Random) -> bytes:
    """One value of a JSON text becomes one of another kind."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return flip(content, chance)
    holder, key, inner = [value], 0, value
    while isinstance(inner, (dict, list)) and inner and chance.random() < 0.8:
        holder, key = inner, chance.choice([*inner] if isinstance(inner, dict) else range(len(inner)))
        inner = holder[key]
    if chance.random() < 0.2 and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = chance.choice(VALUES)
        value = holder[0] if inner is value else value
    return json.dumps(value).encode()


ACCIDENTS = [flip, flip, cut, leave_out, double, put_in, put_over, noise, other_value, other_value]


def _slice(content: bytes, chance: random.Random) -> tuple[int, int]:
    start = chance.randrange(len(content) + 1)
    return start, min(len(content), start + chance.choice([1, 4, 16, 256]))
