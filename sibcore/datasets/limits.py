"""Limits on what is read from other people's files and servers.

They are higher than any image set here needs, and low enough that a broken or hostile source does no harm.
"""

from __future__ import annotations

FILES = 2_000_000  # files and folders in one source
FILE_BYTES = 1 << 28  # one file, unpacked
TEXT_BYTES = 2 << 20  # one csv file, unpacked
SPLIT_BYTES = 1 << 18  # one list of splits, unpacked: YAML is slow to read
PIXELS = 1 << 27  # one picture; 12,000 x 9,000 are 108 million
LARGE_PIXELS = 1 << 25  # larger pictures are decoded one at a time, a JPEG of that size at a smaller scale

DOWNLOAD_BYTES = 1 << 30  # one download; the largest image set, mini-ImageNet, has a quarter of that
CONNECTIONS = 100  # tries for one download
SILENCE = 30  # seconds without a byte after which a connection counts as broken
PACE = 4096  # bytes per second below which a download is given up, ...
PACE_SECONDS = 60  # ... on average over this time
