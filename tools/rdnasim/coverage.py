# SPDX-License-Identifier: Apache-2.0
"""Which instructions a library's code objects have, and which of them the simulator executes.

    python3 coverage.py LIBRARY SIMULATOR
    python3 coverage.py --table LIBRARY

The second prints the table of docs/rdnasim.md.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from offload_bundle import code_objects
from operands import Unknown
from rdna_code import CodeObject
from translate import HINTS, expand

WAITS = "waits, barriers, branches, messages"
KINDS = (
    ("scalar memory", "s_load"),
    (WAITS, ("s_wait", "s_barrier", "s_branch", "s_cbranch")),
    (WAITS, ("s_endpgm", "s_sleep", "s_sendmsg", "s_memrealtime")),
    ("scalar", ("s_", "v_s_")),
    ("comparisons", "v_cmp"),
    ("vector", "v_"),
    ("LDS", "ds_"),
    ("cache controls", ("buffer_gl", "global_inv", "global_wb")),
    ("memory", ("global_", "flat_", "buffer_")),
)
# In the order of the table, with what shows that they are right.
TESTED_BY = {
    "scalar": "numpy",
    "vector": "numpy; the three of division as the compiler's sequence",
    "comparisons": "numpy",
    "scalar memory": "numpy",
    "memory": "numpy; the litmus programs",
    "LDS": "numpy",
    "cache controls": "the litmus programs, mutants",
    WAITS: "the litmus programs, mutants; all runs",
}
TARGETS = {"gfx1030": "gfx10", "gfx1100": "gfx11", "gfx1201": "gfx12"}


def kind_of(name: str) -> str:
    return next(kind for kind, prefixes in KINDS if name.startswith(prefixes))


def known_names(simulator: Path) -> set[str]:
    engine = ctypes.CDLL(str(simulator))
    engine.rdnasim_instruction_names.restype = ctypes.c_char_p
    return set(engine.rdnasim_instruction_names().decode().split())


def names_in(code: CodeObject) -> Counter[str]:
    """Operations by name, those of dual instructions one by one; what cannot be read, as it is."""
    names: Counter[str] = Counter()
    for kernel in code.kernels():
        for instruction in kernel.instructions:
            try:
                names.update(o.name for o in expand(instruction))
            except Unknown:
                names[instruction.name] += 1
    return names


def table(library: Path) -> list[str]:
    """In Markdown: what the three targets have in common, and what some of them have."""
    objects = code_objects(library)
    names = {
        generation: set(names_in(CodeObject(objects[target])))
        for target, generation in TARGETS.items()
    }
    lines = ["| kind | names | which | tested by |", "|---|---|---|---|"]
    for kind, tested_by in TESTED_BY.items():
        groups: dict[tuple[str, ...], list[str]] = {}
        for name in sorted({n for some in names.values() for n in some if kind_of(n) == kind}):
            where = tuple(g for g in names if name in names[g])
            groups.setdefault(where, []).append(f"`{name}`")
        everywhere = groups.pop(tuple(names), [])
        parts = [" ".join(everywhere)] * bool(everywhere)
        parts += [f"{', '.join(where)}: {' '.join(groups[where])}" for where in sorted(groups)]
        counts = [sum(kind_of(n) == kind for n in some) for some in names.values()]
        lines.append(
            f"| {kind} | {' / '.join(map(str, counts))} | {'; '.join(parts)} | {tested_by} |"
        )
    return lines


def main() -> int:
    if sys.argv[1] == "--table":
        print("\n".join(table(Path(sys.argv[2]))))
        return 0
    library, simulator = map(Path, sys.argv[1:])
    known, missing = known_names(simulator), 0
    for target, content in code_objects(library).items():
        names = names_in(CodeObject(content))
        rows: dict[str, list[str]] = {}
        for name in sorted(names):
            rows.setdefault(kind_of(name), []).append(
                name if name in known else f"{name} (MISSING)"
            )
            missing += name not in known
        print(f"{target}: {len(names)} names in {sum(names.values())} operations")
        for kind, members in rows.items():
            print(f"  {kind} ({len(members)}): {' '.join(members)}")
    print(f"{len(HINTS)} hints are passed over: {' '.join(sorted(HINTS))}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
