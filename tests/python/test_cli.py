# SPDX-License-Identifier: Apache-2.0
"""The command line: output, JSON, exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import pyrdnaar
from pyrdnaar.cli import main

COMMANDS = ("ab", "bench", "demo", "env", "info", "probe", "qualify", "selftest", "wedge")
SMALL = ("-b", "1K", "-e", "4K", "-w", "1", "-i", "3")

ENV_GOLDEN = """\
variable                   field                     value  from
RDNAAR_ENABLE              enable                     True  default
RDNAAR_STRICT              strict                    False  default
RDNAAR_LIBRARY             library                       -  default
RDNAAR_HIP_RUNTIME         hip_runtime                   -  default
RDNAAR_BACKEND             backend                    auto  default
RDNAAR_TRANSPORT           transport                  auto  default
RDNAAR_MAX_KB              max_bytes               4194304  VLLM_RDNA_AR_MAX_KB
RDNAAR_ALGO                algo                    oneshot  RDNAAR_ALGO
RDNAAR_LL_KB               ll_max_bytes               auto  default
RDNAAR_ONESHOT_KB          oneshot_max_bytes          auto  default
RDNAAR_BLOCKS              blocks                        0  default
RDNAAR_PACE                pace                          0  default
RDNAAR_TIMEOUT_MS          timeout_ms               120000  default
RDNAAR_WARMUP_TIMEOUT_MS   warmup_timeout_ms        300000  default
RDNAAR_LATE_MS             late_ms                    2000  default
RDNAAR_PROVE               prove                      auto  default
RDNAAR_SHARE_DEVICE        share_device              False  default
RDNAAR_TUNE_FILE           tune_file                     -  default
RDNAAR_WEDGE_FILE          wedge_file                    -  default
RDNAAR_DEBUG               debug                         0  default
RDNAAR_PORT                -                             -  default
RDNAAR_SECRET              -                         (set)  RDNAAR_SECRET
"""


def _run(runner: CliRunner, *args: str, exit_code: int = 0, **environ: str) -> Result:
    result = runner.invoke(main, args, env=environ)
    assert result.exit_code == exit_code, (result.output, result.exception)
    return result


def _json(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RDNAAR_LIBRARY", "/nowhere/lib.so")


# ---- All commands ------------------------------------------------------------------------------


def test_the_commands(runner: CliRunner) -> None:
    assert isinstance(main, click.Group)
    assert tuple(sorted(main.commands)) == COMMANDS
    output = _run(runner, "--help").output
    for command in COMMANDS:
        assert re.search(rf"^  {command} +[A-Z].*\.$", output, re.M), command
    assert pyrdnaar.__version__ in _run(runner, "--version").output


# What can be run: `wedge` has commands of its own.
LEAVES = (*(c for c in COMMANDS if c != "wedge"), "wedge show")
# `qualify` talks to a server, whose own settings count.
CONFIGURED = tuple(command for command in LEAVES if command != "qualify")


@pytest.mark.parametrize("command", LEAVES)
def test_help_and_usage(runner: CliRunner, command: str) -> None:
    output = _run(runner, *command.split(), "-h").stdout
    assert "--json [PATH]" in output
    result = _run(runner, *command.split(), "--nonsense", exit_code=2)
    assert result.stdout == ""
    assert "No such option" in result.stderr


def test_python_m() -> None:
    command = [sys.executable, "-m", "pyrdnaar", "--version"]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert output.stdout.strip() == f"pyrdnaar, version {pyrdnaar.__version__}"


@pytest.mark.usefixtures("no_library")
@pytest.mark.parametrize("command", ["info", "demo", "selftest", "bench"])
def test_no_library_is_exit_code_3(runner: CliRunner, command: str) -> None:
    result = _run(runner, command, exit_code=3)
    assert result.stdout == ""
    assert "cannot load /nowhere/lib.so" in result.stderr
    assert "make host" in result.stderr


@pytest.mark.parametrize("command", CONFIGURED)
def test_a_bad_setting_is_exit_code_2(runner: CliRunner, command: str) -> None:
    result = _run(runner, *command.split(), exit_code=2, RDNAAR_BLOCKS="many")
    assert result.stdout == ""
    assert "RDNAAR_BLOCKS='many'" in result.stderr


@pytest.mark.usefixtures("lib")
@pytest.mark.parametrize("command", ["info", "env"])
def test_an_unknown_variable_is_warned_about_once_on_stderr(
    runner: CliRunner, command: str
) -> None:
    result = _run(runner, command, RDNAAR_BLOKS="1")
    assert result.stderr.count("RDNAAR_BLOKS") == 1
    assert "nearest is RDNAAR_BLOCKS" in result.stderr
    assert "RDNAAR_BLOKS" not in result.stdout


def test_json_that_cannot_be_written(runner: CliRunner, tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "file", tmp_path):
        result = _run(runner, "env", "--json", str(path), exit_code=2)
        assert f"cannot write {path}" in result.stderr
        assert result.stdout == ""  # found before the work, whose result would be lost


def test_output_that_cannot_be_written(lib: pyrdnaar.Library) -> None:
    command = [sys.executable, "-m", "pyrdnaar", "info"]
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert result.returncode == 1
    assert result.stderr == "Error: [Errno 28] No space left on device\n"


# ---- env ---------------------------------------------------------------------------------------


def test_env(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RDNAAR_LIBRARY", raising=False)
    settings = {
        "RDNAAR_ALGO": "oneshot",
        "VLLM_RDNA_AR_MAX_KB": "4096",
        "VLLM_RDNA_AR_ALGO": "twoshot",
        "RDNAAR_SECRET": "hidden",
    }
    result = _run(runner, "env", **settings)
    assert result.stdout == ENV_GOLDEN
    assert result.stderr == ""
    result = _run(runner, "env", "--json", **settings)
    data = _json(result.stdout)
    assert data["RDNAAR_ALGO"] == {"value": "oneshot", "field": "algo", "origin": "RDNAAR_ALGO"}
    assert "hidden" not in result.output


def test_env_of_a_process(runner: CliRunner, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print(flush=True); input()"]
    environ = {**os.environ, "RDNAAR_PACE": "9"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environ, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        file = tmp_path / "env.json"
        result = _run(runner, "env", "--pid", str(process.pid), "--json", str(file))
        process.communicate(b"\n", timeout=10)
    assert re.search(r"^RDNAAR_PACE +pace +9  RDNAAR_PACE$", result.stdout, re.M)
    assert _json(file.read_text())["RDNAAR_PACE"]["value"] == 9
    assert "cannot read" in _run(runner, "env", "--pid", "4194305", exit_code=2).stderr


# ---- info --------------------------------------------------------------------------------------


def test_info(runner: CliRunner, lib: pyrdnaar.Library) -> None:
    output = _run(runner, "info").stdout
    assert re.search(rf"^library +{re.escape(lib.path)}$", output, re.M)
    assert re.search(r"^ABI +1\.\d+$", output, re.M)
    assert re.search(r"^device 0 ", output, re.M)
    data = _json(_run(runner, "info", "--json").stdout)
    assert data["path"] == lib.path
    assert data["backend"] == "host"
    assert len(data["devices"]) == len(lib.devices())
    # Whether that library was built or not: where there is no GPU it is of no use.
    error = _run(runner, "info", "--backend", "cuda", exit_code=3).stderr
    assert "no library" in error or "finds no device" in error


# ---- demo and selftest -------------------------------------------------------------------------


@pytest.mark.usefixtures("lib")
def test_demo(runner: CliRunner) -> None:
    output = _run(runner, "demo").stdout
    assert output.startswith("4 ranks (processes) on host: ")
    rows = re.findall(r"^ +(fp16|bf16|fp32) +(auto|ll|oneshot|twoshot) +(\d+) +0$", output, re.M)
    assert len(rows) == 12
    checked = 4 * sum(int(row[2]) for row in rows)
    assert output.endswith(f"{checked} elements checked against numpy: all right\n")


@pytest.mark.usefixtures("lib")
def test_demo_as_json_with_threads(runner: CliRunner) -> None:
    data = _json(_run(runner, "demo", "-n", "3", "--threads", "--json").stdout)
    assert (data["ok"], data["ranks"], data["started_by"]) == (True, 3, "threads")
    assert len(data["rows"]) == 12


@pytest.mark.usefixtures("lib")
def test_selftest(runner: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    output = _run(runner, "selftest", "-e", "64K", "--json", str(file)).stdout
    assert re.search(r"^ +0 +[1-9]\d* +0 ", output, re.M)
    assert "passed on 2 ranks with " in output
    data = _json(file.read_text())
    assert data["ok"] is True
    assert [report["wrong"] for report in data["ranks"]] == [0, 0]


@pytest.mark.usefixtures("lib")
def test_selftest_takes_messages_over_the_limit(runner: CliRunner) -> None:
    args = ("selftest", "-e", "8K", "--threads", "--json")
    report = _json(_run(runner, *args, RDNAAR_MAX_KB="4").stdout)
    assert all(rank["cases"] > 0 for rank in report["ranks"])


@pytest.fixture
def lazy(shim: Callable[[str], Path]) -> Path:
    """A library that answers OK to every all-reduce and does nothing."""
    return shim(
        "rdnaar_status rdnaar_all_reduce(rdnaar_comm *c, const void *in, void *out, uint64_t n,\n"
        "                                uint32_t d, uint32_t o, uint32_t a, void *s)\n"
        "{ (void)c; (void)in; (void)out; (void)n; (void)d; (void)o; (void)a; (void)s; return 0; }\n"
        "rdnaar_status rdnaar_self_test(rdnaar_comm *c, const rdnaar_self_test_config *g,\n"
        "                               rdnaar_self_test_report *r, void *s)\n"
        "{ (void)c; (void)g; (void)s; r->cases = 1; r->wrong = 7; return RDNAAR_E_SELF_TEST; }\n"
    )


def test_a_library_that_does_nothing_fails_every_check(runner: CliRunner, lazy: Path) -> None:
    environ = {"RDNAAR_LIBRARY": str(lazy), "RDNAAR_PROVE": "never"}
    result = _run(runner, "demo", "-n", "2", exit_code=1, **environ)
    assert "WRONG" in result.stdout
    result = _run(runner, "selftest", exit_code=1, **environ)
    assert "self test failed: rank 0: " in result.stderr
    assert re.search(r"^ +1 +1 +7 ", result.stdout, re.M)
    result = _run(runner, "bench", *SMALL, exit_code=1, **environ)
    assert "wrong elements" in result.stderr
    assert "# verified: NO" in result.stdout
    result = _run(runner, "bench", *SMALL, "--json", exit_code=1, **environ)
    data = _json(result.stdout)
    assert data["ok"] is False
    for row in data["rows"]:
        for case in row["cases"]:
            # Both ranks, all elements: before, after, and what the last sample has left. In place
            # the poison is the input itself, and no sum of two equals one of them.
            assert case["wrong"] == 2 * 3 * row["count"]


# ---- bench -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("lib")
def test_bench(runner: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    output = _run(runner, "bench", *SMALL, "-f", "2", "-d", "fp32", "-d", "bf16", "-o", "max",
                  "--json", str(file)).stdout  # fmt: skip
    heading = re.search(r"^# +size +count +type +redop +algo +(.*)$", output, re.M)
    assert heading
    assert heading[1].split() == ["time", "call", "algbw", "busbw", "#wrong"] * 2
    rows = re.findall(r"^ +(\d+) +(\d+) +(fp32|bf16) +max +\w+ (.*)$", output, re.M)
    assert [(int(r[0]), int(r[1]), r[2]) for r in rows] == [
        (size, size // item, dtype)
        for dtype, item in (("fp32", 4), ("bf16", 2))
        for size in (1024, 2048, 4096)
    ]
    for row in rows:
        cells = row[3].split()
        assert len(cells) == 10
        assert (cells[4], cells[9]) == ("0", "0")
    assert output.endswith("# verified: every shape\n")

    data = _json(file.read_text())
    assert data["ok"] is True
    assert data["library"]["backend"] == "host"
    assert data["machine"]["cpus"] >= 1
    assert data["environment"]["RDNAAR_ALGO"] == "auto"
    for row in data["rows"]:
        names = [(case["provider"], case["in_place"]) for case in row["cases"]]
        assert names == [(p, i) for p in ("rdnaar", "prepared") for i in (False, True)]
        for case in row["cases"]:
            assert [len(samples) for samples in case["samples_us"]] == [3, 3]
            slowest = sorted(max(pair) for pair in zip(*case["samples_us"], strict=True))
            assert case["time_us"] == slowest[1]
            assert case["time_us"] <= case["p99_us"] <= slowest[2]
            assert case["busbw_gb_s"] == pytest.approx(row["bytes"] / case["time_us"] / 1e3)


@pytest.mark.usefixtures("lib")
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-b", "4K", "-e", "1K"], "sizes from 4096 to 1024 are none"),
        (["-b", "0"], "sizes from 0"),
        (["-b", "1X"], "'1X' is not a size like 4096, 4K, 20M or 1G"),
        (["-n", "9"], "9 is not in the range 1<=x<=8"),
        (["-d", "int8"], "'int8' is not one of"),
        (["--algo", "copy"], "'copy' is not one of"),
        (["--compare", "mpi"], "mpi needs "),
        (["--compare", "gloo", "--graph"], "gloo on the host cannot be recorded in a graph"),
        (["--compare", "gloo", "--threads"], "gloo needs ranks in processes"),
        (["--compare", "gloo", "-d", "bf16"], "gloo has sum, max, min of fp16, fp32 only"),
        (["--compare", "gloo", "-o", "avg"], "gloo has sum, max, min of fp16, fp32 only"),
    ],
)
def test_bench_usage(runner: CliRunner, args: list[str], said: str) -> None:
    assert said in _run(runner, "bench", *args, exit_code=2).stderr


@pytest.mark.usefixtures("lib")
def test_bench_of_graphs(runner: CliRunner) -> None:
    data = _json(
        _run(runner, "bench", *SMALL, "--graph", "-c", "7", "--algo", "ll", "--json").stdout
    )
    assert (data["ok"], data["graph"], len(data["rows"])) == (True, True, 2)
    for row in data["rows"]:
        assert [(c["algo"], c["calls_per_sample"]) for c in row["cases"]] == [("ll", 7)] * 2
    args = ("bench", "-n", "1", *SMALL, "--graph")
    assert "# verified: every shape" in _run(runner, *args).stdout


def test_bench_of_graphs_that_do_nothing(runner: CliRunner, lazy: Path) -> None:
    environ = {"RDNAAR_LIBRARY": str(lazy), "RDNAAR_PROVE": "never"}
    result = _run(runner, "bench", *SMALL, "--graph", exit_code=1, **environ)
    assert "wrong elements" in result.stderr


@pytest.mark.usefixtures("lib")
def test_bench_takes_messages_over_the_default_limit(runner: CliRunner) -> None:
    args = ("-n", "1", "-b", "21M", "-e", "21M", "-w", "1", "-i", "1", "--json")
    data = _json(_run(runner, "bench", *args).stdout)
    assert [row["bytes"] for row in data["rows"]] == [21 << 20]


# ---- Launchers ---------------------------------------------------------------------------------


def _launch(world_size: int, *args: str, environ: dict[str, str]) -> list[tuple[int, str, str]]:
    """The command as torchrun starts it: exit code, stdout and stderr of each rank."""
    processes = []
    for rank in range(world_size):
        ours = {"RANK": str(rank), "WORLD_SIZE": str(world_size)}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "pyrdnaar", *args],
                env={**os.environ, **environ, **ours},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    outputs = [process.communicate(timeout=120) for process in processes]
    return [(p.returncode, *output) for p, output in zip(processes, outputs, strict=True)]


@pytest.fixture
def job(tmp_path: Path) -> dict[str, str]:
    tmp_path.chmod(0o700)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return {"MASTER_PORT": str(min(port, 65000)), "XDG_RUNTIME_DIR": str(tmp_path)}


@pytest.mark.usefixtures("lib")
def test_bench_under_torchruns_variables(job: dict[str, str]) -> None:
    first, *others = _launch(2, "bench", *SMALL, environ=job)
    assert first[0] == 0, first
    assert first[1].startswith("# 2 ranks (torchrun)\n")
    assert first[1].endswith("# verified: every shape\n")
    assert others == [(0, "", "")]  # one rank speaks for all


def test_every_rank_of_a_launcher_fails_together(job: dict[str, str], lazy: Path) -> None:
    environ = {**job, "RDNAAR_LIBRARY": str(lazy)}
    results = _launch(2, "demo", environ=environ)
    assert [result[0] for result in results] == [1, 1]


def test_ranks_and_launcher_must_agree(runner: CliRunner) -> None:
    environ = {"RANK": "0", "WORLD_SIZE": "2"}
    result = _run(runner, "demo", "-n", "3", exit_code=2, **environ)
    assert "-n 3, but torchrun has started 2 ranks" in result.stderr
    result = _run(runner, "demo", "--threads", exit_code=2, **environ)
    assert "torchrun has started ranks as processes" in result.stderr
    # Nine ranks are never a group: said at once, not after they have waited for each other.
    result = _run(runner, "demo", exit_code=2, RANK="0", WORLD_SIZE="9")
    assert "torchrun has started 9 ranks, at most 8" in result.stderr


def _mpiexec(job: dict[str, str], *args: str) -> str:
    if shutil.which("mpiexec") is None:
        pytest.skip("mpiexec is not installed")
    output = subprocess.run(
        ["mpiexec", "-n", "2", sys.executable, *args],
        # Open MPI wants to be asked twice before it runs for root.
        env={
            **os.environ,
            **job,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return output.stdout


@pytest.mark.usefixtures("lib")
def test_demo_under_mpiexec(job: dict[str, str]) -> None:
    output = _mpiexec(job, "-m", "pyrdnaar", "demo")
    assert output.startswith("2 ranks (mpiexec) on host: ")
    assert output.count("all right") == 1


@pytest.mark.usefixtures("lib")
def test_bench_beside_mpi(job: dict[str, str]) -> None:
    if _mpiexec(job, "-c", _IMPORTABLE.format("mpi4py.MPI")).strip() == "":
        pytest.skip("mpi4py is not installed, or finds no MPI library")
    _check_compared(_mpiexec(job, "-m", "pyrdnaar", "bench", *SMALL, "--compare", "mpi"), "mpi")


@pytest.mark.usefixtures("lib")
def test_bench_beside_gloo(runner: CliRunner) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    _check_compared(_run(runner, "bench", *SMALL, "--compare", "gloo").stdout, "gloo")


_IMPORTABLE = """
try:
    import {}
    print("yes")
