from __future__ import annotations

import resource
import sys

import pytest

from harness.mutate.cache import KEEP, Cache, fingerprint, folder, key


def same(value):
    return value


@pytest.fixture
def said():
    return []


def test_what_is_put_is_there_at_once_for_the_next_process(tmp_path, said):
    one = Cache("f" * 64, said.append, where=tmp_path)
    one.put("k", {"verdict": "killed"})
    two = Cache("f" * 64, said.append, where=tmp_path)  # the first was never closed: as after kill -9
    assert two.get("k", same) == {"verdict": "killed"}
    assert two.get("other", same) is None
    one.close()
    two.close()
    assert said == []


@pytest.mark.parametrize(
    "broken",
    [
        lambda data: data[:-9] + b"\n",
        lambda data: data.replace(b"killed", b"lulled"),
        lambda data: data + b"\x00\xff garbage\n",
        lambda data: b"",
        lambda data: b"zzzzzzzz {}\n" + data,
    ],
    ids=["cut", "changed", "garbage", "empty", "no-checksum"],
)
def test_a_corrupt_file_is_one_line_and_a_new_start(tmp_path, said, broken):
    one = Cache("f" * 64, said.append, where=tmp_path)
    one.put("k", "killed")
    one.close()
    data = broken(one.path.read_bytes())
    one.path.write_bytes(data)
    two = Cache("f" * 64, said.append, where=tmp_path)
    assert two.get("k", same) is None
    assert said == ([f"the cache {one.path} is corrupt: rebuilt"] if data else [])
    two.put("k", "survived")
    two.close()
    assert Cache("f" * 64, said.append, where=tmp_path).get("k", same) == "survived"


def test_an_entry_that_its_reader_cannot_read_is_one_line_and_a_new_start(tmp_path, said):
    one = Cache("f" * 64, said.append, where=tmp_path)
    one.put("forged", {"other": 1})
    one.put("good", {"by": 2})
    assert one.get("forged", lambda value: value["by"]) is None
    assert said == [f"the cache {one.path} is corrupt: rebuilt"]
    assert one.get("good", same) is None
    one.put("k", "killed")
    assert Cache("f" * 64, said.append, where=tmp_path).get("k", same) == "killed"


def test_a_write_that_fails_is_one_line_and_leaves_what_is_whole(tmp_path, said):
    one = Cache("f" * 64, said.append, where=tmp_path)
    one.put("k", "killed")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (one.path.stat().st_size + 10, hard))
    try:
        one.put("l", "x" * 100)
        one.put("m", "x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert one.get("l", same) == "x" * 100
    assert said == [f"the cache {one.path} takes no more (File too large): what follows is not kept"]
    two = Cache("f" * 64, said.append, where=tmp_path)
    assert (two.get("k", same), two.get("l", same), len(said)) == ("killed", None, 1)


def test_another_fingerprint_knows_nothing(tmp_path, said):
    one = Cache("a" * 64, said.append, where=tmp_path)
    one.put("k", 1)
    one.close()
    assert Cache("b" * 64, said.append, where=tmp_path).get("k", same) is None


def test_old_files_go(tmp_path, said):
    for i in range(KEEP + 5):
        Cache(f"{i:032d}" * 2, said.append, where=tmp_path).close()
    assert len(list(tmp_path.iterdir())) == KEEP


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path, said):
    (tmp_path / "file").write_text("")
    cache = Cache("f" * 64, said.append, where=tmp_path / "file" / "below")
    cache.put("k", 1)
    assert cache.get("k", same) == 1


def test_disabled_remembers_nothing_on_disk(tmp_path, said):
    cache = Cache("f" * 64, said.append, enabled=False, where=tmp_path)
    cache.put("k", 1)
    assert list(tmp_path.iterdir()) == []


def test_the_fingerprint_follows_content_not_time(tmp_path):
    file = tmp_path / "test_x.py"
    file.write_text("a = 1\n")
    first = fingerprint([str(file)], ["no_such_root"], ["check"])
    file.touch()
    assert fingerprint([str(file)], ["no_such_root"], ["check"]) == first
    assert fingerprint([str(file)], ["no_such_root"], ["another check"]) != first
    file.write_text("a = 2\n")
    assert fingerprint([str(file)], ["no_such_root"], ["check"]) != first


def test_the_fingerprint_has_every_module_of_the_named_packages(monkeypatch):
    import json.decoder

    assert fingerprint([], ["json"], []) != fingerprint([], ["no_such_root"], [])
    assert json.decoder.__name__ in sys.modules


def test_the_folder_is_the_users_cache_unless_named(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("REFITCHECK_CACHE", raising=False)
    assert folder() == tmp_path / "refitcheck" / "mutate"
    monkeypatch.setenv("REFITCHECK_CACHE", str(tmp_path / "own"))
    assert folder() == tmp_path / "own" / "mutate"


def test_keys_tell_their_parts_apart():
    assert key("a", "b") != key("ab") != key("b", "a")
