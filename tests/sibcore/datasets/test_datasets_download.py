from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import http.server
import io
import pickle
import sys
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_images import plain, png, write_zip

from sibcore import datasets
from sibcore.datasets import cifar_fs, download, limits, mini_imagenet, pacs
from sibcore.datasets._torchvision import torchvision
from sibrepro.__main__ import main

CONTENT = np.random.default_rng(0).bytes(5000)


@dataclasses.dataclass
class Server:
    """What the server does; `asked` keeps the Range header of each request."""

    content: bytes = CONTENT
    ranges: bool = True
    chunked: bool = False
    status: int = 200
    drip: str = ""  # what comes byte by byte: "body", "header" or "chunk"
    moves: str = ""  # where the page says that it has gone
    cuts: list[int] = dataclasses.field(default_factory=list)  # bytes after which the next connections break
    url: str = ""
    asked: list[str | None] = dataclasses.field(default_factory=list)


DRIPS = {  # what comes at once, what slowly
    "body": (b"Content-Length: 5000\r\n\r\n", bytes(2000)),
    "header": (b"", b"X: " + b"y" * 2000),
    "chunk": (b"Transfer-Encoding: chunked\r\n\r\n", b"1;" + b"y" * 2000),
}


@contextmanager
def serve(**options):
    server = Server(**options)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            wanted = self.headers["Range"]
            server.asked.append(wanted)
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and server.ranges else 0
            if start and start >= len(server.content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(server.content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if server.drip:
                return self.send_slowly(*DRIPS[server.drip])
            self.send_response(206 if start and server.status == 200 else server.status)
            if server.moves:
                self.send_header("Location", server.moves)
            body = server.content[start:]
            length = ("Transfer-Encoding", "chunked") if server.chunked else ("Content-Length", str(len(body)))
            self.send_header(*length)
            self.end_headers()
            cut = server.cuts.pop(0) if server.cuts else None
            sent = body[:cut]
            if server.chunked:
                sent = b"%x\r\n%s\r\n" % (len(sent), sent) + (b"0\r\n\r\n" if cut is None else b"")
            self.wfile.write(sent)
            self.close_connection = True

        def send_slowly(self, at_once: bytes, slowly: bytes) -> None:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" + at_once)
            self.close_connection = True
            with contextlib.suppress(OSError):  # the client has gone
                for byte in slowly:
                    self.wfile.write(bytes([byte]))
                    time.sleep(0.02)

        def log_message(self, *_):
            pass

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{listener.server_port}/file"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


def is_content(path: Path) -> None:
    if path.read_bytes() != CONTENT:
        raise ValueError(f"{path} is not the content")


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


@pytest.mark.parametrize("chunked", [False, True])
def test_a_file_arrives_whole_and_leaves_nothing_else(chunked, tmp_path):
    with serve(chunked=chunked) as server:
        path = download.fetch(server.url, tmp_path / "new" / "a.bin", is_content)
    assert path.read_bytes() == CONTENT
    assert files(path.parent) == ["a.bin"]


def test_after_a_cut_the_rest_is_asked_for_and_no_more(tmp_path):
    with serve(cuts=[1234, 1000]) as server:
        download.fetch(server.url, tmp_path / "a.bin", is_content)
    assert server.asked == [None, "bytes=1234-", "bytes=2234-"]


@pytest.mark.thorough
@given(cuts=st.lists(st.integers(1, 3000), max_size=6), ranges=st.booleans(), chunked=st.booleans())
@settings(max_examples=25)
def test_whatever_the_cuts_the_file_is_right_or_there_is_none(cuts, ranges, chunked, tmp_path_factory):
    path = tmp_path_factory.mktemp("cut") / "a.bin"
    with serve(cuts=list(cuts), ranges=ranges, chunked=chunked) as server:
        try:
            download.fetch(server.url, path, is_content)
        except ConnectionError:
            assert not path.exists()
            assert cuts
            server.cuts = []
            download.fetch(server.url, path, is_content)
    assert path.read_bytes() == CONTENT


def test_a_download_that_was_killed_goes_on_where_it_was(tmp_path):
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:3000])
    with serve() as server:
        download.fetch(server.url, tmp_path / "a.bin", is_content)
    assert server.asked == ["bytes=3000-"]
    assert files(tmp_path) == ["a.bin"]


def test_a_server_without_ranges_makes_it_start_again(tmp_path):
    (tmp_path / "a.bin.part").write_bytes(b"something else")
    with serve(ranges=False, cuts=[2000]) as server:
        download.fetch(server.url, tmp_path / "a.bin", is_content)
    assert server.asked == ["bytes=14-", "bytes=2000-"]


