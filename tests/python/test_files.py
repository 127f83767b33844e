# SPDX-License-Identifier: Apache-2.0
"""Small files: whole or not at all, however many write them at once."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from pyrdnaar.files import MAX_BYTES, read_json, write_json


def _write(path: Path, number: int) -> None:
    for turn in range(50):
        write_json(path, {"number": number, "turn": turn, "filler": [number] * 1000})


def test_eight_writers_leave_a_valid_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.json"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(path, n)) for n in range(8)]
    for writer in writers:
        writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        if path.exists():
            data = read_json(path)
            assert data["filler"] == [data["number"]] * 1000
            seen += 1
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    assert seen > 0
    assert os.listdir(path.parent) == ["file.json"], "no temporary file is left"
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_not_an_object_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(FileNotFoundError):
        read_json(path)
    for raw in (b"", b"[1]", b"1", b"{", b"\xff\xfe", b"[" * 100000, b" " * (MAX_BYTES + 1)):
        path.write_bytes(raw)
        with pytest.raises(ValueError, match="file"):
            read_json(path)


def test_what_is_not_a_file_is_refused(tmp_path: Path, descriptors: None) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (pipe, tmp_path):  # and nobody waits for a writer
        with pytest.raises(ValueError, match="is not a file"):
            read_json(place)
    writer = os.open(pipe, os.O_RDWR)
    with pytest.raises(ValueError, match="is not a file"):
        read_json(pipe)  # nor for what it will write
    os.close(writer)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_json(path, {"old": 1})
    with pytest.raises(TypeError):
        write_json(path, {"new": object()})
    assert read_json(path) == {"old": 1}
    assert os.listdir(tmp_path) == ["file"]
