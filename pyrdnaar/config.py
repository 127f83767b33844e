# SPDX-License-Identifier: Apache-2.0
"""Configuration: one table of environment variables, and the dataclass they fill.

The table VARIABLES drives everything: reading and checking values, the forks' spellings, warnings
about unknown names, what ranks must agree on, and what `pyrdnaar env` prints.
"""

from __future__ import annotations

import difflib
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ._abi import MAX_BLOCKS, MAX_BYTES_LIMIT, Algo, Transport
from .errors import ConfigError

Parser = Callable[[str], Any]


@dataclass(frozen=True)
class Config:
    """The settings of one communicator. `from_env()` reads them from RDNAAR_* variables.

    A byte threshold of None, or blocks = 0, takes what was tuned for this group, and else lets the
    library choose. Settings not marked local must be the same on all ranks.
    """

    enable: bool = True
    """False: no communicator is made, on any rank. Adapters take False as their default."""
    strict: bool = False
    """Adapters: raise where they would fall back to another all-reduce."""
    library: str | None = None
    """Local. Path of the library; None: search."""
    hip_runtime: str | None = None
    """Local. Path of the HIP runtime that the HIP library loads; None: search."""
    backend: str = "auto"
    transport: str = "auto"
    max_bytes: int = 20480 * 1024
    """Largest message. Larger ones are refused."""
    algo: str = "auto"
    """The algorithm of calls that say "auto"."""
    ll_max_bytes: int | None = None
    """Up to here "auto" means ll."""
    oneshot_max_bytes: int | None = None
    """Up to here "auto" means oneshot, and twoshot above."""
    blocks: int = 0
    """Largest grid. 0: as tuned, or the library's choice."""
    pace: int = 0
    """Idle units between pushes. 0: as tuned, or none."""
    timeout_ms: int = 120_000
    """Bound of each wait."""
    warmup_timeout_ms: int = 300_000
    """The same in the first call, since peers may still be compiling."""
    late_ms: int = 2_000
    """A longer wait is noted in the late record."""
    prove: str = "auto"
    """Whether the links are tested before they are used: "always", "never", or "auto": unless the
    cache folder says that this group, on these devices, with this library, has been."""
    share_device: bool = False
    """Allow several ranks on one GPU."""
    tune_file: str | None = None
    """Local. Where measured settings are kept, see tuning.py; None: tune.json in the cache folder.
    Rank 0's counts."""
    wedge_file: str | None = None
    """Local. Where an abort is remembered, and found by the next start. None: communicators write
    and read none, adapters use the cache directory."""
    debug: int = 0
    """Local."""

    def __post_init__(self) -> None:
        for variable in VARIABLES:
            if variable.field:
                value = getattr(self, variable.field)
                try:
                    variable.kind.check(value)
                except ValueError as error:
                    raise ConfigError(
                        f"{variable.field} = {value!r} is not accepted: {error}"
                    ) from None

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] | None = None, *, enable_default: bool = True
    ) -> Config:
        """The configuration that the environment asks for.

        A bad value is a ConfigError; a variable that nothing reads gives one ConfigWarning.
        """
        environ = os.environ if environ is None else environ
        for note in unread(environ):
            warnings.warn(note, ConfigWarning, stacklevel=2)
        settings = effective(environ)
        values = {s.field: s.value for s in settings if s.field and s.origin != "default"}
        return cls(**{"enable": enable_default, **values})

    def shared(self) -> dict[str, Any]:
        """The settings that all ranks must agree on."""
        local = {v.field for v in VARIABLES if v.local}
        return {name: value for name, value in asdict(self).items() if name not in local}


class ConfigWarning(UserWarning):
    """An environment variable that looks like ours, and that nothing reads."""


# ---- Kinds of values ---------------------------------------------------------------------------


class Kind(NamedTuple):
    """`parse` turns text into a value; `check` raises ValueError with what is accepted.

    `unset` is how a value of None is shown.
    """

    accepts: str
    parse: Parser
    check: Callable[[Any], None]
    unset: str = "-"


def _refuse(accepts: str) -> ValueError:
    return ValueError(f"accepted is {accepts}")


