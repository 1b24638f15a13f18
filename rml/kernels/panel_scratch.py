"""Where the scratch of a rank holds what while panels are multiplied.

A lane e is a row of the panel, t a token of those taken at once:

    h[hs :]             the planes of a part, of two panels PANEL * 16 apart, or the pairs of Q8_0, of two panels PAIRS
                        apart; at SPREAD the spread activations of up to four tokens; at SUMS the sums of their
                        products; at PAIRS the pairs of Q6_K; at UNPACKED what dot_one needs
    k[ks + e]           integer scales and minima of a part (panel_blocks.part_scales); at BITS the factors of up to two
                        panels; at FOLDED the sums of a part; at BLOCK + 256 t the sums of a K type's block, 128 later
                        its minima's
    f[fs + 128 t + e]   the totals; those of a second panel TOKENS * PANEL later
"""

from __future__ import annotations

from typing import Final

TOKENS: Final = 64  # taken at once: their totals stay in the second cache
SPREAD: Final = 4096  # in h: PANEL * 32, of a part of Q8_0
SUMS: Final = 6144  # SPREAD + 4 * 512
PAIRS: Final = 8192  # SUMS + 4 * 512
UNPACKED: Final = 12288  # PAIRS + PANEL * 32
H_SCRATCH: Final = 13056  # UNPACKED + PANEL * 6
BITS: Final = 512  # in k: PANEL * 4
FOLDED: Final = 1024  # BITS + 2 * PANEL * 2
BLOCK: Final = 2048  # FOLDED + PANEL * 8
K_SCRATCH: Final = 18432  # BLOCK + TOKENS * PANEL * 2
F_SCRATCH: Final = 16384  # 2 * TOKENS * PANEL
