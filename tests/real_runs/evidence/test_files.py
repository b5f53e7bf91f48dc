"""Bundles that are hostile: sizes, names, kinds of files, broken compression."""

import io
import lzma
import tarfile

import pytest

from real_runs.evidence import files as module
from real_runs.evidence.files import BadBundle, bundle_id, read_files, write_archive

FILES = {"a.json": b"{}", "logs/1.log": b"x" * 1000, "SHA256SUMS": b"sums"}


def member(name="a.json", kind=tarfile.REGTYPE, size=0, **fields):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def archive(path, *members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for info in members:
            tar.addfile(info, io.BytesIO(b"\0" * info.size))
    path.write_bytes(lzma.compress(out.getvalue()))
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "b.tar.xz"


def test_what_was_written_is_read_and_its_bytes_depend_on_the_files_alone(path, tmp_path):
    write_archive(FILES, path)
    write_archive(dict(reversed(FILES.items())), tmp_path / "other")

    assert read_files(path) == FILES
    assert path.read_bytes() == (tmp_path / "other").read_bytes()
    assert bundle_id(FILES) == bundle_id(read_files(path))


def test_a_folder_is_read_as_its_archive(tmp_path):
    for name, data in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)

    assert read_files(tmp_path) == FILES


@pytest.mark.parametrize(
    "name",
    ["../a", "/etc/passwd", "a/../b", "a/b/c", ".hidden", "logs/.x", "a\nb", "a b", "", "ä", "a" * 300, "./a", "-rf"],
)
def test_a_name_that_is_none_of_a_bundle_is_refused(path, name):
    with pytest.raises(BadBundle):
        read_files(archive(path, member(name)))


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE],
)
def test_what_is_no_plain_file_is_refused(path, kind):
    with pytest.raises(BadBundle, match="no plain file"):
        read_files(archive(path, member(kind=kind, linkname="/etc/passwd")))


def test_a_name_twice_is_refused(path):
    with pytest.raises(BadBundle, match="twice"):
        read_files(archive(path, member(), member()))


@pytest.mark.parametrize(("limit", "value"), [("MAX_FILE", 99), ("MAX_TOTAL", 199), ("MAX_FILES", 2)])
def test_sizes_are_bounded(path, monkeypatch, limit, value):
    archive(path, *(member(name, size=100) for name in "abc"))
    assert len(read_files(path)) == 3
    monkeypatch.setattr(module, limit, value)
    with pytest.raises(BadBundle, match="more than"):
        read_files(path)


def test_a_bomb_is_not_unpacked(path, monkeypatch):
    path.write_bytes(lzma.compress(b"\0" * 10_000_000))
    monkeypatch.setattr(module, "MAX_TOTAL", 1000)
    monkeypatch.setattr(module, "MAX_FILES", 1)
    with pytest.raises(BadBundle):
        read_files(path)


def test_a_decompressor_that_wants_much_memory_is_refused(path):
    greedy = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 1 << 28}]
    write_archive(FILES, path)
    path.write_bytes(lzma.compress(lzma.decompress(path.read_bytes()), filters=greedy))
    with pytest.raises(BadBundle, match=r"(?i)memory"):
        read_files(path)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-5],
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: b"PK\x03\x04" + data,
        lambda data: data + b"tail",
        lambda data: data + data,
        lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:],
        lambda data: lzma.compress(lzma.decompress(data)[:700]),
        lambda data: lzma.compress(b"\xff" * 2048),
    ],
)
def test_an_archive_that_is_not_whole_is_refused(path, spoil):
    write_archive(FILES, path)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(BadBundle):
        read_files(path)


def test_links_in_a_folder_are_refused(tmp_path):
    (tmp_path / "a.json").symlink_to("/etc/hostname")
    with pytest.raises(BadBundle, match="no plain file"):
        read_files(tmp_path)
    (tmp_path / "a.json").unlink()
    (tmp_path / "logs").symlink_to("/etc")
    with pytest.raises(BadBundle, match="no plain file"):
        read_files(tmp_path)


def test_what_is_not_there_is_one_line(tmp_path):
    with pytest.raises(BadBundle, match="No such file"):
        read_files(tmp_path / "none")
