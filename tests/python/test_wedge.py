# SPDX-License-Identifier: Apache-2.0
"""The marker of an abort: written for what lies in the machine, found by the next start."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from pyrdnaar import AbortError, Communicator, Config, Disabled, Exchange, run_threads, wedge
from pyrdnaar.cli import main
from pyrdnaar.records import AbortRecord

RECORD = AbortRecord("timeout", "peer_flag", 1, 0, 3, "oneshot", 7, 400, 0, 0)


def test_only_what_lies_in_the_machine_is_written_down(tmp_path: Path) -> None:
    for reason in ("mismatch", "peer_aborted", "peer_dead", "user"):
        path = tmp_path / reason
        assert wedge.write(path, dataclasses.replace(RECORD, reason=reason)) is False
        assert not path.exists()
    for reason in ("timeout", "runtime"):
        path = tmp_path / "deep" / reason
        assert wedge.write(path, dataclasses.replace(RECORD, reason=reason)) is True
        assert path.stat().st_mode & 0o777 == 0o600
        data = wedge.read(path)
        assert data is not None
        assert data["record"] == dataclasses.asdict(dataclasses.replace(RECORD, reason=reason))
        with pytest.raises(wedge.Wedged, match=f"{reason} on rank 0, peer 1, call 7.*wedge clear"):
            wedge.require_none(path)
        assert wedge.clear(path) is True
        assert wedge.clear(path) is False
        wedge.require_none(path)


@pytest.mark.parametrize("damage", [b"", b"[1]", b"{", b"\xff", b"x" * (2 << 20)])
def test_a_damaged_marker_is_a_marker(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "wedge.json"
    path.write_bytes(damage)
    with pytest.raises(wedge.Wedged, match="cannot be read"):
        wedge.require_none(path)


def test_no_place_to_write_does_not_hide_the_abort(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert wedge.write(tmp_path / "file" / "wedge.json", RECORD) is False


def _times_out(exchange: Exchange, path: str) -> None:
    config = Config(timeout_ms=100, warmup_timeout_ms=100, wedge_file=path, prove="never")
    with Communicator(exchange.rank, exchange.world_size, exchange, "host", config=config) as comm:
        if exchange.rank == 0:
            with pytest.raises(AbortError):
                comm.all_reduce(np.ones(4, np.float32))
        exchange.all_gather(b"")


def test_a_timeout_disables_the_next_start_until_cleared(
    tmp_path: Path, runner: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "wedge.json"
    monkeypatch.setenv("RDNAAR_WEDGE_FILE", str(path))
    assert runner.invoke(main, ["wedge", "show"]).exit_code == 0
    run_threads(_times_out, 2, str(path), timeout=30)
    assert json.loads(path.read_text())["record"]["peer"] == 1

    def start(exchange: Exchange) -> tuple[str, int]:
        # One rank has the marker; all are disabled, and are told by which.
        config = Config(wedge_file=str(path)) if exchange.rank == 1 else Config()
        with pytest.raises(Disabled) as caught:
            Communicator(exchange.rank, exchange.world_size, exchange, "host", config=config)
        return str(caught.value), caught.value.rank

    told = run_threads(start, 2, timeout=30)
    assert told[0] == told[1]
    assert told[0][1] == 1
    assert "timeout on rank 0, peer 1" in told[0][0]
    shown = runner.invoke(main, ["wedge", "show", "--json"])
    assert shown.exit_code == 1
    assert json.loads(shown.stdout)["marker"]["record"]["reason"] == "timeout"
    assert runner.invoke(main, ["wedge", "clear"]).stdout == f"removed {path}\n"
    assert runner.invoke(main, ["wedge", "clear"]).stdout == f"no marker at {path}\n"
    assert runner.invoke(main, ["wedge", "show"]).stdout == f"no marker at {path}\n"
