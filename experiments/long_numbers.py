"""Accuracy of a model whose values are digits, by length of program and number of digits.

    python experiments/long_numbers.py MODEL OUT.svg [--programs 200]

The automata of all statements are read off the model once. Programs of the paper's language are run over them, with
hard digits and hard decisions, and compared with the exact interpreter modulo 10^digits: the paper's test set with 3,
6, 12 and 18 digits, then programs of each length with each number of digits. Programs that execute more than
1,000,000 statements are counted apart, not as right or wrong.
"""

import argparse
import json
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from ipagnn.data.splits import build_test_set
from ipagnn.languages.arithmetic import Lengths, ProgramTable, Sampler
from ipagnn.languages.arithmetic.automata import Automaton, Statement
from ipagnn.languages.arithmetic.automata.run import GIVEN_UP, run_automata, statements_of
from ipagnn.languages.arithmetic.targets import values_of
from ipagnn.models import EnvIPAGNN, load_model

LENGTHS = (10, 20, 50, 100, 200, 500, 1_000)
DIGITS = (3, 5, 6, 9, 12, 15, 18)
TRAINED_LINES, TRAINED_DIGITS = 6, 5


def score(automata: dict[Statement, Automaton], programs: ProgramTable, digits: int, steps: int) -> dict[str, int]:
    """How many programs end right, how many end at all, and how many there are."""
    found = run_automata(automata, programs, digits, max_steps=steps, threads=2).value
    true = values_of(programs, 10**digits, threads=2)
    ended = found != GIVEN_UP
    return {"right": int((found == true)[ended].sum()), "ended": int(ended.sum()), "programs": len(programs)}


def draw(rows: list[dict[str, int]], path: Path) -> None:
    """The heat map, with the corner of training marked."""
    share = np.array(
        [[r["right"] / max(1, r["ended"]) for r in rows if r["digits"] == digits] for digits in DIGITS], float
    )
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    image = axes.imshow(100 * share, origin="lower", aspect="auto", vmin=0, vmax=100, cmap="viridis")
    axes.set_xticks(range(len(LENGTHS)), [f"{x:,}" for x in LENGTHS])
    axes.set_yticks(range(len(DIGITS)), [str(x) for x in DIGITS])
    axes.set_xlabel("lines of the program")
    axes.set_ylabel("digits")
    for (i, j), value in np.ndenumerate(share):
        color = "black" if value > 0.6 else "white"
        axes.text(j, i, f"{100 * value:.1f}", ha="center", va="center", fontsize=8, color=color)
    corner = sum(x <= TRAINED_DIGITS for x in DIGITS)
    axes.add_patch(Rectangle((-0.62, -0.5), 0.12, corner, color="red", clip_on=False))
    axes.set_title(f"Red: trained on up to {TRAINED_LINES} lines and {TRAINED_DIGITS} digits", fontsize=9)
    figure.colorbar(image, label="accuracy, %")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Read the automata, run the programs, print one line of JSON per result, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=1_000_000)
    given = parser.parse_args()
    model = load_model(given.model).eval()
    if not isinstance(model, EnvIPAGNN):
        raise SystemExit(f"{given.model} has no automata; choose a model whose values are digits.")
    test_set = build_test_set("full")
    samples = {x: Sampler("full", Lengths.exact(x), seed=11).table(0, given.programs) for x in LENGTHS}
    needed = sorted({statement for table in (test_set, *samples.values()) for statement in statements_of(table)})
    began = time.perf_counter()
    automata = dict(zip(needed, model.automata(needed), strict=True))
    print(json.dumps({"automata": len(automata), "seconds": round(time.perf_counter() - began, 1)}))
    for digits in (3, 6, 12, 18):
        found = score(automata, test_set, digits, given.steps)
        print(json.dumps({"set": "D_test full", "digits": digits, **found}), flush=True)
    rows = []
    for digits in DIGITS:
        for length, programs in samples.items():
            rows.append({"lines": length, "digits": digits, **score(automata, programs, digits, given.steps)})
            print(json.dumps(rows[-1]), flush=True)
    draw(rows, given.out)


if __name__ == "__main__":
    main()
