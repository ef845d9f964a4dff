"""Conditions in words: where reading may stop, and with which decision."""

from dataclasses import replace

import numpy as np

from ipagnn.languages.arithmetic.automata import Automaton, true_automaton
from ipagnn.languages.arithmetic.automata.reading import reading
from ipagnn.languages.arithmetic.vocabulary import ADD, OPERATION_ID


def test_reading() -> None:
    assert reading(true_automaton(ADD, 3)) == ""
    assert reading(true_automaton(OPERATION_ID["if < %"], 4)) == (
        "stops at the first digit: 0-3 holds, 4-9 does not hold"
    )
    loop = true_automaton(OPERATION_ID["while >"], 0).minimal()
    assert reading(loop) == "reads all digits"
    stops = loop.stops.copy()
    stops[1] = True
    assert reading(replace(loop, stops=stops)) == (
        "state 0: 0 reads on in state 0 (does not hold if the number ends), "
        "1-9 reads on in state 1 (holds if the number ends); state 1: 0-9 holds"
    )
    gives = np.array([[0, 1, 1, 0, 1, 1, 1, 0, 0, 1]], np.int32)
    odd = Automaton(OPERATION_ID["while >"], 0, gives, np.zeros_like(gives), np.ones(gives.shape, np.bool_))
    assert reading(odd) == "stops at the first digit: 0 and 3 and 7-8 does not hold, 1-2 and 4-6 and 9 holds"


def test_reading_of_pairs() -> None:
    below = true_automaton(OPERATION_ID["if <"], None).minimal()
    assert reading(below) == "reads all digits"
    stops = below.stops.copy()
    stops[0, [0, 11, 5]] = True  # 0 beside 0, 1 beside 1, and 5 beside 0
    stops[0, 70] = True  # 0 beside 7
    assert reading(replace(below, stops=stops)) == "state 0 stops at 4 of 100 pairs: does not hold at 3, holds at 1"


def test_few_states_of_large_automata_are_described() -> None:
    stay = np.zeros((5, 100), np.int32)
    large = Automaton(OPERATION_ID["if <"], None, stay, stay, np.ones(stay.shape, np.bool_))
    assert reading(large).endswith("state 2 stops at 100 of 100 pairs: does not hold at 100; and 2 states more")
    assert "state 3" not in reading(large)
