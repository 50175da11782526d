"""`sib predict`: class folders in, labels out; odd files are named; nothing is left half-written."""

from __future__ import annotations

import csv
import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sibcore.apply import cli, predict
from sibcore.apply.table import COLUMNS

NETWORK = "conv4-64"  # takes 32 pixels: fast


def picture(way: int, rng: np.random.Generator, size: int = 40) -> Image.Image:
    """Stripes, whose colour and direction say the class, with noise."""
    y, x = np.mgrid[:size, :size]
    angle, hue = way % 4 * np.pi / 4, way // 4
    wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) * 0.8 + rng.uniform(0, 6))
    colour = np.array([(255, 40, 40), (40, 255, 40), (40, 40, 255), (230, 230, 30), (30, 230, 230)][hue % 5])
    noisy = 128 + (colour - 128) * (0.6 + 0.4 * wave[..., None]) + rng.normal(0, 25, (size, size, 3))
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def folders_of(top: Path, shots: list[int], queries: int, seed: int = 0) -> tuple[Path, Path]:
    """Class folders of labelled pictures, and class folders of others."""
    rng = np.random.default_rng(seed)
    for part, counts in {"support": shots, "query": [queries] * len(shots)}.items():
        for way, count in enumerate(counts):
            folder = top / part / f"class-{way:02}"
            folder.mkdir(parents=True)
            for number in range(count):
                picture(way, rng).save(folder / f"{number}.{'png' if number % 2 else 'jpg'}")
    return top / "support", top / "query"


def command(*arguments: object) -> int:
    return cli.main(["predict", "--network", NETWORK, *map(str, arguments)])


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.thorough
@pytest.mark.parametrize("shots", [[2, 2], [1, 4, 2, 6, 3], [3] * 20], ids=["2 ways", "5 unequal", "20 ways"])
def test_the_command_labels_pictures_of_any_number_of_classes(tmp_path, capsys, shots):
    support, query = folders_of(tmp_path, shots, 6)
    out = tmp_path / "new" / "labels.csv"
    assert command("--support", support, "--query", query, "--out", out) == 0
    rows, captured = rows_of(out), capsys.readouterr()
    assert tuple(rows[0]) == COLUMNS == ("file", "label", "probability", "label_before", "probability_before")
    assert len(rows) == 6 * len(shots)
    right = [row["label"] == row["file"].split("/")[0] for row in rows]
    before = [row["label_before"] == row["file"].split("/")[0] for row in rows]
    assert np.mean(before) > 0.9
    told = "Adaptation left no picture in class-" in captured.err
    assert told or np.mean(right) > 0.9  # stripes of like colours may be taken for one class
    for name in ("probability", "probability_before"):
        assert all(1 / len(shots) - 1e-4 <= float(row[name]) <= 1 for row in rows)
    assert f"{100 * np.mean(right):.1f} % after ({len(rows)} pictures in class folders)" in captured.out
    assert out.with_suffix(".html").is_file()
    assert not [*tmp_path.rglob("*.tmp")]


def test_the_command_answers_as_the_classifier_does(tmp_path):
    from sibcore import SIBClassifier, zoo
    from sibcore.vision.features import encode

    support, query = folders_of(tmp_path, [1, 3, 2], 5)
    found = predict.predict(support, query, NETWORK)
    network = zoo.load_pretrained(NETWORK)

    def features(top: Path) -> tuple[np.ndarray, list[str]]:
        paths = sorted(top.rglob("*.*"))
        images = [np.asarray(Image.open(path).resize((32, 32), Image.Resampling.BICUBIC)) for path in paths]
        return encode(network, np.stack(images)).numpy(), [path.parent.name for path in paths]

    classifier = SIBClassifier().fit(*features(support))
    np.testing.assert_allclose(found.answers.after, classifier.predict_proba(features(query)[0]), atol=1e-5)