def _boolean() -> Kind:
    accepts = "1, 0, true, false, yes, no, on or off"
    words = dict.fromkeys(("1", "true", "yes", "on"), True)
    words |= dict.fromkeys(("0", "false", "no", "off"), False)

    def parse(raw: str) -> bool:
        if raw.lower() not in words:
            raise _refuse(accepts)
        return words[raw.lower()]

    def check(value: Any) -> None:
        if not isinstance(value, bool):
            raise _refuse("True or False")

    return Kind(accepts, parse, check)


def _text() -> Kind:
    accepts = "a path"

    def check(value: Any) -> None:
        if value is not None and not (isinstance(value, str) and value):
            raise _refuse(accepts)

    return Kind(accepts, str, check)


def _choice(*words: str, **aliases: str) -> Kind:
    accepts = "one of " + ", ".join((*words, *aliases))

    def parse(raw: str) -> str:
        return aliases.get(raw.lower(), raw.lower())

    def check(value: Any) -> None:
        if value not in words:
            raise _refuse(accepts)

    return Kind(accepts, parse, check)


def _integer(low: int, high: int) -> Kind:
    accepts = f"a whole number from {low} to {high}"

    def parse(raw: str) -> int:
        try:
            return int(raw)
        except ValueError:
            raise _refuse(accepts) from None

    def check(value: Any) -> None:
        if type(value) is not int or not low <= value <= high:
            raise _refuse(accepts)

    return Kind(accepts, parse, check)


def _kib(low: int, *, optional: bool) -> Kind:
    """Bytes, written as KiB without a suffix: 20480 and 20M are the same."""
    high = MAX_BYTES_LIMIT
    accepts = f"KiB, or a size like 512K, 20M, 1G, of {low} to {high} bytes"
    if optional:
        accepts += ", or auto"

    def parse(raw: str) -> int | None:
        if optional and raw.lower() == "auto":
            return None
        try:
            return parse_size(raw if raw[-1:].isalpha() else raw + "K")
        except ValueError:
            raise _refuse(accepts) from None

    def check(value: Any) -> None:
        if optional and value is None:
            return
        if type(value) is not int or not low <= value <= high:
            raise _refuse(f"{low} to {high} bytes")

    return Kind(accepts, parse, check, unset="auto")


def parse_size(raw: str) -> int:
    """Bytes of "4096", "4K", "20M" or "1G"; the units are powers of 1024. ValueError otherwise."""
    number, unit = (raw[:-1], raw[-1].upper()) if raw[-1:].isalpha() else (raw, "")
    if unit not in ("", "K", "M", "G") or not (number.isascii() and number.isdigit()):
        raise ValueError(f"{raw!r} is not a size like 4096, 4K, 20M or 1G")
    return int(number) << 10 * ("", "K", "M", "G").index(unit)


# ---- The table ---------------------------------------------------------------------------------


class Variable(NamedTuple):
    """One environment variable. `field` is None where Config has none: others read those.

    `fork` is the spelling of the vLLM forks, used when `name` is not set. `local` settings may
    differ from rank to rank. The value of a `secret` one is never shown.
    """

    name: str
    field: str | None
    kind: Kind
    fork: str | None = None
    local: bool = False
    secret: bool = False


_BOOLEAN = _boolean()
_PATH = _text()
_MS = _integer(1, 86_400_000)
_BACKEND = _choice("auto", "hip", "cuda", "host")
_TRANSPORT = _choice(*(t.name.lower() for t in Transport))
_ALGO = _choice(
    *(a.name.lower() for a in Algo if a < Algo.COPY),
    **{"1stage": "oneshot", "2stage": "twoshot"},
)

