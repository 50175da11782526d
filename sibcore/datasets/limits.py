"""How much is taken from files and servers of others: more than any data set here needs, too little to do harm."""

from __future__ import annotations

FILES = 2_000_000  # files and folders in one source
FILE_BYTES = 1 << 28  # one file, unpacked
TEXT_BYTES = 2 << 20  # one csv file, unpacked
SPLIT_BYTES = 1 << 18  # one list of splits, unpacked: YAML is slow to read
PIXELS = 1 << 27  # one picture; 12,000 x 9,000 are 108 million
LARGE_PIXELS = 1 << 25  # above: one picture at a time, and a JPEG is made smaller while it is decoded

DOWNLOAD_BYTES = 1 << 30  # the largest, mini-ImageNet, has a quarter of that
CONNECTIONS = 100  # for one download
SILENCE = 30  # seconds without a byte, after which a connection counts as broken
PACE = 4096  # bytes a second, below which a download is given up,
PACE_SECONDS = 60  # measured over so long
