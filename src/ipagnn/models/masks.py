"""The fillings of masked lines in a batch, for models that run a program once for each."""

from dataclasses import replace
from itertools import product
from typing import Final

import numpy as np
import torch
from torch import Tensor

from ipagnn.data.contract import Batch
from ipagnn.languages.arithmetic.grammar import Grammar
from ipagnn.languages.arithmetic.tables import masked_choices
from ipagnn.languages.arithmetic.vocabulary import MASK, NUMBER, VARIABLE

MOST_MASKS: Final = 2
"""Masked lines that a program may have."""


def fill_masks(batch: Batch, mask_weights: Tensor, grammar: Grammar) -> list[tuple[Batch, Tensor]]:
    """The batch with each filling of its masked lines, and the weight of each; the batch if there are none.

    Args:
        batch: The programs.
        mask_weights: The logit of each statement that a masked line may stand for, in the order of `masked_choices`.
        grammar: The grammar of the programs.

    Raises:
        ValueError: A program has too many masked lines, or the grammar allows too many statements.
    """
    masked = batch.node_tokens[:, 1] == MASK
    of_program = torch.zeros_like(batch.node_offsets[1:]).index_add(0, batch.node_program, masked.to(torch.int32))
    most = int(of_program.max()) if len(batch) else 0
    if most > MOST_MASKS:
        raise ValueError(
            f"A program has {most} masked lines; this execution takes at most {MOST_MASKS}, as it runs a program "
            "for each filling of them. Leave fewer lines masked."
        )
    if most and not len(mask_weights):
        raise ValueError(
            "A program has a masked line; in languages past the paper's it may be any of too many statements. "
            "Give complete programs."
        )
    weights = mask_weights.softmax(dim=0)
    if not most:
        return [(batch, weights.new_ones(()))]
    number = masked.cumsum(0) - 1  # of each masked line, counted within its program
    before = torch.cat([of_program.new_zeros(1), of_program.cumsum(0)])[batch.node_program.long()]
    place = torch.where(masked, number - before, -1)
    choices = torch.from_numpy(masked_choices(grammar).astype(np.int32)).to(masked.device)
    fillings = []
    for chosen in product(range(len(choices)), repeat=most):
        tokens, weight = batch.node_tokens.clone(), weights.new_ones(())
        for i, choice in enumerate(chosen):  # a program with fewer masked lines is the same for all other choices
            tokens[place == i, 1:] = torch.stack(
                [choices[choice, 0], choices.new_tensor(VARIABLE), choices[choice, 1] + NUMBER]
            )
            weight = weight * weights[choice]
        fillings.append((replace(batch, node_tokens=tokens), weight))
    return fillings