VARIABLES: tuple[Variable, ...] = (
    Variable("RDNAAR_ENABLE", "enable", _BOOLEAN, "VLLM_RDNA_AR"),
    Variable("RDNAAR_STRICT", "strict", _BOOLEAN),
    Variable("RDNAAR_LIBRARY", "library", _PATH, local=True),
    Variable("RDNAAR_HIP_RUNTIME", "hip_runtime", _PATH, local=True),
    Variable("RDNAAR_BACKEND", "backend", _BACKEND),
    Variable("RDNAAR_TRANSPORT", "transport", _TRANSPORT),
    Variable("RDNAAR_MAX_KB", "max_bytes", _kib(1, optional=False), "VLLM_RDNA_AR_MAX_KB"),
    Variable("RDNAAR_ALGO", "algo", _ALGO, "VLLM_RDNA_AR_ALGO"),
    Variable("RDNAAR_LL_KB", "ll_max_bytes", _kib(0, optional=True)),
    Variable(
        "RDNAAR_ONESHOT_KB", "oneshot_max_bytes", _kib(0, optional=True), "VLLM_RDNA_AR_ONESHOT_KB"
    ),
    Variable("RDNAAR_BLOCKS", "blocks", _integer(0, MAX_BLOCKS), "VLLM_RDNA_AR_BLOCKS"),
    Variable("RDNAAR_PACE", "pace", _integer(0, 1000), "VLLM_RDNA_AR_PACE"),
    Variable("RDNAAR_TIMEOUT_MS", "timeout_ms", _MS, "VLLM_RDNA_AR_WAIT_MS"),
    Variable("RDNAAR_WARMUP_TIMEOUT_MS", "warmup_timeout_ms", _MS),
    Variable("RDNAAR_LATE_MS", "late_ms", _integer(0, 86_400_000)),
    Variable("RDNAAR_PROVE", "prove", _choice("auto", "always", "never")),
    Variable("RDNAAR_SHARE_DEVICE", "share_device", _BOOLEAN),
    Variable("RDNAAR_TUNE_FILE", "tune_file", _PATH, local=True),
    Variable("RDNAAR_WEDGE_FILE", "wedge_file", _PATH, local=True),
    Variable("RDNAAR_DEBUG", "debug", _integer(0, 2**32 - 1), local=True),
    # Read by TcpExchange.from_env().
    Variable("RDNAAR_PORT", None, _integer(1, 65535)),
    Variable("RDNAAR_SECRET", None, _text(), secret=True),
)

# What the forks once read, and what to do instead.
RETIRED = {"VLLM_RDNA_AR_SPIN_CAP": "waits are bounded by RDNAAR_TIMEOUT_MS"}


# ---- Reading -----------------------------------------------------------------------------------


class Setting(NamedTuple):
    """The effective value of one variable. `origin` is the variable that set it, or "default"."""

    name: str
    field: str | None
    value: Any
    origin: str


def effective(environ: Mapping[str, str]) -> list[Setting]:
    """Every setting of the table with where it came from; ConfigError for a bad value."""
    return [_read(variable, environ) for variable in VARIABLES]


def setting(name: str, environ: Mapping[str, str]) -> Any:
    """The effective value of one variable of the table."""
    return _read(next(v for v in VARIABLES if v.name == name), environ).value


def is_set(name: str, environ: Mapping[str, str]) -> bool:
    """Whether a variable of the table, in any of its spellings, has a value."""
    return _read(next(v for v in VARIABLES if v.name == name), environ).origin != "default"


def _read(variable: Variable, environ: Mapping[str, str]) -> Setting:
    for name in (variable.name, variable.fork):
        # An empty variable counts as not set, as in most shells' ${NAME:-default}.
        raw = environ.get(name, "").strip() if name else ""
        if not raw:
            continue
        try:
            value = variable.kind.parse(raw)
            variable.kind.check(value)
        except ValueError:
            raise ConfigError(
                f"{name}={raw!r} is not accepted: it takes {variable.kind.accepts}"
            ) from None
        return Setting(variable.name, variable.field, value, str(name))
    default = getattr(Config, variable.field) if variable.field else None
    return Setting(variable.name, variable.field, default, "default")


def unread(environ: Mapping[str, str]) -> list[str]:
    """One sentence for each variable that looks like ours and that nothing reads."""
    known = [v.name for v in VARIABLES] + [v.fork for v in VARIABLES if v.fork]
    notes = []
    for name in sorted(environ):
        if name in RETIRED:
            notes.append(f"{name} is no longer used: {RETIRED[name]}")
        elif name.startswith(("RDNAAR_", "VLLM_RDNA_AR")) and name not in known:
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
            notes.append(f"{name} is not a known variable, and is ignored; nearest is {nearest}")
    return notes


def environ_of(pid: int) -> dict[str, str]:
    """The environment with which process `pid` was started.

    The kernel keeps what exec() was given: what the process itself changed later is not seen.
    """
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the environment of process {pid}: {error}") from None
    pairs = (os.fsdecode(entry).partition("=") for entry in raw.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}
