# SPDX-License-Identifier: Apache-2.0
"""The stand-in for the HIP runtime: what it exports, its errors, and what it refuses."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import struct
import subprocess
from pathlib import Path

import offload_bundle
import program
import pytest
import translate
from operands import Unknown
from rdna_code import CodeObject, Instruction

from .conftest import LIBRARY, ROOT, SIMULATOR, run, simulated

# Of the real library: Debian's libamdhip64 5.2.3.
VERSION_NODES = {
    "hipInit": "hip_4.2",
    "hipMalloc": "hip_4.2",
    "hipModuleLaunchKernel": "hip_4.2",
    "hipStreamBeginCapture": "hip_4.3",
    "hipGraphLaunch": "hip_4.3",
    "hipGraphInstantiateWithFlags": "hip_4.5",
    "hipPointerGetAttribute": "hip_5.0",
}


def test_symbols_have_the_versions_of_the_real_library() -> None:
    command = ["nm", "-D", "--with-symbol-versions", "--defined-only", str(SIMULATOR)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    versions = dict(re.findall(r" T (\w+)@@(\S+)", output))
    assert VERSION_NODES.items() <= versions.items()
    source = (ROOT / "libhiprdnaar/src/device/gpu_api.h").read_text()
    wanted = set(re.findall(r"X\(\w+, (hip\w+), cu\w+", source))
    assert wanted <= set(versions)


def test_the_library_finds_it_by_itself() -> None:
    text = (
        "import pyrdnaar\nlibrary = pyrdnaar.load('hip')\n"
        "print([library.device(i).name for i in range(library.device_count())])\n"
        "print(library.build_info().runtime)"
    )
    result = run(["-c", text], simulated("R9700", 2))
    assert result.stdout.count("R9700 (simulated)") == 2, result.stderr
    assert str(SIMULATOR.parent) in result.stdout


def test_a_device_without_kernels(tmp_path: Path) -> None:
    """A library for another target is refused as on a GPU."""
    library = tmp_path / "libhiprdnaar.so"
    library.write_bytes(LIBRARY.read_bytes().replace(b"amdhsa--gfx1201", b"amdhsa--gfx1999"))
    environment = simulated("R9700", 1, RDNAAR_LIBRARY=str(library))
    result = run(
        ["-m", "pyrdnaar", "selftest", "-n", "1", "--threads", "--backend", "hip"], environment
    )
    assert result.returncode == 3, result.stdout
    assert "no kernels that device 0" in result.stderr


def test_no_uncached_memory() -> None:
    environment = simulated("V620", 2, RDNASIM_UNCACHED="no")
    result = run(
        ["-m", "pyrdnaar", "selftest", "-n", "2", "--threads", "--backend", "hip"], environment
    )
    assert result.returncode == 3, result.stdout
    assert "cannot allocate uncached device memory" in result.stderr


def test_refused_peer_access_takes_the_host_transport() -> None:
    environment = simulated("V620", 2, RDNASIM_PEER="refused")
    arguments = ["-m", "pyrdnaar", "selftest", "-n", "2", "--backend", "hip", "--end", "4K"]
    assert run(arguments, environment).returncode == 0
    forced = run(arguments, environment | {"RDNAAR_TRANSPORT": "p2p"})
    assert forced.returncode != 0
    assert "RDNAAR_TRANSPORT=host" in forced.stderr


@pytest.mark.parametrize("fault", ["corrupt", "drop", "stall"])
def test_a_broken_link_is_never_a_success(fault: str) -> None:
    """One ordered pair of devices: the call fails or the self test counts wrong elements."""
    environment = simulated("V620", 2, "weak", 1, RDNASIM_PEER_FAULT=f"{fault}:0:1")
    environment["RDNAAR_WARMUP_TIMEOUT_MS"] = environment["RDNAAR_TIMEOUT_MS"] = "2000"
    arguments = ["-m", "pyrdnaar", "selftest", "-n", "2", "--backend", "hip", "--end", "16K"]
    assert run(arguments, environment).returncode == 1


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"RDNASIM_DEVICES": "V720"}, "V720"),
        ({"RDNASIM_MEMORY": "medium"}, "medium"),
        ({"RDNASIM_SEED": "x"}, "RDNASIM_SEED"),
        ({"RDNASIM_PEER_FAULT": "drop:0:1"}, "RDNASIM_MEMORY=weak"),
    ],
)
def test_bad_settings_are_named(setting: dict[str, str], text: str) -> None:
    result = run(["-m", "pyrdnaar", "info"], simulated("V620", 1) | setting)
    assert result.returncode != 0
    assert text in result.stderr


# ---- What the translator refuses -----------------------------------------------------------------


def load(path: Path) -> str:
    """What the engine says of a program."""
    text = (
        f"import ctypes\nengine = ctypes.CDLL({str(SIMULATOR)!r})\n"
        "engine.rdnasim_run_wave.restype = ctypes.c_char_p\n"
        f"print(engine.rdnasim_run_wave({str(path).encode()!r}, bytes(1 << 20)))"
    )
    return run(["-c", text], simulated("V620", 1)).stdout


def test_unknown_instructions_are_named(tmp_path: Path) -> None:
    names = ("v_frobnicate_b32", "v_mov_b32", "s_wobble_b64")
    operations = [
        o
        for n in names
        for o in translate.expand(Instruction(0, n, "v1, v2" if n[0] == "v" else "s[0:1], s[2:3]"))
    ]
    file = tmp_path / "test.program"
    file.write_bytes(program.pack("gfx1030", [program.Kernel("k", operations, 0, 0, 0, 8, 0, 0)]))
    said = load(file)
    assert "v_frobnicate_b32, s_wobble_b64" in said
    assert "v_mov_b32" not in said


@pytest.mark.parametrize("size", [0, 20, 100])
def test_damaged_programs_are_refused(size: int, tmp_path: Path) -> None:
    file = tmp_path / "test.program"
    whole = program.pack(
        "gfx1030", [program.Kernel("k", [program.Operation("s_endpgm", 0)], 0, 0, 0, 8, 0, 0)]
    )
    file.write_bytes(whole[:size])
    assert "is no program" in load(file)


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("v_add_f32", "v1, v2, v3 clamp"),
        ("v_add_f32", "v1, v2, v3 row_shr:1 row_mask:0xf bank_mask:0xf"),
        ("v_mov_b32", "v1, src_private_base"),
        ("global_load_dword", "v1, v[2:3], off nonsense"),
        ("buffer_load_dword", "v1, v2, s[4:7], 0 idxen"),
        ("s_sendmsg", "sendmsg(MSG_INTERRUPT)"),
    ],
)
def test_unknown_operands_are_refused(name: str, operands: str) -> None:
    with pytest.raises(Unknown):
        translate.expand(Instruction(0, name, operands))


@pytest.mark.parametrize(
    ("change", "text"),
    [("wave32", "64 lanes"), ("keeps_subnormals", "flushes"), ("scratch", "scratch")],
)
def test_modes_that_are_refused(change: str, text: str) -> None:
    code = CodeObject(next(iter(offload_bundle.code_objects(LIBRARY).values())))
    kernel = code.kernels()[0]
    descriptor, metadata = bytearray(kernel.descriptor), dict(kernel.metadata)
    translate.translate_kernel(kernel)
    if change == "wave32":
        descriptor[57] &= ~4 & 0xFF
    elif change == "keeps_subnormals":
        descriptor[50] &= 0xF0
    else:
        metadata[".private_segment_fixed_size"] = 16
    changed = dataclasses.replace(kernel, descriptor=bytes(descriptor), metadata=metadata)
    with pytest.raises(Unknown, match=text):
        translate.translate_kernel(changed)


def test_both_halves_of_a_dual_instruction_read_first() -> None:
    swap = Instruction(0, "v_dual_mov_b32", "v1, v2 :: v_dual_mov_b32 v2, v1")
    operations = translate.expand(swap)
    assert [o.name for o in operations] == ["v_mov_b32"] * 3
    assert operations[2].sources[0].register == translate.HIDDEN_VGPR


def test_structs_of_the_file_are_those_of_the_engine() -> None:
    packed = program.pack(
        "gfx1030", [program.Kernel("k", [program.Operation("s_endpgm", 0)], 0, 0, 0, 8, 0, 0)]
    )
    header, kernel, name, operation = 8 + 16 + 16, 64 + 40, program.NAME_BYTES, 64
    assert len(packed) == header + kernel + name + operation
    assert struct.unpack_from("<I", packed, 24) == (1,)


# ---- Beside the library --------------------------------------------------------------------------

HIP_PYTHON = """
import numpy as np
from hip import hip