def test_a_part_that_is_already_whole_is_only_checked(tmp_path):
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    with serve() as server:
        download.fetch(server.url, tmp_path / "a.bin", is_content)
    assert server.asked == ["bytes=5000-"]


def test_a_part_that_is_too_long_is_thrown_away(tmp_path):
    (tmp_path / "a.bin.part").write_bytes(CONTENT + b"more")
    with serve() as server:
        download.fetch(server.url, tmp_path / "a.bin", is_content)
    assert server.asked == ["bytes=5004-", None]


@pytest.mark.parametrize("chunked", [False, True])
def test_a_server_that_always_breaks_off_is_an_error_that_says_how_far_it_came(chunked, tmp_path):
    with (
        serve(ranges=False, chunked=chunked, cuts=[2000] * 9) as server,
        pytest.raises(ConnectionError, match=r"broke after.*by other means"),
    ):
        download.fetch(server.url, tmp_path / "a.bin", is_content)
    assert len(server.asked) == 2
    assert files(tmp_path) == ["a.bin.part"]


def test_a_page_that_is_not_there_is_an_error_that_says_what_to_do(tmp_path):
    with serve(status=404) as server, pytest.raises(ConnectionError, match=r"404.*by other means, save it as .*a\.bin"):
        download.fetch(server.url, tmp_path / "a.bin", is_content)
    assert len(server.asked) == 1
    assert files(tmp_path) == []


def test_no_server_is_an_error_that_names_the_address(tmp_path):
    with serve() as server:
        pass
    with pytest.raises(ConnectionError, match=server.url):
        download.fetch(server.url, tmp_path / "a.bin", is_content)


def test_wrong_content_is_an_error_and_is_deleted(tmp_path):
    with serve(content=b"x" * 5000) as server, pytest.raises(ValueError, match="did not give the published file"):
        download.fetch(server.url, tmp_path / "a.bin", is_content)
    assert files(tmp_path) == []


def test_a_file_that_is_there_is_checked_but_neither_fetched_nor_deleted(tmp_path):
    (tmp_path / "a.bin").write_bytes(CONTENT)
    (tmp_path / "b.bin").write_bytes(b"mine")
    with serve() as server:
        download.fetch(server.url, tmp_path / "a.bin", is_content)
        with pytest.raises(ValueError, match="move it away"):
            download.fetch(server.url, tmp_path / "b.bin", is_content)
    assert server.asked == []
    assert (tmp_path / "b.bin").read_bytes() == b"mine"


def test_two_at_once_fetch_it_once(tmp_path):
    with serve() as server, ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(download.fetch, server.url, tmp_path / "a.bin", is_content) for _ in range(4)]
        assert {task.result() for task in tasks} == {tmp_path / "a.bin"}
    assert len(server.asked) == 1


@pytest.mark.parametrize("what", sorted(DRIPS))
def test_a_server_that_sends_a_byte_now_and_then_is_given_up(what, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "PACE_SECONDS", 0.3)
    start = time.monotonic()
    with serve(drip=what) as server, pytest.raises(ConnectionError, match=r"only \d+ bytes came in 0 seconds"):
        download.fetch(server.url, tmp_path / "a.bin", is_content)
    assert time.monotonic() - start < 5  # all would take 40 seconds
    assert len(server.asked) == 1


@pytest.mark.thorough
def test_a_download_may_take_long_at_a_fair_pace(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "PACE_SECONDS", 0.1)
    monkeypatch.setattr(limits, "PACE", 10)
    monkeypatch.setitem(DRIPS, "body", (b"Content-Length: 40\r\n\r\n", bytes(40)))
    with serve(drip="body") as server:
        path = download.fetch(server.url, tmp_path / "a.bin", lambda _: None)
    assert path.read_bytes() == bytes(40)


@pytest.mark.parametrize("moves", ["/file", "/elsewhere", "file:///etc/hostname"])
def test_a_page_that_moves_in_circles_or_to_a_file_is_an_error_on_one_line(moves, tmp_path):
    with serve(status=302, moves=moves) as server, pytest.raises(ConnectionError, match="could not fetch") as error:
        download.fetch(server.url, tmp_path / "a.bin", is_content)
    assert "\n" not in str(error.value)
    assert len(server.asked) < 20
    assert files(tmp_path) == []


@pytest.mark.parametrize("chunked", [False, True])
def test_more_than_any_data_set_has_is_not_downloaded(chunked, tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "DOWNLOAD_BYTES", 4999)
    with serve(chunked=chunked) as server, pytest.raises(ValueError, match="more than 4999 bytes"):
        download.fetch(server.url, tmp_path / "a.bin", is_content)
    assert files(tmp_path) == []


