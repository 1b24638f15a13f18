"""Builds the kernels. Everything else about the package stands in pyproject.toml.

RML_KERNELS=release      (default) compiled, without bounds checks, called without the GIL
RML_KERNELS=checked      compiled, every index tested
RML_KERNELS=interpreted  not compiled: the same files are run by CPython
RML_MARCH=native         (default) the processor to compile for, in the compiler's spelling (x86-64-v3, znver4, ...)
CC, LDSHARED             the compiler to use; without CC, the clang inside the `ziglang` package
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

MODES = ("release", "checked", "interpreted")
MODE = os.environ.get("RML_KERNELS", "release")
if MODE not in MODES:
    raise SystemExit(f"RML_KERNELS={MODE!r} is none of {', '.join(MODES)}")

# The compiled files: an allow-list. All of them are loops over packed memory; nothing outside rml/kernels is compiled,
# since code that handles objects gains little from it and loses tracing, coverage and patching.
COMPILED = {
    "rml/kernels/probe.py": "echoes one argument of every kind: proves the calling convention at import",
    "rml/kernels/sync.py": "the barrier and the bounded wait of the ranks: must not hold the GIL",
    "rml/kernels/prefetch.py": "a hint that the release step turns into an instruction",
    "rml/kernels/apart.py": "a promise that the release step turns into an assumption",
    "rml/kernels/fma.py": "fused multiply-add, which the build turns into an instruction",
    "rml/kernels/exp.py": "exp, sigmoid and tanh: millions of them in a prefill",
    "rml/kernels/lanes.py": "from the lanes of dot products to sums",
    "rml/kernels/half.py": "floats of 16 bits",
    "rml/kernels/dense.py": "dot products of F32, F16 and BF16 rows",
    "rml/kernels/dense_four.py": "four long rows at once",
    "rml/kernels/dense_eight.py": "eight dot products of float64 rows at once",
    "rml/kernels/dense_twelve.py": "twelve of them",
    "rml/kernels/widen.py": "weights of every type in float64",
    "rml/kernels/exact.py": "rows of every type times float64 activations",
    "rml/kernels/quantize.py": "rounds activations to int8",
    "rml/kernels/kinds.py": "sizes and ranges of the stored types",
    "rml/kernels/short_blocks.py": "blocks of 32 weights, widened to float64",
    "rml/kernels/k_quants.py": "blocks of the K types, widened to float64",
    "rml/kernels/pack.py": "rewrites rows as panels",
    "rml/kernels/pack_parts.py": "moves the bits of a block to their places in a panel",
    "rml/kernels/panel_blocks.py": "unpacks the blocks of a panel",
    "rml/kernels/panel_dot.py": "32 positions of a panel times int8 activations",
    "rml/kernels/panel_bytes.py": "the same for Q8_0",
    "rml/kernels/panel_sums.py": "from integer sums to totals",
    "rml/kernels/panel_sums_four.py": "the same for four tokens",
    "rml/kernels/panel_scratch.py": "where the scratch of panels holds what",
    "rml/kernels/panels_few.py": "panels times up to three tokens",
    "rml/kernels/panels.py": "panels times one token or many",
    "rml/kernels/panel_rows.py": "one row of a panel, widened to float64",
    "rml/kernels/matmul.py": "chooses the row kernel of a format, shares the rows",
    "rml/kernels/norms.py": "RMSNorm and the element-wise steps between products",
    "rml/kernels/rope.py": "rotates queries and keys",
    "rml/kernels/cache_rows.py": "writes keys and values into the cache",
    "rml/kernels/cache_read.py": "reads cache rows as float64",
    "rml/kernels/attend_scores.py": "scores of queries and sixteen keys",
    "rml/kernels/attend_turned.py": "the same for many queries",
    "rml/kernels/attend_scores_f32.py": "the same on f32 keys in place",
    "rml/kernels/attend_values.py": "weighted sums of value rows",
    "rml/kernels/attend_values_f32.py": "the same of f32 rows in place",
    "rml/kernels/attend_in_place.py": "cache rows used where they lie, by few queries",
    "rml/kernels/attend_state.py": "the frame and the states of attention",
    "rml/kernels/attend_block.py": "one block of keys taken into the states",
    "rml/kernels/attend.py": "online-softmax attention",
    "rml/kernels/opcodes.py": "constants of the program: inlined where they are used",
    "rml/kernels/tokenwise.py": "steps shared among the ranks token by token",
    "rml/kernels/rowwise.py": "steps shared among the ranks row by row",
    "rml/kernels/experts.py": "products with chosen experts",
    "rml/kernels/program.py": "runs the steps of a whole forward pass",
}

# Instruction sets that a compiler may use on its own, and their names in /proc/cpuinfo.
CPU_FLAGS = {
    "SSE3": "pni", "SSSE3": "ssse3", "SSE4_1": "sse4_1", "SSE4_2": "sse4_2", "POPCNT": "popcnt", "LZCNT": "abm",
    "BMI": "bmi1", "BMI2": "bmi2",
    "AVX": "avx", "AVX2": "avx2", "FMA": "fma", "F16C": "f16c", "AVXVNNI": "avx_vnni", "GFNI": "gfni",
    "AVX512F": "avx512f", "AVX512BW": "avx512bw", "AVX512VL": "avx512vl", "AVX512DQ": "avx512dq",
    "AVX512CD": "avx512cd", "AVX512IFMA": "avx512ifma",
    "AVX512VNNI": "avx512_vnni", "AVX512VBMI": "avx512vbmi", "AVX512VBMI2": "avx512_vbmi2",
    "AVX512BITALG": "avx512_bitalg",
    "AVX512VPOPCNTDQ": "avx512_vpopcntdq", "AVX512BF16": "avx512_bf16", "AVX512FP16": "avx512_fp16",
}  # fmt: skip


# Kernels that are to become part of each caller in their file, however long that makes it: what they read must stay in
# the caller's registers.
INLINED = tuple(f"panel_dot___{name}" for name in ("promise", "request", "take", "take_joined", "meet"))


# Kernels that ask for a cache line: where its memory begins, and the compiler's number of the cache, 3 the nearest.
PREFETCHES = (
    ("prefetch", r"PyBytes_AS_STRING(\2)", 3),
    ("prefetch_second", r"PyBytes_AS_STRING(\2)", 2),
    ("prefetch_item", r"\2.items", 3),
)


def fused(c: str) -> str:
    """The generated C with each call of the kernel `fma` as the compiler's own, which is defined exactly."""
    c = re.sub(r"\b(cpy_r_r\d+) = CPyDef_(?:\w+___)?fma\((?!arg_)", r"\1 = __builtin_fma(", c)
    if re.search(r"CPyDef_(?:\w+___)?fma\((?!arg_|double )", c):  # what is left is the function for CPython
        raise SystemExit("this mypyc writes its calls another way")
    return c