import pyrdnaar

def check(answer):
    assert int(answer[0]) == 0, answer
    return answer[1] if len(answer) > 1 else None

def work(exchange):
    config = pyrdnaar.Config(blocks=8)
    with pyrdnaar.Communicator(
        exchange.rank, 2, exchange, "hip", device=exchange.rank, config=config
    ) as comm:
        check(hip.hipSetDevice(exchange.rank))
        stream = check(hip.hipStreamCreateWithFlags(1))
        x = np.full(1000, exchange.rank + 1, np.float32)
        buffer = check(hip.hipMalloc(x.nbytes))
        check(hip.hipMemcpy(buffer, x, x.nbytes, hip.hipMemcpyKind.hipMemcpyHostToDevice))
        comm.all_reduce_ptr(buffer, buffer, x.size, "fp32", stream=stream)
        check(hip.hipStreamSynchronize(stream))
        check(hip.hipMemcpy(x, buffer, x.nbytes, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
        assert (x == 3).all()
        exchange.all_gather(b"done")
    check(hip.hipStreamDestroy(stream))
    check(hip.hipFree(buffer))

pyrdnaar.run_threads(work, 2)
print(*{line.split()[-1] for line in open("/proc/self/maps") if "libamdhip64" in line})
"""


@pytest.mark.skipif(
    importlib.util.find_spec("hip") is None,
    reason="hip-python is not installed: pip install hip-python",
)
def test_hip_python_uses_the_same_runtime() -> None:
    result = run(["-c", HIP_PYTHON], simulated("V620", 2))
    assert result.stdout.split() == [str(SIMULATOR)], result.stderr