def test_a_server_that_breaks_off_after_every_byte_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "CONNECTIONS", 10)
    with serve(cuts=[1] * 99) as server, pytest.raises(ConnectionError, match="broke after 10 bytes"):
        download.fetch(server.url, tmp_path / "a.bin", is_content)
    assert len(server.asked) == 10


def test_md5_tells_a_changed_file(tmp_path):
    (tmp_path / "a").write_bytes(CONTENT)
    download.check_md5(tmp_path / "a", hashlib.md5(CONTENT).hexdigest())
    (tmp_path / "a").write_bytes(CONTENT[:-1])
    with pytest.raises(ValueError, match="md5"):
        download.check_md5(tmp_path / "a", hashlib.md5(CONTENT).hexdigest())


def tiny_pacs_archive(path: Path) -> tuple[bytes, str]:
    """An archive as GitHub packs it, and the hash of the listing of its pictures."""
    places = sorted(f"PACS/{domain}/{label}/1.png" for domain in pacs.DOMAINS for label in pacs.CLASSES)
    pictures = {place: png(plain(number)) for number, place in enumerate(places)}
    write_zip(path, {"Homework3-PACS-123/README.md": b""} | {f"Homework3-PACS-123/{p}": c for p, c in pictures.items()})
    lines = [f"{hashlib.sha256(content).hexdigest()}  {place}\n" for place, content in pictures.items()]
    return path.read_bytes(), hashlib.sha256("".join(lines).encode()).hexdigest()


@pytest.mark.parametrize("damage", [False, True])
def test_pacs_is_fetched_checked_and_found_again(damage, tmp_path, monkeypatch, capsys):
    content, listing = tiny_pacs_archive(tmp_path / "server.zip")
    monkeypatch.setattr(pacs, "COUNTS", dict.fromkeys(pacs.DOMAINS, (1,) * 7))
    monkeypatch.setattr(pacs, "LISTING", listing if not damage else listing[::-1])
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SIB_DATA", raising=False)
    with serve(content=content, chunked=True, ranges=False, cuts=[999]) as server:
        monkeypatch.setattr(pacs, "URL", server.url)
        code = main(["data", "get", "pacs"])
    if damage:
        assert code == 2
        assert "did not give the published file" in capsys.readouterr().err
        assert files(tmp_path / "cache") == []
    else:
        assert code == 0
        assert str(tmp_path / "cache" / "pacs.zip") in capsys.readouterr().out
        assert datasets.load("pacs", size=8).images.shape == (28, 8, 8, 3)


def tiny_mini_imagenet_archive(path: Path) -> tuple[bytes, str]:
    """An archive as GitHub packs it, with a picture of each class in train and in val, and the hash of its listing."""
    names = [f"{label}/{label}{n}.png" for label in mini_imagenet.CLASSES for n in range(2)]
    pictures = {name: png(plain(number)) for number, name in enumerate(names)}
    write_zip(path, {f"repo-123/{'train' if n[-5] == '0' else 'val'}/{n}": c for n, c in pictures.items()})
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in pictures.items()]
    return path.read_bytes(), hashlib.sha256("".join(lines).encode()).hexdigest()


@pytest.mark.parametrize("fault", ["", "other pictures", "too few", "cut short"])
@pytest.mark.filterwarnings("ignore:.*not the known pixels")
def test_mini_imagenet_is_fetched_checked_and_found_again(fault, tmp_path, monkeypatch, capsys):
    content, listing = tiny_mini_imagenet_archive(tmp_path / "server.zip")
    monkeypatch.setattr(mini_imagenet, "IMAGES_PER_CLASS", 2 if fault != "too few" else 3)
    monkeypatch.setattr(mini_imagenet, "LISTING", listing if fault != "other pictures" else listing[::-1])
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SIB_DATA", raising=False)
    with serve(content=content if fault != "cut short" else content[:-500], cuts=[999]) as server:
        monkeypatch.setattr(mini_imagenet, "URL", server.url)
        code = main(["data", "get", "mini-imagenet", "--accept-terms"])
    assert server.asked == [None, "bytes=999-"]
    if fault:
        assert code == 2
        assert "did not give the published file" in capsys.readouterr().err
        assert files(tmp_path / "cache") == []
    else:
        assert code == 0
        assert str(tmp_path / "cache" / "mini-imagenet.zip") in capsys.readouterr().out
        assert datasets.load("mini-imagenet").images.shape == (200, 84, 84, 3)