except ImportError:
    pass
"""


def _check_compared(output: str, peer: str) -> None:
    rows = re.findall(r"^ +\d+ +\d+ +fp32 +sum +\S+ +(\w+) (.*)$", output, re.M)
    assert [name for name, _ in rows] == ["rdnaar", peer] * 2
    for name, cells in rows:
        out_of_place, in_place = cells.split()[:6], cells.split()[6:]
        for _time, call, _algbw, _busbw, wrong, ratio in (out_of_place, in_place):
            assert wrong == "0"
            assert (call == "-") == (name != "rdnaar")
            assert (ratio == "1.00") or name != "rdnaar"
    assert "# verified: every shape\n" in output


# ---- ab ----------------------------------------------------------------------------------------

FEW = ("--runs", "5", "--backend", "host", "-e", "1K", "-w", "1", "-i", "2")


@pytest.mark.usefixtures("lib")
def test_ab_compares_what_differs(runner: CliRunner) -> None:
    sides = ("--a", "RDNAAR_ALGO=ll", "--b", "--algo oneshot")
    data = json.loads(_run(runner, "ab", *sides, *FEW, "--json").stdout)
    assert data["differences"][0] == "algo: ll | auto"
    assert [len(times) for times in data["times_us"]] == [5, 5]
    assert [verdict["shape"] for verdict in data["verdicts"]] == ["1024 fp32 sum"]
    assert data["verdicts"][0]["verdict"] in ("faster", "slower", "no difference beyond the spread")


@pytest.mark.usefixtures("lib")
@pytest.mark.parametrize(
    ("side", "exit_code", "said"),
    [
        ("RDNAAR_DEBUG=0", 2, "the sides do not differ in effect"),
        ("--algo nonsense", 2, "side B ended with 2: Error: Invalid value for '--algo'"),
        ("RDNAAR_LIBRARY=/nowhere.so", 3, "side B ended with 3"),
        ("nonsense", 2, "neither NAME=VALUE nor an option"),
    ],
)
def test_ab_fails_aloud(runner: CliRunner, side: str, exit_code: int, said: str) -> None:
    assert said in _run(runner, "ab", "--b", side, *FEW, exit_code=exit_code).stderr
