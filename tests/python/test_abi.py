# SPDX-License-Identifier: Apache-2.0
"""_abi.py against the header, as a C compiler reads it, and against the compiled library."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path

import pytest
from conftest import HEADER

import pyrdnaar
from pyrdnaar import _abi, errors

# Enumerators are spelled <prefix><name>; a *_COUNT follows the last one.
ENUMS: list[tuple[str, str | None, type[IntEnum]]] = [
    ("RDNAAR_", "RDNAAR_STATUS_COUNT", _abi.Status),
    ("RDNAAR_", "RDNAAR_DTYPE_COUNT", _abi.Dtype),
    ("RDNAAR_", "RDNAAR_OP_COUNT", _abi.Op),
    ("RDNAAR_ALGO_", "RDNAAR_ALGO_COUNT", _abi.Algo),
    ("RDNAAR_TRANSPORT_", "RDNAAR_TRANSPORT_COUNT", _abi.Transport),
    ("RDNAAR_REASON_", "RDNAAR_REASON_COUNT", _abi.Reason),
    ("RDNAAR_PHASE_", "RDNAAR_PHASE_COUNT", _abi.Phase),
    ("RDNAAR_STRUCT_", "RDNAAR_STRUCT_COUNT", _abi.StructId),
]
CONSTANTS = {
    "RDNAAR_ABI_MAJOR": _abi.ABI_MAJOR,
    "RDNAAR_ABI_MINOR": _abi.ABI_MINOR,
    "RDNAAR_MAX_WORLD": _abi.MAX_WORLD,
    "RDNAAR_MAX_BLOCKS": _abi.MAX_BLOCKS,
    "RDNAAR_BLOB_BYTES": _abi.BLOB_BYTES,
    "RDNAAR_MAX_BYTES_LIMIT": _abi.MAX_BYTES_LIMIT,
    "RDNAAR_AUTO": _abi.AUTO,
}


def test_the_header_as_compiled(compile_c: Callable[..., Path]) -> None:
    wanted: dict[str, int] = dict(CONSTANTS)
    for prefix, count, enum in ENUMS:
        wanted |= {prefix + member.name: member.value for member in enum}
        wanted[str(count)] = len(enum)
    for name, struct in _abi.STRUCTS.values():
        wanted[f"sizeof({name})"] = ctypes.sizeof(struct)
        for field, *_ in struct._fields_:
            descriptor = getattr(struct, field)
            wanted[f"offsetof({name}, {field})"] = descriptor.offset
            wanted[f"sizeof((({name} *)0)->{field})"] = descriptor.size
    lines = "\n".join(f"P({expression});" for expression in wanted)
    program = compile_c(
        "layout",
        "#include <rdnaar.h>\n#include <stddef.h>\n#include <stdio.h>\n"
        '#define P(e) printf("%s=%llu\\n", #e, (unsigned long long)(e))\n'
        f"int main(void) {{\n{lines}\nreturn 0; }}\n",
    )
    output = subprocess.run([program], capture_output=True, text=True, check=True, timeout=10)
    # Macros are expanded by #e only in P's own argument: compare by position.
    seen = [int(line.rpartition("=")[2]) for line in output.stdout.splitlines()]
    assert dict(zip(wanted, seen, strict=True)) == wanted


def test_every_field_of_the_header_is_there() -> None:
    text = _without_comments(HEADER.read_text())
    for name, struct in _abi.STRUCTS.values():
        body = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", text, re.S)
        assert body, name
        fields = re.findall(r"(\w+)(?:\[\w+\])?;", body[1])
        assert fields == [field for field, *_ in struct._fields_]


def test_every_function_with_its_prototype() -> None:
    text = _without_comments(HEADER.read_text())
    prototypes = [" ".join(p.split()) for p in re.findall(r"^RDNAAR_API\s+([^;]+;)", text, re.M)]
    source = Path(_abi.__file__).read_text()
    table = source[source.index("FUNCTIONS:") : source.index("def bind")]
    rows = [" ".join(p.split()) for p in re.findall(r"# ([^#]*?;)", _joined_comments(table))]
    assert rows == prototypes
    names = [re.search(r"(rdnaar_\w+)\(", p)[1] for p in prototypes]  # type: ignore[index]
    assert [f.name for f in _abi.FUNCTIONS] == names
    for prototype, function in zip(prototypes, _abi.FUNCTIONS, strict=True):
        parameters = prototype[prototype.index("(") + 1 : prototype.rindex(")")]
        expected = 0 if parameters == "void" else parameters.count(",") + 1
        assert len(function.argtypes) == expected, function.name


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", "", text, flags=re.S))


def _joined_comments(table: str) -> str:
    """The comment lines of the table, with continued prototypes on one line."""
    lines = [line.strip() for line in table.splitlines() if line.strip().startswith("#")]
    joined: list[str] = []
    for line in lines:
        if joined and not joined[-1].endswith(";"):
            joined[-1] += " " + line.lstrip("# ")
        else:
            joined.append(line)
    return "\n".join(joined)


def test_the_compiled_library(lib: pyrdnaar.Library) -> None:
    assert lib.abi_version == _abi.ABI_MAJOR << 16 | _abi.ABI_MINOR
    for which, (name, struct) in _abi.STRUCTS.items():
        assert lib.c.rdnaar_sizeof(which) == ctypes.sizeof(struct), name
    assert lib.c.rdnaar_sizeof(len(_abi.StructId)) == 0
    for status in _abi.Status:
        assert lib.status_name(status) == status.name
    assert lib.status_name(len(_abi.Status)) == "E_UNKNOWN"


def test_statuses_have_their_exception() -> None:
    for status, kind in errors.BY_STATUS.items():
        if "status" in kind.__dict__ and kind not in (errors.StateError,):
            assert kind.status == status
    assert errors.AbortError.status == _abi.Status.E_ABORTED
    assert errors.SelfTestError.status == _abi.Status.E_SELF_TEST


def test_a_missing_function_is_named(compile_c: Callable[..., Path]) -> None:
    library = compile_c(
        "partial.so", "int rdnaar_abi_version(void) { return 1 << 16; }", "-shared", "-fPIC"
    )
    with pytest.raises(errors.LibraryError, match=r"lacks rdnaar_status_name, .* more.*make"):
        pyrdnaar.load(path=library)
