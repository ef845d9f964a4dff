"""Learn what a masked line may have been, from partial programs and their final values.

    python experiments/mask_weights.py env-ipa-gnn-full src/ipagnn/weights/env-ipa-gnn-partial.safetensors

The model keeps what it has learned of statements. The weights of the statements that a mask may stand for start from
random numbers and are fitted to partial training programs by expectation maximisation over the model's tables
(`ipagnn.training.mask_weights`). Prints the largest and the smallest weight, and the accuracy on D_test beside that of
the exact ceiling. A model card is written beside the weights.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ipagnn.data.splits import recipe
from ipagnn.evaluation import build_test_recipe, evaluate_on_test_set
from ipagnn.languages.arithmetic.grammar import Lengths
from ipagnn.languages.arithmetic.holes import ceiling
from ipagnn.models import find_model_file, load_model, save_model
from ipagnn.models.env_ipa_gnn import EnvIPAGNN
from ipagnn.training.mask_weights import fit_mask_weights

CARD = """\
# {name}

Environment IPA-GNN with {hidden} hidden units for programs of the paper's language with masked lines: it predicts the
likeliest v0 mod {modulus} at their end.

- **Data**: {count:,} partial programs of 2 to {longest} lines, seed {seed}, and final values alone. Programs that are
  withheld from training are left out.
- **Training**: what statements do is that of `{start}`. 27 weights of what a mask may stand for were fitted to these
  programs in {rounds} rounds of expectation maximisation, from random numbers
  (`python experiments/mask_weights.py`). They lie between {least:.4f} and {most:.4f}; the grammar draws each statement
  with {uniform:.4f}.
- **Accuracy on longer programs**: {accuracy:.1%} ± {stderr:.1%} of {tested:,} (D_test); the guess of the exact ceiling
  gets {best:.1%} of the same programs.
- **Limits**: on programs unlike those of training neither its answers nor its probabilities mean much. One or two
  masked lines are exact, more are sampled.
- Weights are stored as float16 and computed with as float32. Licence: Apache-2.0, as the code.
"""


def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="Name, file or run folder of a model of complete programs.")
    parser.add_argument("out", type=Path, help="Where to write the weights.")
    parser.add_argument("--count", type=int, default=100_000, help="Partial programs to learn from.")
    parser.add_argument("--longest", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    model = load_model(options.model)
    if not isinstance(model, EnvIPAGNN):
        parser.error(f"{options.model} is no environment IPA-GNN, and has no weights of masked lines.")
    grammar = model.config.grammar
    lengths = Lengths.uniform(range(2, options.longest + 1))
    programs = recipe("train", "partial", options.count, options.seed, lengths, grammar).table(0, options.count)
    tables = model.tabulate()
    start = np.random.default_rng(options.seed).dirichlet(np.ones(len(tables.choices)))
    weights = fit_mask_weights(replace(tables, weights=start), programs, rounds=options.rounds)
    model.mask_weights.data = torch.from_numpy(np.log(weights.clip(1e-6))).float()
    save_model(model, options.out, task="partial", half=True, record=find_model_file(options.model).record)
    model = load_model(options.out)

    test = build_test_recipe("partial", grammar=grammar)
    found = evaluate_on_test_set(model, test)["overall"]
    table = test.table(0, test.count)
    best = float((ceiling(table, grammar).guess == table.target).mean())
    print(f"weights from {weights.min():.4f} to {weights.max():.4f}; all are {1 / len(weights):.4f} in the grammar")
    print(f"D_test partial: {found['accuracy']:.2%}; the exact ceiling's guess: {best:.2%}")
    options.out.with_suffix(".md").write_text(
        CARD.format(
            name=options.out.stem,
            hidden=model.config.hidden,
            modulus=grammar.modulus,
            count=options.count,
            longest=options.longest,
            seed=options.seed,
            start=options.model,
            rounds=options.rounds,
            least=weights.min(),
            most=weights.max(),
            uniform=1 / len(weights),
            accuracy=found["accuracy"],
            stderr=found["stderr"],
            tested=found["count"],
            best=best,
        ),
        "utf-8",
    )


if __name__ == "__main__":
    main()
