"""Counts lines of code per folder and holds every Python file under the ceiling: small files are read, large ones not.

python -m tools.sizes
"""

from __future__ import annotations

import io
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("rml", "rml/kernels", "reference", "tools", "tests")
CEILING = 400  # lines of one file, comments and docstrings included


def code_lines(source: str) -> int:
    """Lines that hold code: without comments, docstrings and blank lines."""
    lines: set[int] = set()
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    previous = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        starts_statement = previous in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.NL)
        if token.type not in skipped and not (token.type == tokenize.STRING and starts_statement):
            lines.update(range(token.start[0], token.end[0] + 1))
        previous = token.type
    return len(lines)


def main() -> int:
    """Prints the table; returns 1 when a file is above the ceiling."""
    too_long = []
    for folder in FOLDERS:
        files = sorted((ROOT / folder).glob("*.py"))
        print(f"{folder:12} {len(files):3} files {sum(code_lines(f.read_text()) for f in files):6} lines of code")
        too_long += [(f, n) for f in files if (n := len(f.read_text().splitlines())) > CEILING]
    for file, lines in too_long:
        print(f"{file.relative_to(ROOT)}: {lines} lines, more than {CEILING}: is it one thing?", file=sys.stderr)
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