def release(c: str) -> str:
    """The generated C of a kernel module without what keeps its loops from vectorising or needs the GIL.

    Ten rewrites: the first test of each index becomes true (its failure leads to index + len, then to
    IndexError); pointers are typed as pointers, not integers; the comparison with -113, mypyc's mark for a possible
    error, becomes false; float(i) of an i32 becomes a conversion instead of a call through a tagged int; and the
    item of a vec[u8] is no C character, which may alias everything and would guard each loop that writes other
    types (what a kernel writes as bytes it reads as bytes or u8); a float divided by zero is what IEEE says and not
    an exception; a call of a kernel that returns nothing cannot have failed; a call of one of the kernels PREFETCHES,
    which do nothing, becomes the compiler's prefetch, and one of `apart` its assumption of separate storage; the
    kernels INLINED become part of their callers. And reads through `bytes` lose their bounds test. As many
    tests are rewritten as there are IndexErrors and ZeroDivisionErrors.
    """
    lines = c.split("\n")
    checks = 0
    for i, line in enumerate(lines):
        test = re.match(r"\s*(cpy_r_r\d+) = \(uint64_t\)(\w+) < \(uint64_t\)(\w+);$", line)
        if test and not re.match(rf"\s*{test[2]} = \w+ \+ {test[3]};$", lines[i - 1]):
            lines[i] = f"    {test[1]} = 1;"
            checks += 1
    c = "\n".join(lines)
    errors = c.count("PyErr_SetNone(PyExc_IndexError)")
    if checks != errors:
        raise SystemExit(
            f"release step: {errors} index checks but {checks} rewritten: this mypyc writes them another way"
        )
    c = re.sub(r"\bCPyPtr\b", "char *", c)
    c = re.sub(r"(?m)^(\s*cpy_r_r\d+) = cpy_r_r\d+ == -113(\.0)?;$", r"\1 = 0;", c)
    tagged = r"(\w+) = (\w+) << 1;\n\s*(\w+) = CPyFloat_FromTagged\(\1\);\n\s*CPyTagged_DECREF\(\1\);"
    c = re.sub(tagged, r"\3 = (double)(Py_ssize_t)\2;", c)
    divided = r"(?m)^(\s*(cpy_r_r\d+)) = \w+ == 0\.0;(\n\s*if \((?:un)?likely\(!?\2\)\))"
    c, divisions = re.subn(divided, r"\1 = 0;\3", c)
    if divisions != c.count("float division by zero"):
        raise SystemExit("release step: this mypyc writes its tests for division by zero another way")
    c = re.sub(r"if \(unlikely\(cpy_r_r\d+ == 2\)\) \{", "if (0) {", c)
    for name, place, cache in PREFETCHES:
        asked = rf"\b(cpy_r_r\d+) = CPyDef_(?:\w+___)?{name}\((\w+), (\w+)\);"
        c = re.sub(asked, rf"__builtin_prefetch({place} + \3, 0, {cache}); \1 = 1;", c)
    promised = r"\b(cpy_r_r\d+) = CPyDef_(?:\w+___)?apart(?:_i16)?\((\w+), (\w+)\);"
    c = re.sub(promised, r"RML_APART(\2.items, \3.items); \1 = 1;", c)
    hints = "|".join(name for name, _, _ in PREFETCHES)
    if re.search(rf"= CPyDef_(?:\w+___)?(?:{hints}|apart(?:_i16)?)\(cpy", c):
        raise SystemExit("release step: this mypyc writes its calls another way")
    inlined = rf"(?m)^(char CPyDef_(?:{'|'.join(INLINED)})\([^;{{]*\) \{{)$"
    c, marked = re.subn(inlined, r"__attribute__((always_inline)) \1", c)
    if marked != sum(f"(PyCFunction)CPyPy_{name}," in c for name in INLINED):
        raise SystemExit("release step: this mypyc writes its functions another way")
    byte = "#ifdef __clang__\ntypedef unsigned _BitInt(8) rml_u8;\n#else\ntypedef unsigned char rml_u8;\n#endif\n"
    byte += "#if defined(__has_builtin) && __has_builtin(__builtin_assume_separate_storage)\n"
    byte += "#define RML_APART(a, b) __builtin_assume_separate_storage(a, b)\n#else\n#define RML_APART(a, b)\n#endif\n"
    c = byte + c.replace("*(uint8_t *)", "*(rml_u8 *)")
    unsafe = r"CPyBytes_Read\1LEUnsafe((const unsigned char *)PyBytes_AS_STRING(\2) + \3)"
    return re.sub(r"CPyBytes_Read([IF]\d\d)LE\((\w+), (\w+)\)", unsafe, c)