def odd_files(folder: Path) -> None:
    rng = np.random.default_rng(5)
    plain = picture(0, rng, 64)
    picture(0, rng, 200).convert("CMYK").save(folder / "cmyk.jpg")
    deep = np.asarray(plain.convert("L")).astype(np.uint16) * 257
    Image.fromarray(deep).save(folder / "grey16.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    plain.save(folder / "turned.jpg", exif=exif)
    palette = plain.convert("P")
    palette.save(folder / "palette.png", transparency=0)
    plain.save(folder / "tiff.tif")
    plain.save(folder / "moving.gif", save_all=True, append_images=[plain.rotate(90)])
    plain.save(folder / "names say nothing.txt", format="PNG")
    Image.new("RGB", (1, 1)).save(folder / "one.png")
    whole = io.BytesIO()
    plain.save(whole, "JPEG")
    (folder / "truncated.jpg").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    (folder / "notes.txt").write_text("not a picture")
    (folder / "empty.png").write_bytes(b"")
    (folder / "bomb.png").write_bytes(_bomb(100_000))
    (folder / ".hidden").write_text("not looked at")


def _bomb(side: int) -> bytes:
    """A PNG that claims side x side pixels in a few bytes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def test_odd_pictures_are_labelled_and_broken_ones_told_by_name(tmp_path, capsys):
    support, query = folders_of(tmp_path, [3, 3], 3)
    odd_files(query / "class-00")
    assert command("--support", support, "--query", query, "--out", tmp_path / "out.csv") == 0
    labelled = {Path(row["file"]).name for row in rows_of(tmp_path / "out.csv")}
    good = {"cmyk.jpg", "grey16.png", "turned.jpg", "palette.png", "tiff.tif", "moving.gif", "names say nothing.txt"}
    broken = {"one.png", "truncated.jpg", "notes.txt", "empty.png", "bomb.png"}
    assert labelled == good | {"0.jpg", "1.png", "2.jpg"}
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("left out: ")]
    assert len(told) == len(broken)
    assert all(any(name in line for line in told) for name in broken)


@pytest.mark.thorough
def test_a_very_large_picture_is_read(tmp_path):
    Image.new("RGB", (12_000, 9_000), "red").save(tmp_path / "large.jpg")
    found = predict.read_picture(predict.Source(tmp_path), "large.jpg", 32)
    assert found.shape == (32, 32, 3)
    assert (np.abs(found.astype(int) - (254, 0, 0)) <= 2).all()


@pytest.mark.parametrize(
    ("ways", "model", "told"), [(2, "any-way", True), (5, "any-way", False), (5, "5way-1shot-conv4-64", True)]
)
def test_few_and_lopsided_queries_are_warned_of(tmp_path, capsys, ways, model, told):
    support, query = folders_of(tmp_path, [2] * ways, 0)
    rng = np.random.default_rng(3)
    picture(0, rng).save(query / "only.png")
    call = ("--support", support, "--query", query, "--model", model, "--out")
    assert command(*call, tmp_path / "one.csv") == 0
    assert f"only 1 picture to label for {ways} classes" in capsys.readouterr().err
    (row,) = rows_of(tmp_path / "one.csv")
    assert row["label"] == row["label_before"]
    for number in range(30):
        picture(0, rng).save(query / f"{number}.png")
    assert command(*call, tmp_path / "many.csv") == 0
    said = capsys.readouterr().err
    assert ("do not seem to be equally frequent: 100 % of the pictures look like class-00." in said) == told
    assert "pictures to label for" not in said
    assert command(*call, tmp_path / "none.csv", "--steps", 0) == 0
    captured = capsys.readouterr()
    assert "warning" not in captured.err  # there is no adaptation that could hurt
    assert "Adaptation is off (K = 0)" in captured.out


def test_uneven_queries_are_warned_of_where_five_labelled_pictures_do_better_alone(tmp_path, capsys):
    support, query = folders_of(tmp_path, [5, 5, 5], 0)
    rng = np.random.default_rng(3)
    for number in range(20):
        picture(0, rng).save(query / f"{number}.png")
    assert command("--support", support, "--query", query, "--out", tmp_path / "out.csv") == 0
    assert "With so many labelled pictures per class" in capsys.readouterr().err


def test_folders_without_a_class_are_warned_of(tmp_path, capsys):
    support, query = folders_of(tmp_path, [2, 2], 4)
    (query / "class-01").rename(query / "kites")
    assert command("--support", support, "--query", query, "--out", tmp_path / "out.csv") == 0
    captured = capsys.readouterr()
    assert "in folders that are not classes: kites." in captured.err
    assert "(4 pictures in class folders)" in captured.out


def test_the_page_can_be_left_out_and_does_not_replace_the_table(tmp_path, capsys):
    support, query = folders_of(tmp_path, [2, 2], 2)
    assert command("--support", support, "--query", query, "--out", tmp_path / "a.csv", "--no-page") == 0
    assert not (tmp_path / "a.html").exists()
    assert command("--support", support, "--query", query, "--out", tmp_path / "b.html") == 2
    assert "expected the name of the CSV, such as labels.csv" in capsys.readouterr().err
    assert not (tmp_path / "b.html").exists()


@pytest.mark.parametrize("broken", ["no support", "one class", "no class folders", "no query", "out is a folder"])
def test_what_cannot_be_done_is_an_error_that_leaves_nothing(tmp_path, capsys, broken):
    support, query = folders_of(tmp_path, [2, 2] if broken != "one class" else [2], 2)
    out, said = tmp_path / "out.csv", {
        "no support": "does not exist: expected a folder of pictures",
        "one class": "only one class folder, class-00: expected at least two",
        "no class folders": "no readable picture: expected pictures in class folders",
        "no query": "no readable picture: expected pictures, such as 1.jpg; left out: notes.txt",
        "out is a folder": "is a folder: expected the name of a file",
    }[broken]  # fmt: skip
    if broken == "no support":
        support = tmp_path / "nothing"
    elif broken == "no class folders":
        support = support / "class-00"
    elif broken == "no query":
        query = tmp_path / "bare"
        query.mkdir()
        (query / "notes.txt").write_text("none")
    elif broken == "out is a folder":
        out.mkdir()
    before = set(tmp_path.rglob("*"))
    assert command("--support", support, "--query", query, "--out", out) == 2
    error = capsys.readouterr().err
    assert "error: " in error
    assert said in error
    assert set(tmp_path.rglob("*")) == before


def test_version_defaults_and_models_are_shown(capsys):
    import sibcore
    from sibcore import zoo

    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out.strip() == f"sibcore {sibcore.__version__}"
    with pytest.raises(SystemExit, match="0"):
        cli.main(["predict", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "(default: predictions.csv)" in text
    assert "(default: efficientnet-lite0)" in text
    assert "(default: None)" not in text
    assert "(default: True)" not in text
    assert cli.main(["models"]) == 0
    assert capsys.readouterr().out.strip() == zoo.table()


@pytest.mark.thorough
def test_the_default_network_with_the_default_sib(tmp_path, capsys):
    pytest.importorskip("efficientnet_lite_pytorch")
    support, query = folders_of(tmp_path, [1, 2], 4)
    found = predict.predict(support, query)
    assert found.model == "any-way"
    assert found.accuracy() == (pytest.approx(100), pytest.approx(100), 8)
