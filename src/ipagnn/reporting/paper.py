"""What the paper shows: its numbers, and the programs of its figures."""

from typing import Final

ORDER: Final = ("ipa-gnn", "trace-rnn", "no-execute", "line-rnn", "no-control", "ggnn", "hard-ip-rnn", "r-gat")
"""The models of its table by accuracy, then those that it has no numbers for."""

ACCURACY: Final[dict[tuple[str, str], float]] = {
    ("trace-rnn", "full"): 0.664,
    ("line-rnn", "full"): 0.320,
    ("no-control", "full"): 0.281,
    ("no-execute", "full"): 0.507,
    ("ggnn", "full"): 0.160,
    ("ipa-gnn", "full"): 0.621,
    ("line-rnn", "partial"): 0.115,
    ("no-control", "partial"): 0.081,
    ("no-execute", "partial"): 0.207,
    ("ggnn", "partial"): 0.057,
    ("ipa-gnn", "partial"): 0.291,
}
"""Accuracy on D_test (its table 2); R-GAT and the Hard IP-RNN are not in it."""

TEST_PROGRAMS: Final = 4_500
"""Programs behind each of these numbers."""

REPRESENTATION: Final = """\
v0 = 23
v1 = 6
while v1 > 0:
  v1 -= 1
  if v0 % 10 <= 3:
    v0 += 4
    v0 *= 6
  v0 -= 1"""
"""The program of figure 1."""

PATHS: Final = """\
v0 = 407
if v0 % 10 < 3:
  v0 += 4
else:
  v0 -= 2"""
"""The program of figure 2."""

_BRANCHES = """\
v0 = {}
if v0 % 10 < 5:
  v0 -= 3
else:
  v0 -= 4
  v0 += 2
  v0 *= 9
if v0 % 10 >= 4:
  if v0 % 10 < 6:
    v0 *= 8"""
_LOOP = """\
v0 = {}
v7 = 7
while v7 > 0:
  v7 -= 1
  v0 -= 9
if v0 % 10 < 5:
  v0 -= 6
  v0 *= 1
  v0 -= 4
v0 += 7"""

POINTER: Final = (
    tuple(_BRANCHES.format(start) for start in (323, 849)),
    tuple(_LOOP.format(start) for start in (159, 673)),
)
"""The two programs of figure 4, each with its two initial values."""

SUPPLEMENT: Final = (
    """\
v0 = 589
if v0 % 10 >= 8:
  v0 *= 4
else:
  if v0 % 10 < 0:
    v0 *= 1
  else:
    if v0 % 10 >= 6:
      if v0 % 10 < 3:
        v0 += 9""",
    """\
v0 = 36
if v0 % 10 >= 7:
  v0 *= 3
  if v0 % 10 > 3:
    v0 *= 4
    v5 = 3
    while v5 > 0:
      v5 -= 1
      break
v0 *= 2""",
    """\
v0 = 528
v0 *= 1
v0 += 9
v0 += 3
if v0 % 10 < 8:
  if v0 % 10 < 3:
    if v0 % 10 < 0:
      v0 -= 7
    v0 -= 9""",
    """\
v0 = 117
if v0 % 10 <= 6:
  v0 -= 9
  v0 += 7
else:
  v1 = 2
  while v1 > 0:
    v1 -= 1
    v0 -= 6
v0 *= 1""",
)
"""The four programs of the supplement."""

_MASKED_LINES = (9, 2, 1, 8)


def _mask(source: str, line: int) -> str:
    lines = source.split("\n")
    indent = lines[line][: len(lines[line]) - len(lines[line].lstrip())]
    return "\n".join([*lines[:line], f"{indent}[MASK]", *lines[line + 1 :]])


SUPPLEMENT_MASKED: Final = tuple(_mask(*pair) for pair in zip(SUPPLEMENT, _MASKED_LINES, strict=True))
"""The same, masked where the paper masks them."""