def compiler_command() -> list[str]:
    """The C compiler: the user's CC, else the clang of the ziglang package (also for linking)."""
    if "CC" not in os.environ:
        os.environ["CC"] = f"{sys.executable} -m ziglang cc"
        os.environ.setdefault("LDSHARED", f"{sys.executable} -m ziglang cc -shared")
    return shlex.split(os.environ["CC"])


def march_flag(compiler: list[str]) -> str:
    march = os.environ.get("RML_MARCH", "native")
    return "-march=" + (march.replace("-", "_") if "ziglang" in compiler else march)


def required_cpu_flags(compiler: list[str], march: str) -> list[str]:
    """What the compiler may use for this -march, read from its predefined macros, in the names of /proc/cpuinfo."""
    command = [*compiler, march, "-dM", "-E", "-x", "c", os.devnull]
    macros = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [flag for macro, flag in CPU_FLAGS.items() if f"#define __{macro}__ 1" in macros]


def kernel_extensions() -> tuple[list[Extension], dict[str, object]]:
    """The one extension group that holds all kernels, and the description that rml.build_info reads."""
    about: dict[str, object] = {"mode": MODE, "python": sys.version.split()[0]}
    if MODE == "interpreted":
        return [], about
    present = {path.as_posix() for path in Path("rml/kernels").glob("*.py")} - {"rml/kernels/__init__.py"}
    if present != set(COMPILED):  # one of them left to the interpreter would run without the lock that it needs
        raise SystemExit(f"rml/kernels and the list COMPILED differ: {sorted(present ^ set(COMPILED))}")
    compiler = compiler_command()
    march = march_flag(compiler)
    about |= {
        "compiler": subprocess.run(
            [*compiler, "--version"], capture_output=True, text=True, check=True
        ).stdout.splitlines()[0],
        "march": march.removeprefix("-march="),
        "cpu_flags": required_cpu_flags(compiler, march),
        "mypy": version("mypy"),
        "librt": version("librt"),
    }
    from mypyc.build import mypycify

    # multi_file: each kernel file is its own C file, so that one big file does not eat memory and time
    extensions: list[Extension] = mypycify(
        # skip: the kernels import one another and nothing else; the rest of the package is no matter of this build
        ["--follow-imports=skip", *COMPILED],
        opt_level="3",
        debug_level="0",
        multi_file=True,
        group_name="rml",
    )
    # no -fwrapv: the index arithmetic must be understood; no contraction but where the source says fma: it defines
    # every bit
    flags = [march, "-fno-wrapv", "-ffp-contract=off", "-fno-math-errno"]
    # where a short loop begins in its cache line can cost a third of its speed (Q8_0: 26 or 34 G weights/s, worst at
    # the line's start): so only functions are aligned, and a loop's place depends on its own function alone
    flags += ["-falign-functions=64", "-falign-loops=1"]
    for extension in extensions:
        extension.extra_compile_args = [*extension.extra_compile_args, *flags]  # not +=: they share one list
        for source in map(Path, extension.sources):
            text = fused(source.read_text())
            source.write_text(release(text) if MODE == "release" else text)
    return extensions, about


class BuildPy(build_py):
    """Also writes what was built, where rml.build_info finds it. Works from an empty folder: leftovers never ship."""

    def run(self) -> None:
        super().run()
        target = Path(self.build_lib) / "rml" / "_build.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(about, indent=1) + "\n")


class BuildExt(build_ext):
    """Compiles the C files of the group side by side, one per core."""

    def build_extension(self, ext: Extension) -> None:
        from concurrent.futures import ThreadPoolExecutor

        compile_one = self.compiler.compile

        def compile_all(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                parts = [pool.submit(compile_one, [source], **options) for source in sources]
                return [name for part in parts for name in part.result()]

        self.compiler.compile = compile_all
        try:
            super().build_extension(ext)
        finally:
            self.compiler.compile = compile_one


extensions, about = kernel_extensions()
setup(ext_modules=extensions, cmdclass={"build_py": BuildPy, "build_ext": BuildExt})
