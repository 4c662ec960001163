"""Checkpoints: whole or not there, few, and a broken one never ends a run."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.checkpoints import State, Writer, decode, encode, load_newest
from trainer.errors import StorageFailed
from trainer.schedule import Position


def state(step: int) -> State:
    values: list[Any] = [np.arange(6, dtype=np.float32).reshape(2, 3) + step, np.array(step, np.int64)]
    return State(step, Position(1, 32), values, [1.5, 2.0, 3.0], [{"loss": 0.5}], {"model": "digits"})


def test_round_trip_keeps_every_bit() -> None:
    back = decode(encode(state(9)))
    assert (back.step, back.position, back.sums, back.history) == (9, Position(1, 32), [1.5, 2.0, 3.0], [{"loss": 0.5}])
    assert [value.dtype for value in back.values] == [np.float32, np.int64]
    assert all(np.array_equal(a, b) for a, b in zip(back.values, state(9).values, strict=True))


def test_more_than_ten_variables_stay_in_order() -> None:
    many = State(1, Position(), [np.array(index) for index in range(120)])
    assert [int(value) for value in decode(encode(many)).values] == list(range(120))


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path), keep=2)
    for step in (1, 2, 3, 10):
        writer.write(state(step), wait=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint-000000000003.npz",
        "checkpoint-000000000010.npz",
    ]
    newest = load_newest(str(tmp_path))
    assert newest is not None and newest.step == 10


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "noise"])
def test_a_corrupt_newest_falls_back_to_the_one_before(tmp_path: Path, damage: str) -> None:
    writer = Writer(str(tmp_path), keep=3)
    for step in (1, 2):
        writer.write(state(step), wait=True)
    path = tmp_path / "checkpoint-000000000002.npz"
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[content.index(b"v00000.npy") + 150] ^= 0xFF  # a bit of a variable: only its CRC can tell
    broken = {"truncated": bytes(content[:-40]), "flipped": bytes(content), "empty": b"", "noise": b"x" * 900}
    path.write_bytes(broken[damage])
    said: list[str] = []
    newest = load_newest(str(tmp_path), said.append)
    assert newest is not None and newest.step == 1
    assert "checkpoint-000000000002.npz is unusable" in said[0]


def test_no_directory_is_no_checkpoint(tmp_path: Path) -> None:
    assert load_newest(str(tmp_path / "absent")) is None


def test_a_full_disk_is_said_and_ends_the_run_only_when_it_stays_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    said: list[str] = []
    writer = Writer(str(tmp_path), keep=2, report=said.append, tolerance=2)
    monkeypatch.setattr(os, "fsync", full)
    writer.write(state(1), wait=True)
    writer.write(state(2), wait=True)
    assert "the disk is full" in said[0] and len(said) == 2
    assert list(tmp_path.iterdir()) == [], "no part of a file stays behind"
    with pytest.raises(StorageFailed, match="the disk is full"):
        writer.write(state(3), wait=True)


def test_any_flipped_bit_is_noticed_and_no_other_error_comes_of_it() -> None:
    """The CRCs are over the arrays; zipfile's own headers have none, and what it says of them is anything."""
    content = encode(state(9))
    for place in range(len(content)):
        for bit in (1, 128):
            damaged = bytearray(content)
            damaged[place] ^= bit
            try:
                back = decode(bytes(damaged))
            except ValueError:
                continue
            assert back.step == 9, place
            assert all(np.array_equal(a, b) for a, b in zip(back.values, state(9).values, strict=True)), place
