"""Train a model whose values are digits: three stages, targets of five digits. Minutes on one core.

    python experiments/train_digits.py RUN [--seed 0] [--steps 1500]

Programs are those of the paper's language, of up to 6 lines; only their final value is taken modulo 100,000 instead of
1,000. `ipagnn semantics RUN` then says for which statements the learned automata are the true ones.
"""

import argparse

from ipagnn.languages.arithmetic import Grammar
from ipagnn.models import model_config
from ipagnn.training import train
from ipagnn.training.presets import preset
from ipagnn.training.stages import Stage


def main() -> None:
    """Train, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1_500, help="of the second stage")
    given = parser.parse_args()
    stages = (
        Stage(length=2, batch_size=512, steps=4_000, until=0.95, learning_rate=3e-3),
        Stage(length=3, batch_size=512, steps=given.steps, learning_rate=3e-3, final_learning_rate=2e-4),
        Stage(length=6, batch_size=256, steps=80, learning_rate=2e-4, final_learning_rate=5e-5),
    )
    model = model_config("env-ipa-gnn", hidden=128, width=32, values="digits", grammar=Grammar(modulus=100_000))
    config = preset("environment").replace(
        model=model, stages=stages, seed=given.seed, threads=1, log_every=50, validation_count=250
    )
    print(train(config, given.run))


if __name__ == "__main__":
    main()
