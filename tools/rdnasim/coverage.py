# SPDX-License-Identifier: Apache-2.0
"""Which instructions a library's code objects have, and which of them the simulator executes.

python3 coverage.py LIBRARY SIMULATOR
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

KINDS = (
    ("scalar memory", "s_load"),
    ("waits, barriers, branches, messages", ("s_wait", "s_barrier", "s_branch", "s_cbranch")),
    ("waits, barriers, branches, messages", ("s_endpgm", "s_sleep", "s_sendmsg", "s_memrealtime")),
    ("scalar", ("s_", "v_s_")),
    ("comparisons", "v_cmp"),
    ("vector", "v_"),
    ("LDS", "ds_"),
    ("cache controls", ("buffer_gl", "global_inv", "global_wb")),
    ("memory", ("global_", "flat_", "buffer_")),
)


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


def main() -> int:
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
