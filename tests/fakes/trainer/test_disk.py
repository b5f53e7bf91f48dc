"""The shared disk: folders appear whole and disappear at once."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.tiny import read_tensors
from fakes.trainer.disk import SharedDisk

A, B = np.arange(4, dtype=np.float32), np.ones((2, 3), dtype=np.float32)


@pytest.fixture
def disk():
    told = []
    made = SharedDisk(lambda name, rank, data: told.append((name, dict(data))))
    made.told = told
    yield made
    made.close()


def test_a_folder_is_not_there_before_it_is_published(disk):
    folder = disk.create("one")
    folder.write([("a", A)])
    assert not folder.path.exists()
    assert disk.folders() == []
    folder.write([("b", B)])
    assert folder.publish() == folder.path
    found = read_tensors(folder.path)
    assert found["a"].tolist() == A.tolist()
    assert found["b"].tolist() == B.tolist()
    assert disk.told == [("folder_published", {"path": str(folder.path), "files": 2})]


def test_removed_once_published_or_not(disk):
    early, late = disk.create("early"), disk.create("late")
    early.write([("a", A)])
    early.remove()
    late.publish()
    late.remove()
    late.remove()
    assert disk.folders() == []
    assert [name for name, _ in disk.told] == ["folder_published", "folder_removed"]


def test_no_name_twice(disk):
    disk.create("one").publish()
    with pytest.raises(ValueError, match="there is a folder one already"):
        disk.create("one")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden"])
def test_names_stay_below_its_own_folder(disk, name):
    with pytest.raises(ValueError, match="is no name of a folder"):
        disk.create(name)


def test_closing_leaves_nothing(disk):
    path = disk.create("one").publish()
    disk.close()
    assert not path.parent.exists()
    assert disk.folders() == []
