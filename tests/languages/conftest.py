"""Languages past the paper's."""

from dataclasses import replace

import pytest

from ipagnn.languages.arithmetic import Grammar

from ..conftest import EXTENDED

LARGE = Grammar(modulus=10**12, initial_values=(0, 10**12 - 1), operands=(1, 10**6), factors=(0, 9))
BY_DIGITS = replace(LARGE, modulus=10**18, initial_values=(0, 10**18 - 1), by_digits=True)
OPERANDS = Grammar(modulus=10**6, variables=4, digit_variables=2, operand_variable=2, factors=(0, 9))
CONDITIONS = Grammar(modulus=10**5, variables=3, condition_variable=1, condition_number=1, wrap=True)
GRAMMARS = {"large": LARGE, "by digits": BY_DIGITS, "operands": OPERANDS, "conditions": CONDITIONS, "all": EXTENDED}


@pytest.fixture(params=GRAMMARS)
def grammar(request: pytest.FixtureRequest) -> Grammar:
    return GRAMMARS[request.param]
