"""The installed build is the one that was asked for, is this checkout's, and its release kernels never need the GIL."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rml
from rml import native
from rml.build_info import BUILD, processor_flags, read_build_info
from rml.errors import KernelsUnavailable

CHECKOUT = Path(__file__).resolve().parent.parent
INSTALLED = Path(rml.__file__).parent


def test_the_expected_kernels_run() -> None:
    expected = os.environ.get("RML_EXPECT")
    if expected is None:
        pytest.skip("RML_EXPECT is not set: nothing was promised about the kernels")
    assert BUILD.mode == expected
    assert (expected != "interpreted") == rml.COMPILED


def test_installed_files_are_the_checkouts() -> None:
    if INSTALLED == CHECKOUT / "rml":
        pytest.skip("running from the checkout itself")
    ours = {p.relative_to(CHECKOUT / "rml"): p.read_bytes() for p in (CHECKOUT / "rml").rglob("*.py")}
    theirs = {p.relative_to(INSTALLED): p.read_bytes() for p in INSTALLED.rglob("*.py")}
    assert ours == theirs, "the installed wheel is stale: run nox without -R"


def built(folder: Path, **changes: object) -> Path:
    about = {"mode": "release", "compiler": "c", "march": "m", "cpu_flags": [], "mypy": "1", "librt": "1"}
    (folder / "_build.json").write_text(json.dumps(about | changes))
    return folder


def test_a_build_for_another_processor_is_refused_by_its_missing_instructions(tmp_path: Path) -> None:
    with pytest.raises(KernelsUnavailable, match=r"built for another processor \(m\).*lacks no_such_flag\. Rebuild"):
        read_build_info(built(tmp_path, cpu_flags=["no_such_flag"]), None)
    present = sorted(processor_flags())[:3]
    assert read_build_info(built(tmp_path, cpu_flags=present), None).mode == "release"


@pytest.mark.parametrize("wanted", ["checked", "release", "fast"])
def test_other_kernels_than_those_built_are_refused(tmp_path: Path, wanted: str) -> None:
    other = "release" if wanted == "checked" else "checked"
    with pytest.raises(KernelsUnavailable, match=wanted):
        read_build_info(built(tmp_path, mode=other), wanted)


def test_no_build_is_an_error_and_never_a_quiet_fallback(tmp_path: Path) -> None:
    with pytest.raises(KernelsUnavailable, match=r"not compiled.*pip install"):
        read_build_info(tmp_path, None)
    assert read_build_info(tmp_path, "interpreted").mode == "interpreted"


def test_the_environment_decides_at_import() -> None:
    wanted = {"release": "checked", "checked": "release"}.get(BUILD.mode, "release")
    code = f"import os; os.environ['RML_KERNELS'] = {wanted!r}; import rml"
    run = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert "KernelsUnavailable" in run.stderr


# What compiled kernels may call: other kernels, libc on memory, and runtime functions that touch no object while their
# argument is in range (a positive square root, a division by a size that is never zero). fma: see kernels/fma.py.
HARMLESS = re.compile(
    r"<(CPyDef_\w+|mem(set|cpy|move)@plt|fma@plt|CPyInt64_(Divide|Remainder)(@plt)?|CPyFloat_Sqrt(@plt)?)"
)


def machine_code() -> dict[str, str]:
    """The instructions of every kernel, by its name in C."""
    if BUILD.mode != "release" or shutil.which("objdump") is None:
        pytest.skip("needs release kernels and objdump")
    library = next(INSTALLED.parent.glob("rml__mypyc*.so"))
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", library], capture_output=True, text=True, check=True
    ).stdout
    functions = dict(re.findall(r"^[0-9a-f]+ <(CPyDef_\w+)>:\n((?:.+\n)*)", text, re.M))
    return {name: body for name, body in functions.items() if not re.search("top_level|_fma___", name)}  # for CPython


@pytest.mark.compiled
def test_no_release_kernel_reaches_the_interpreter() -> None:
    kernels = machine_code()
    assert len(kernels) > 50
    calls = [
        (name, target)
        for name, body in kernels.items()
        for target in re.findall(r"\b(?:call|jmp)\s+[0-9a-f]+ (<[^>]+>)", body)
        if not HARMLESS.match(target) and not target.startswith(f"<{name}+")
    ]
    assert calls == []


@pytest.mark.compiled
def test_a_product_and_a_sum_are_one_instruction() -> None:
    body = machine_code()["CPyDef_dense_twelve___twelve_dots"]
    if "fma" not in BUILD.cpu_flags:
        pytest.skip("the instruction is that of x86-64 with FMA")
    assert "vfmadd" in body
    assert "vmul" not in body


@pytest.mark.compiled
@pytest.mark.parametrize("width", ["nibbles", "bytes", "twos", "threes", "fives", "sixes"])
def test_a_lone_token_multiplies_what_is_in_registers(width: str) -> None:
    body = machine_code()[f"CPyDef_panel_dot___dot_{width}"]
    if "avx2" not in BUILD.cpu_flags:
        pytest.skip("the instruction is that of x86-64 with AVX2")
    assert "vpmaddubsw" in body
    assert not re.search(r"vpmaddwd|vpdpw|\bcall\b", body), "bytes are multiplied in pairs, and nothing is called"


def test_a_kernel_sees_every_kind_of_argument_and_the_magic_number() -> None:
    native.check_convention()
    assert native.kernel("probe.count")(-113) == -113


def test_wrong_arguments_are_refused_before_the_call() -> None:
    echo = native.kernel("probe.echo")
    good = [native.buffer(7, t) for t in (np.uint8, np.int16, np.int32, np.int64, np.float64)]
    memory = native.buffer(24, np.uint8)
    with pytest.raises(TypeError, match=r"b is vec\[i16\], given int32"):
        echo(good[0], good[2], *good[2:], memory, 1, 1.0)
    with pytest.raises(TypeError, match="takes"):
        echo(*good, memory, 1)
    with pytest.raises(TypeError, match="contiguous"):
        echo(good[0][::2], *good[1:], memory, 1, 1.0)
    with pytest.raises(KernelsUnavailable, match="no kernel"):
        native.kernel("probe.nothing")


def test_checked_and_interpreted_kernels_test_every_index() -> None:
    if BUILD.mode == "release":
        pytest.skip("release kernels test no index")
    short = [native.buffer(1, t) for t in (np.uint8, np.int16, np.int32, np.int64, np.float64)]
    with pytest.raises(IndexError):
        native.kernel("probe.echo")(*short, native.buffer(24, np.uint8), 1, 1.0)


def test_buffers_alias_in_every_mode() -> None:
    memory = native.buffer(4, np.float64)
    memory[1] = -2.5
    assert memory.view(np.int64)[1] == np.float64(-2.5).view(np.int64)
    assert memory.ctypes.data % (64 if BUILD.mode == "release" else 8) == 0


def test_joined_memory_reaches_every_part() -> None:
    parts = [native.copy(range(n, n + 9), np.uint8) for n in (0, 50, 100)]
    memory, offsets = native.join(parts)
    whole = native.copy([0] * 7, np.int64)
    for part, offset in zip(parts, offsets, strict=True):
        if BUILD.mode != "release":
            assert memory[offset : offset + 9].tolist() == part.tolist()
        else:
            assert memory.ctypes.data + offset == part.ctypes.data
    assert whole.size == 7
