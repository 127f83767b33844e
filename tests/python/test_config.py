# SPDX-License-Identifier: Apache-2.0
"""Environment variables and Config."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import warnings

import pytest

from pyrdnaar import Config, ConfigError, ConfigWarning
from pyrdnaar.config import VARIABLES, effective, environ_of, parse_size

EXAMPLES: dict[str, tuple[str, object]] = {
    "RDNAAR_ENABLE": ("off", False),
    "RDNAAR_STRICT": ("1", True),
    "RDNAAR_LIBRARY": ("/opt/lib.so", "/opt/lib.so"),
    "RDNAAR_HIP_RUNTIME": ("/opt/hip.so", "/opt/hip.so"),
    "RDNAAR_BACKEND": ("HOST", "host"),
    "RDNAAR_TRANSPORT": ("p2p", "p2p"),
    "RDNAAR_MAX_KB": ("512", 512 * 1024),
    "RDNAAR_ALGO": ("twoshot", "twoshot"),
    "RDNAAR_LL_KB": ("8", 8192),
    "RDNAAR_ONESHOT_KB": ("1M", 1 << 20),
    "RDNAAR_BLOCKS": ("16", 16),
    "RDNAAR_PACE": ("3", 3),
    "RDNAAR_TIMEOUT_MS": ("1500", 1500),
    "RDNAAR_WARMUP_TIMEOUT_MS": ("2500", 2500),
    "RDNAAR_LATE_MS": ("10", 10),
    "RDNAAR_PROVE": ("Always", "always"),
    "RDNAAR_SHARE_DEVICE": ("yes", True),
    "RDNAAR_TUNE_FILE": ("/tmp/tune", "/tmp/tune"),
    "RDNAAR_WEDGE_FILE": ("/tmp/wedge", "/tmp/wedge"),
    "RDNAAR_DEBUG": ("1", 1),
}
BAD = {
    "RDNAAR_ENABLE": "maybe",
    "RDNAAR_STRICT": "2",
    "RDNAAR_BACKEND": "gpu",
    "RDNAAR_TRANSPORT": "pcie",
    "RDNAAR_MAX_KB": "20MB",
    "RDNAAR_ALGO": "copy",
    "RDNAAR_LL_KB": "-1",
    "RDNAAR_ONESHOT_KB": "1.5",
    "RDNAAR_BLOCKS": "129",
    "RDNAAR_PACE": "1001",
    "RDNAAR_TIMEOUT_MS": "0",
    "RDNAAR_WARMUP_TIMEOUT_MS": "soon",
    "RDNAAR_LATE_MS": "86400001",
    "RDNAAR_DEBUG": "yes",
}


def test_the_table_and_the_dataclass_have_the_same_fields() -> None:
    fields = [field.name for field in dataclasses.fields(Config)]
    assert [v.field for v in VARIABLES if v.field] == fields
    assert sorted(EXAMPLES) == sorted(v.name for v in VARIABLES if v.field)


def test_an_empty_environment_gives_the_defaults() -> None:
    config = Config.from_env({})
    assert config == Config()
    assert (config.max_bytes, config.timeout_ms, config.late_ms) == (20480 * 1024, 120_000, 2_000)
    assert Config.from_env({"RDNAAR_ALGO": " "}).algo == "auto"
    assert Config.from_env({}, enable_default=False).enable is False
    assert Config.from_env({"RDNAAR_ENABLE": "1"}, enable_default=False).enable is True


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_variable_sets_its_field_only(name: str) -> None:
    raw, value = EXAMPLES[name]
    field = next(v.field for v in VARIABLES if v.name == name)
    assert Config.from_env({name: raw}) == dataclasses.replace(Config(), **{str(field): value})


@pytest.mark.parametrize("name", BAD)
def test_a_bad_value_names_variable_value_and_what_is_accepted(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Config.from_env({name: BAD[name]})
    message = str(caught.value)
    assert name in message
    assert repr(BAD[name]) in message
    assert "takes" in message
    assert caught.value.exit_code == 2


def test_a_bad_field_is_refused_too() -> None:
    with pytest.raises(ConfigError, match=r"blocks = 129 .* 0 to 128"):
        Config(blocks=129)
    with pytest.raises(ConfigError, match="enable"):
        Config(enable=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "raw", "field", "value"),
    [
        ("VLLM_RDNA_AR", "0", "enable", False),
        ("VLLM_RDNA_AR_MAX_KB", "64", "max_bytes", 65536),
        ("VLLM_RDNA_AR_ONESHOT_KB", "16", "oneshot_max_bytes", 16384),
        ("VLLM_RDNA_AR_ALGO", "1stage", "algo", "oneshot"),
        ("VLLM_RDNA_AR_ALGO", "2stage", "algo", "twoshot"),
        ("VLLM_RDNA_AR_ALGO", "twoshot", "algo", "twoshot"),
        ("VLLM_RDNA_AR_BLOCKS", "8", "blocks", 8),
        ("VLLM_RDNA_AR_PACE", "2", "pace", 2),
        ("VLLM_RDNA_AR_WAIT_MS", "5000", "timeout_ms", 5000),
    ],
)
def test_the_forks_spellings(name: str, raw: str, field: str, value: object) -> None:
    assert getattr(Config.from_env({name: raw}), field) == value


def test_our_spelling_wins() -> None:
    environ = {"VLLM_RDNA_AR_BLOCKS": "8", "RDNAAR_BLOCKS": "4"}
    assert Config.from_env(environ).blocks == 4
    origins = {s.field: s.origin for s in effective(environ)}
    assert origins["blocks"] == "RDNAAR_BLOCKS"
    origins = {s.field: s.origin for s in effective({"VLLM_RDNA_AR_BLOCKS": "8"})}
    assert origins["blocks"] == "VLLM_RDNA_AR_BLOCKS"
    assert origins["pace"] == "default"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("RDNAAR_TIMOUT_MS", "nearest is RDNAAR_TIMEOUT_MS"),
        ("RDNAAR_X", "not a known variable"),
        ("VLLM_RDNA_AR_BLOCK", "nearest is VLLM_RDNA_AR_BLOCKS"),
        ("VLLM_RDNA_AR_SPIN_CAP", "no longer used.*RDNAAR_TIMEOUT_MS"),
    ],
)
def test_what_nothing_reads_gives_one_warning(name: str, said: str) -> None:
    with pytest.warns(ConfigWarning, match=said) as caught:
        Config.from_env({name: "1", "PATH": "/bin", "RDNAAR_PACE": "1"})
    assert len(caught) == 1
    assert name in str(caught[0].message)


def test_what_others_read_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Config.from_env({"RDNAAR_PORT": "4000", "RDNAAR_SECRET": "s", "VLLM_USE_V1": "1"})


def test_sizes_are_powers_of_1024() -> None:
    assert [parse_size(s) for s in ("7", "4K", "4k", "20M", "1G")] == [
        7,
        4096,
        4096,
        20 << 20,
        1 << 30,
    ]
    for bad in ("", "K", "4KB", "4T", "-1", "1.5K", "\u0664"):
        with pytest.raises(ValueError, match="not a size"):
            parse_size(bad)


def test_shared_settings_leave_out_what_is_local() -> None:
    shared = Config(library="/a", debug=7).shared()
    assert "library" not in shared
    assert "debug" not in shared
    assert shared["max_bytes"] == 20480 * 1024


def test_the_environment_of_another_process() -> None:
    environ = {**os.environ, "RDNAAR_BLOCKS": "5", "RDNAAR_ODD": "a=b"}
    command = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it has been started for good
        seen = environ_of(process.pid)
        process.communicate(b"\n", timeout=10)
    assert seen["RDNAAR_BLOCKS"] == "5"
    assert seen["RDNAAR_ODD"] == "a=b"
    with pytest.raises(ConfigError, match="cannot read the environment of process"):
        environ_of(process.pid)