def test_mini_imagenet_is_fetched_only_for_those_who_accept_the_terms(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    with serve() as server:
        monkeypatch.setattr(mini_imagenet, "URL", server.url)
        assert main(["data", "get", "mini-imagenet"]) == 2
    assert server.asked == []
    text = capsys.readouterr().err
    for word in (
        "non-commercial research and education",
        "https://image-net.org/download",
        "--accept-terms",
        "SIB_DATA",
    ):
        assert word in text


def test_the_archive_of_mini_imagenet_is_that_of_one_commit():
    assert mini_imagenet.URL.endswith("/557ebcae0db23651f9370f54a5f31b1f0fd4064d.zip")


def tiny_cifar100_archive(monkeypatch) -> bytes:
    """CIFAR-100 as torchvision expects it, with two training images and one test image a class."""
    cifar100 = torchvision.datasets.CIFAR100
    contents = {"meta": {"fine_label_names": list(cifar_fs.CLASSES)}}
    for name, images, start in (("train", 200, 0), ("test", 100, 200)):
        pixels = np.stack([plain(start + number, 32, 32) for number in range(images)])
        flat = pixels.transpose(0, 3, 1, 2).reshape(images, -1)
        contents[name] = {"data": flat, "fine_labels": [number % 100 for number in range(images)]}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, value in contents.items():
            content = pickle.dumps(value)
            member = tarfile.TarInfo(f"{cifar100.base_folder}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
            md5 = hashlib.md5(content).hexdigest()
            if name == "meta":
                monkeypatch.setattr(cifar100, "meta", cifar100.meta | {"md5": md5})
            else:
                monkeypatch.setattr(cifar100, f"{name}_list", [[name, md5]])
    monkeypatch.setattr(cifar100, "tgz_md5", hashlib.md5(archive.getvalue()).hexdigest())
    monkeypatch.setattr(cifar_fs, "IMAGES_PER_CLASS", 3)
    return archive.getvalue()


def test_cifar_fs_is_fetched_through_torchvision_and_found_again(tmp_path, monkeypatch):
    content = tiny_cifar100_archive(monkeypatch)
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SIB_DATA", str(tmp_path / "data"))
    with serve(content=content, cuts=[500]) as server:
        monkeypatch.setattr(torchvision.datasets.CIFAR100, "url", server.url)
        where = download.get("cifar-fs", to=tmp_path / "data")
        assert server.asked == [None, "bytes=500-"]
        assert download.get("cifar-fs", to=tmp_path / "data") == where == tmp_path / "data" / "cifar-100-python"
        assert len(server.asked) == 2
    data = datasets.load("cifar-fs")
    assert np.array_equal(np.bincount(data.labels), [3] * 100)
    (row,) = np.flatnonzero((data.images == plain(42, 32, 32)).all((1, 2, 3)))
    assert data.labels[row] == 42


def test_what_cannot_be_downloaded_says_how_to_get_it(capsys):
    for name, message in {
        "mini-imagenet": "image-net.org",
        "folder": "splits.yaml",
        "omniglot": "cifar-fs, folder, mini-imagenet, pacs",
    }.items():
        assert main(["data", "get", name]) == 2
        assert message in capsys.readouterr().err


def test_the_list_says_what_was_found_and_how_to_get_the_rest(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SIB_DATA", str(tmp_path))
    monkeypatch.setenv("SIB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "pacs.zip").touch()
    assert main(["data", "list"]) == 0
    text = capsys.readouterr().out
    assert all(f"{name}\n" in text for name in datasets.MODULES)
    assert f"found: {tmp_path / 'pacs.zip'}" in text
    assert "sib data get cifar-fs" in text


def test_a_folder_that_cannot_be_written_is_an_error_without_a_traceback(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["data", "get", "pacs", "--to", str(tmp_path / "file")]) == 2
    assert "pacs" in capsys.readouterr().err


def test_a_module_that_does_not_say_how_to_get_its_images_is_listed_all_the_same(monkeypatch):
    bare = ModuleType("sibcore.datasets.blobs", "Coloured blobs.")
    monkeypatch.setitem(sys.modules, bare.__name__, bare)
    monkeypatch.setattr(datasets, "MODULES", (*datasets.MODULES, "blobs"))
    monkeypatch.setattr(download, "MODULES", datasets.MODULES)
    assert "blobs\n    Coloured blobs.\n    its module does not say how to get it (HELP)" in download.overview()
    with pytest.raises(ValueError, match="there is nothing to download for blobs"):
        download.get("blobs")
