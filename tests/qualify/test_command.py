# SPDX-License-Identifier: Apache-2.0
"""The command `qualify`: exit codes, reports, baselines, keys."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pyrdnaar.cli import main
from pyrdnaar.qualify.report import CHECKS

from .conftest import SMALL
from .stand_in import MODEL, StandIn

Qualify = Callable[..., Result]
KEY = "sk-secret-0123456789"


@pytest.fixture
def baseline(qualify: Qualify, tmp_path: Path) -> Path:
    path = tmp_path / "before.json"
    qualify("--json", path, "--only", "greedy", "--only", "speed")
    return path


# ---- Reports -----------------------------------------------------------------------------------


def test_the_table_and_the_report(server: StandIn, qualify: Qualify, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    result = qualify("--json", path)
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [[name, "passed"] for name in CHECKS]
    assert lines[0].endswith("4 prompts, 2 times each: identical")
    assert re.search(r"first token [\d.]+ ms \([\d.]+ to [\d.]+\); decode \d+", lines[3])
    data = json.loads(path.read_text())
    assert data["ok"] is True
    assert data["server"] == {"base_url": server.url, "models": [MODEL]}
    assert data["settings"]["contexts"] == [1024, 4096]
    cells = data["checks"]["needle"]["data"]["cells"]
    assert [cell["at"] for cell in cells] == [[n, d] for n in (1024, 4096) for d in (0, 50, 100)]
    assert all(cell["prompt_tokens"] > 100 for cell in cells)
    for figure in data["checks"]["speed"]["data"].values():
        assert len(figure["samples"]) == 5
        assert figure["min"] <= figure["q1"] <= figure["median"] <= figure["q3"] <= figure["max"]
        assert figure["median"] == sorted(figure["samples"])[2]


def test_only_and_skip(qualify: Qualify) -> None:
    def ran(*args: str) -> list[str]:
        return list(json.loads(qualify("--json", *args).stdout)["checks"])

    assert ran("--only", "needle", "--only", "greedy") == ["greedy", "needle"]
    assert ran("--skip", "speed", "--skip", "tools") == ["greedy", "needle"]
    result = qualify("--only", "needle", "--skip", "needle", exit_code=2)
    assert "no check is left to run" in result.stderr


def test_the_seed_chooses_the_prompts(server: StandIn, qualify: Qualify) -> None:
    def asked(*args: str) -> list[str]:
        server.requests.clear()
        qualify(*args, "--only", "greedy", "--only", "needle", "--concurrency", "1")
        return [request["messages"][0]["content"] for request in server.requests]

    first = asked()
    assert first == asked("--seed", "0")
    assert not set(first) & set(asked("--seed", "1"))


def test_timed_prompts_are_never_asked_twice(server: StandIn, qualify: Qualify) -> None:
    for _ in range(2):
        qualify("--only", "speed")
    asked = [request["messages"][0]["content"][:30] for request in server.requests]
    assert len(set(asked)) == len(asked) == 12


def test_extra_is_part_of_every_request(server: StandIn, qualify: Qualify) -> None:
    qualify("--extra", '{"cache_prompt": false}')
    assert all(request["cache_prompt"] is False for request in server.requests)


# ---- Baselines ---------------------------------------------------------------------------------


def test_the_same_server_again(qualify: Qualify, baseline: Path) -> None:
    output = qualify("--baseline", baseline, "--only", "greedy").stdout
    assert "identical, and identical to the baseline" in output


def test_another_output_than_before(server: StandIn, qualify: Qualify, baseline: Path) -> None:
    server.fault = "other model"
    qualify("--only", "greedy")  # is as sure of itself as the one before
    output = qualify("--baseline", baseline, "--only", "greedy", exit_code=1).stdout
    assert re.search(r"prompt 1 differs from the baseline at character \d+: '.+ instead of", output)
    assert "(and 3 more)" in output


def _edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def _measured(first_token_ms: float, decode_tokens_s: float) -> Callable[[dict[str, Any]], None]:
    """Figures for a baseline, far from what the stand-in gives: two real runs of one server differ
    by more than their spread now and then."""
    figures = {"first_token_ms": first_token_ms, "decode_tokens_s": decode_tokens_s}

    def change(data: dict[str, Any]) -> None:
        for name, value in figures.items():
            data["checks"]["speed"]["data"][name]["samples"] = [value] * 5

    return change


# No run of the stand-in is slower than that.
CRAWLING = (1e6, 1e-3)


# With the fault a first token takes 200 ms at least, and there are at most 200 tokens a second.
@pytest.mark.parametrize(
    ("fault", "title", "before"),
    [
        ("slow start", "first token", (20, CRAWLING[1])),
        ("slow decode", "decode", (CRAWLING[0], 400)),
    ],
)
def test_slower_than_before(
    server: StandIn,
    qualify: Qualify,
    baseline: Path,
    fault: str,
    title: str,
    before: tuple[float, float],
) -> None:
    _edit(baseline, _measured(*before))
    server.fault = fault
    qualify("--only", "speed")
    result = qualify("--baseline", baseline, "--only", "speed", exit_code=1)
    assert re.search(rf"FAILED .*{title}: .* in the baseline, now .*: SLOWER, x", result.stdout)


def test_faster_than_before_passes(qualify: Qualify, baseline: Path) -> None:
    _edit(baseline, _measured(*CRAWLING))
    output = qualify("--baseline", baseline, "--only", "speed").stdout
    assert output.count("faster") == 2


def _samples(data: dict[str, Any], values: list[Any]) -> None:
    data["checks"]["speed"]["data"]["decode_tokens_s"]["samples"] = values


BAD_BASELINES: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda d: d.update(format="other/1"), "is no report of pyrdnaar-qualify/1"),
    (lambda d: d.update(settings=None), "is of another model, None"),
    (lambda d: d["settings"].update(model="m"), f"is of another model, 'm' and not '{MODEL}'"),
    (lambda d: d["settings"].update(seed=9), "is of another seed, 9 and not 0"),
    (lambda d: d["settings"].update(extra={"a": 1}), "is of another extra"),
    (lambda d: d.update(checks=[]), "nothing to compare greedy with: it did not run"),
    (lambda d: d["checks"].pop("speed"), "nothing to compare speed with: it did not run"),
    (lambda d: d["checks"]["greedy"].update(data=[]), "it holds no data"),
    (lambda d: d["checks"]["greedy"]["data"]["outputs"].pop(), "its prompts are others"),
    (lambda d: d["checks"]["greedy"]["data"]["outputs"][0].update(output=None), "output of every"),
    (lambda d: _samples(d, [1.0, 2.0]), "no samples of decode_tokens_s"),
    (lambda d: _samples(d, [1.0, 2.0, float("nan")]), "no samples of decode_tokens_s"),
    (lambda d: _samples(d, [1.0, 2.0, "3"]), "no samples of decode_tokens_s"),
    (lambda d: _samples(d, [1.0, 2.0, 0]), "no samples of decode_tokens_s"),
    (lambda d: _samples(d, [1.0, 2.0, 10**400]), "no samples of decode_tokens_s"),
]


def test_a_baseline_that_cannot_be_compared_with(
    server: StandIn, qualify: Qualify, baseline: Path
) -> None:
    good = baseline.read_text()
    server.requests.clear()
    for change, said in BAD_BASELINES:
        baseline.write_text(good)
        _edit(baseline, change)
        assert said in qualify("--baseline", baseline, exit_code=2).stderr
    baseline.write_text("{")
    assert "is not JSON" in qualify("--baseline", baseline, exit_code=2).stderr
    baseline.write_text(good)
    result = qualify("--baseline", baseline, "--only", "needle", exit_code=2)
    assert "nothing of needle is compared" in result.stderr
    assert not server.requests, "known before the server is asked"


# ---- No server ---------------------------------------------------------------------------------


def test_no_server_is_exit_code_3(server: StandIn, qualify: Qualify, runner: CliRunner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    args = ["qualify", "--base-url", f"http://127.0.0.1:{port}/v1", "--model", MODEL]
    result = runner.invoke(main, args)
    assert result.exit_code == 3
    assert "Connection refused; --wait SECONDS waits for a server" in result.stderr
    server.fault = "loading"
    assert "HTTP 503: " in qualify("--wait", "0.6", exit_code=3).stderr
    assert not server.requests


def test_a_server_that_accepts_and_says_nothing(runner: CliRunner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        args = ["qualify", "--base-url", url, "--model", MODEL, "--timeout", "0.3"]
        result = runner.invoke(main, args)
    assert result.exit_code == 3
    assert "timeout: the reply did not end within 0.3 s" in result.stderr


def test_tls_to_a_server_without_it(server: StandIn, runner: CliRunner) -> None:
    url = server.url.replace("http:", "https:")
    result = runner.invoke(main, ["qualify", "--base-url", url, "--model", MODEL])
    assert result.exit_code == 3
    assert "the connection failed: [SSL" in result.stderr


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate that it has signed itself, for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test"
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(path), "-out", str(path)]
    subprocess.run([*command.split(), *names], check=True, capture_output=True, timeout=60)
    return path


def test_tls(certificate: Path, runner: CliRunner) -> None:
    with StandIn(certificate) as server:
        args = ["qualify", "--base-url", server.url, "--model", MODEL, *SMALL, "--only", "tools"]
        result = runner.invoke(main, args)
        assert result.exit_code == 3, "nobody vouches for that certificate"
        assert "certificate verify failed" in result.stderr
        environ = {"SSL_CERT_FILE": str(certificate)}
        assert runner.invoke(main, args, env=environ).exit_code == 0
        server.fault = "drip"
        result = runner.invoke(main, [*args, "--timeout", "0.5"], env=environ)
        assert result.exit_code == 1
        assert "timeout: the reply did not end within 0.5 s" in result.stdout


def test_waiting_for_a_server(server: StandIn, qualify: Qualify) -> None:
    server.fault = "loading"
    timer = threading.Timer(0.7, setattr, (server, "fault", ""))
    timer.start()
    qualify("--wait", "30", "--only", "needle")
    timer.join()


def test_a_model_that_is_not_listed(server: StandIn, qualify: Qualify) -> None:
    result = qualify("--model", "other", "--only", "needle")
    assert result.stderr == f"warning: the server lists '{MODEL}', and not 'other'\n"


# ---- Usage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--base-url", "127.0.0.1:8000"], "is no base URL like http://127.0.0.1:8000/v1"),
        (["--base-url", "ftp://host/v1"], "is no base URL"),
        (["--base-url", "http://host:99999/v1"], "the base URL is none"),
        (["--base-url", "http://[::1/v1"], "the base URL is none"),
        (["--base-url", "http://host/v1?a=b"], "has a query"),
        (["--base-url", "http://host/v 1"], "has spaces"),
        (["--only", "spead"], "'spead' is not one of"),
        (["--concurrency", "0"], "0 is not in the range"),
        (["--repeats", "1"], "1 is not in the range"),
        (["--timeout", "nan"], "is not a number"),
        (["--contexts", "4K,x"], "'x' is not a size"),
        (["--contexts", "1G"], "'1G' is not up to 16 of 1024 to 16777216"),
        (["--contexts", ",".join(["1K"] * 17)], "is not up to 16"),
        (["--depths", "101"], "'101' is not up to 16 of 0 to 100"),
        (["--extra", "[]"], "is no JSON object"),
        (["--extra", "{"], "is no JSON"),
        (["--extra", '{"model": "x", "temperature": 1}'], "must not set model, temperature"),
        (["--baseline", "/nowhere/file"], "does not exist"),
        (["--json", "/nowhere/file"], "cannot write /nowhere/file"),
    ],
)
def test_usage(server: StandIn, qualify: Qualify, args: list[str], said: str) -> None:
    result = qualify(*args, exit_code=2)
    assert said in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert not server.requests


# ---- The key -----------------------------------------------------------------------------------


def test_the_key_is_sent_and_never_shown(server: StandIn, qualify: Qualify, tmp_path: Path) -> None:
    server.key = KEY
    path = tmp_path / "report.json"
    result = qualify("--api-key", "THE_KEY", "--json", path, THE_KEY=KEY)
    assert KEY not in result.output + path.read_text()
    # Refused, and sent back by the server, with a colour for the terminal.
    server.fault = "refused"
    result = qualify("--api-key", "THE_KEY", "--json", path, exit_code=1, THE_KEY=KEY)
    assert "HTTP 401: " in result.stdout
    assert "not Bearer (key)" in result.stdout
    assert "\x1b" not in result.stdout
    assert KEY not in result.output + path.read_text()
    assert "HTTP 401: " in qualify(exit_code=1).stdout  # without a key


def test_a_key_in_the_wrong_place_is_not_shown(qualify: Qualify) -> None:
    result = qualify("--api-key", KEY, exit_code=2)
    assert "names no environment variable that is set" in result.stderr
    assert KEY not in result.output
    result = qualify("--api-key", "THE_KEY", exit_code=2, THE_KEY=f"{KEY}\r\nX: y")
    assert "the API key has spaces" in result.stderr
    assert KEY not in result.output
    result = qualify("--base-url", f"http://me:{KEY}@host/v1", exit_code=2)
    assert "use --api-key" in result.stderr
    assert KEY not in result.output


# ---- In front of a terminal --------------------------------------------------------------------


def _command(server: StandIn, *args: str) -> list[str]:
    command = [sys.executable, "-m", "pyrdnaar", "qualify", "--base-url", server.url]
    return [*command, "--model", MODEL, *args]


def test_a_progress_bar_while_the_server_thinks(server: StandIn) -> None:
    server.fault = "stall"
    master, terminal = pty.openpty()
    args = ("--only", "greedy", "--timeout", "3")
    command = _command(server, *args)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal) as process:
        os.close(terminal)
        output, _ = process.communicate(timeout=60)
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert process.returncode == 1
    assert re.search(r"\r\[ {30}\] 0/12", shown)
    assert b"FAILED" in output


def test_ctrl_c_ends_it_at_once(server: StandIn) -> None:
    server.fault = "stall"
    pipe = subprocess.PIPE
    # A shell's background jobs, and so their children, ignore SIGINT.
    command = ["env", "--default-signal=INT", *_command(server)]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe) as process:
        while not server.requests:
            time.sleep(0.02)
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        start = time.monotonic()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors == b"\nAborted!\n" or errors == b"Aborted!\n"
    assert time.monotonic() - start < 10, "it has waited for the server"
