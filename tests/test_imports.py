"""The architecture as a test: modules import downwards only, and no file asks for a model's name but the config's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# lowest first: a module imports only from lines above its own
ORDER = [
    ["errors"],
    ["formats", "build_info"],
    ["kernels"],
    ["native", "arenas", "caches", "mapped_file", "json_file", "pre_tokenizers"],
    ["token_codecs"],
    ["config", "config_keys", "hf_keys", "rope_config"],
    ["config_hf", "config_gguf", "gguf_file", "safetensors_file", "tensor_names"],
    ["weight_source"],
    ["rope", "kv_cache"],
    ["attention", "moe", "layers", "steps", "threads"],
    ["engine", "slow_types"],
    ["panels"],
    ["decoder"],
    ["chat_worker"],
    ["chat", "memory"],
    ["tokenizer"],
    ["tokenizer_files"],
    ["generate", "inspection"],
    ["model", "scoring"],
    ["verify_text", "verify_determinism", "verify_record", "verify_taps", "verify_kld", "verify_kv"],
    ["verify_sides", "verify_hints", "verify_evidence", "verify_bisect"],
    ["cli_tables", "cli"],
    ["verify_tables", "verify_commands", "verify_bisect_commands"],
]
RANK = {name: i for i, names in enumerate(ORDER) for name in names}
FAMILIES = re.compile(r"\b(llama|mistral|mixtral|qwen\w*|gemma\w*|olmoe?)\b", re.I)


def imported(path: Path) -> Iterator[tuple[str, bool]]:
    """(dotted name, whether it is needed at run time) of every import in a file."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, True
            yield from ((f"{node.module}.{alias.name}", True) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, True) for alias in node.names)


def module_of(dotted: str) -> str | None:
    parts = dotted.split(".")
    return parts[1] if parts[0] == "rml" and len(parts) > 1 else None


@pytest.mark.parametrize("path", sorted((ROOT / "rml").glob("*.py")), ids=lambda p: p.stem)
def test_modules_import_downwards_only(path: Path) -> None:
    if path.stem.startswith("__"):
        return
    assert path.stem in RANK, f"{path.name} has no place in the import order: add it to ORDER"
    for dotted, _ in imported(path):
        other = module_of(dotted)
        if other in RANK and other != path.stem:
            assert RANK[other] <= RANK[path.stem], f"{path.name} imports {dotted}, which stands above it"


def test_the_engine_and_the_reference_know_nothing_of_each_other() -> None:
    for folder, forbidden in (("rml", ("reference", "tools", "tests")), ("reference", ("rml", "tools", "tests"))):
        for path in (ROOT / folder).rglob("*.py"):
            wrong = [name for name, _ in imported(path) if name.split(".")[0] in forbidden]
            assert not wrong, f"{path}: {wrong}"


def code_without_prose(path: Path) -> str:
    """A file's code with docstrings and comments taken out."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Pass()
    return ast.unparse(tree)


def test_no_file_asks_for_a_models_name_but_the_config() -> None:
    allowed = {
        "config.py",
        "config_hf.py",
        "config_gguf.py",
        "config_keys.py",
        "tensor_names.py",
        "pre_tokenizers.py",
        "tokenizer_files.py",
    }
    for path in (ROOT / "rml").rglob("*.py"):
        if path.name not in allowed:
            found = FAMILIES.findall(code_without_prose(path))
            assert not found, f"{path.name} names {found}: make it a switch of ModelConfig"
