"""Dropping pointer mass: which answers this could change, and that all others stand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ipagnn.evaluation import evaluate, summarise
from ipagnn.evaluation.refine import COARSE, FINE, Followed, Indices, rate_doubt, refine
from ipagnn.languages.arithmetic.grammar import Lengths
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.languages.arithmetic.sampler import Sampler
from ipagnn.models import ProgramModel, build_model, load_model

EXACT = 1e-20


@pytest.fixture
def programs() -> ProgramTable:
    return Sampler("full", Lengths.uniform((10, 20, 30)), seed=4).table(0, 24)


def soft(name: str = "ipa-gnn", seed: int = 0) -> ProgramModel:
    """A small random model that cannot decide, so that its pointer spreads over the program."""
    model = build_model(name, hidden=6, seed=seed).eval()
    with torch.no_grad():
        model.output.weight.mul_(8.0)
    return model


@given(seed=st.integers(0, 10**6), mass=st.floats(1e-6, 1), dropped=st.floats(1e-9, 1), share=st.floats(0, 1))
def test_answers_of_little_doubt_do_not_change(seed: int, mass: float, dropped: float, share: float) -> None:
    """Logits are means by mass: with any share of what was dropped, whatever logits it brings."""
    random = np.random.default_rng(seed)
    ours, theirs = random.normal(size=(2, 5)) * random.uniform(0.1, 10)
    top = np.sort(ours)
    spread = float(np.ptp(theirs))
    found = Followed(*(np.array([x]) for x in (top[-1] - top[-2], np.ptp(ours), mass, dropped)))
    arrived = share * dropped
    if rate_doubt(found, spread)[0] < 1:
        assert ((mass * ours + arrived * theirs) / (mass + arrived)).argmax() == ours.argmax()


def test_the_estimate_is_no_larger_than_it_must_be() -> None:
    """Mass that favours another answer by the whole spread turns it as soon as there is doubt."""
    mass, margin, spread = 0.5, 0.3, 2.0
    for dropped, turns in ((0.074, False), (0.076, True)):
        found = Followed(*(np.array([x]) for x in (margin, margin, mass, dropped)))
        assert (rate_doubt(found, spread)[0] >= 1) == turns
        assert (mass * margin - dropped * spread < 0) == turns


def test_nothing_dropped_leaves_no_doubt() -> None:
    found = Followed(*(np.array(x) for x in ([0.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 0.0, 1.0], [0.0, 0.1, 0.1])))
    assert rate_doubt(found, 2.0).tolist() == [0.0, np.inf, pytest.approx(0.2)]


@pytest.mark.parametrize(("tolerance", "open_answers"), [(0.0, 0), (0.2, 20), (0.5, 50), (1.0, 98)])
def test_the_smallest_doubt_is_refined_first(tolerance: float, open_answers: int) -> None:
    """Of 100 programs, the last loses the threshold, the one before it twice that, and so on; 0.02 can be lost."""
    runs: list[tuple[float, list[int]]] = []

    def follow(chosen: Indices, prune: float) -> Followed:
        runs.append((prune, chosen.tolist()))
        one = np.ones(len(chosen))
        return Followed(margin=0.04 * one, spread=one, exit_mass=one, dropped=(100 - chosen) * prune)

    is_open, dropped = refine(follow, 100, tolerance, EXACT)
    assert runs[0] == (COARSE[0], [*range(100)])
    assert runs[1] == (COARSE[1], [*range(99)])  # one may lose less than 0.02
    assert is_open.sum() == min(open_answers, 97)
    assert not is_open[97:].any()
    if tolerance < 0.9:
        assert runs[2] == (FINE[0], [*range(open_answers, 97)])
        assert dropped[96] == pytest.approx(4 * FINE[0])
    assert len(runs) == (2 if tolerance == 1 else 3)
    assert dropped[98] == pytest.approx(2 * COARSE[1])


def test_programs_that_stay_open_make_room_for_others() -> None:
    """Even programs are clear with 1e-5, odd ones only without a threshold."""
    runs: list[tuple[float, list[int]]] = []

    def follow(chosen: Indices, prune: float) -> Followed:
        runs.append((prune, chosen.tolist()))
        one = np.ones(len(chosen))
        lost = np.where((prune < 1e-6) | ((chosen % 2 == 0) & (prune < 1e-4)), 0.0, 1.0 + chosen)
        return Followed(margin=one, spread=one, exit_mass=one, dropped=lost)

    is_open, _ = refine(follow, 12, 0.5, EXACT)
    assert runs[2:] == [
        (1e-4, [0, 1, 2, 3, 4, 5]),
        (1e-5, [0, 1, 2, 3, 4, 5]),
        (1e-5, [6, 7, 8]),
        (1e-5, [9]),
        (EXACT, [1]),
    ]
    assert np.flatnonzero(is_open).tolist() == [3, 5, 7, 9, 10, 11]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tolerance", [0.1, 1.0])
def test_answers_that_are_not_open_are_those_of_the_exact_way(
    programs: ProgramTable, seed: int, tolerance: float
) -> None:
    model = soft(seed=seed)
    exact, found = evaluate(model, programs), evaluate(model, programs, tolerance=tolerance, pointer=True)
    assert exact.open is None
    assert found.open is not None
    assert found.dropped is not None
    assert found.open.mean() <= tolerance
    assert found.dropped.max() > 0
    assert not found.open.all()
    stands = ~found.open
    assert np.array_equal(found.prediction[stands], exact.prediction[stands])
    assert np.array_equal(found.target, exact.target)
    assert found.loss is not None
    assert found.loss.shape == exact.trace_length.shape
    assert found.pointer is not None
    for i in range(3):
        batch = model.collate(programs.take(np.array([i])))
        lost = [model(batch, prune=prune, record=("dropped",))["dropped"].item() for prune in (*COARSE, *FINE, EXACT)]
        assert np.isclose(found.dropped[i], lost, rtol=1e-3, atol=1e-9).any(), (
            "what the last run of this program dropped"
        )
    assert summarise(found)["dropped"]["open"] == found.open.sum()
    assert "dropped" not in summarise(exact)


def test_a_hard_pointer_drops_nothing(programs: ProgramTable) -> None:
    model = soft("hard-ip-rnn")
    found = evaluate(model, programs, tolerance=0.5)
    assert found.open is not None
    assert found.dropped is not None
    assert not found.open.any()
    assert not found.dropped.any()
    assert np.array_equal(found.prediction, evaluate(model, programs).prediction)


def test_threads_change_nothing(programs: ProgramTable) -> None:
    before = torch.get_num_threads()
    try:
        found = []
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(evaluate(soft(), programs, tolerance=0.2, batch_bytes=200_000))
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(before)
    one, three = found
    assert np.array_equal(one.prediction, three.prediction)
    np.testing.assert_allclose(one.answers["value"].margin, three.answers["value"].margin, atol=1e-4)


def test_other_models_have_no_tolerance(programs: ProgramTable) -> None:
    assert evaluate(build_model("line-rnn", hidden=4), programs, tolerance=0.5).open is None
    assert evaluate(soft(), programs.slice(0, 3), tolerance=0.5, prune=1e-3).open is None
    with pytest.raises(ValueError, match=r"tolerance is 1.5; it is a share of answers, from 0 to 1"):
        evaluate(soft(), programs, tolerance=1.5)


@pytest.mark.slow
def test_the_packaged_model_stands_by_its_answers() -> None:
    model = load_model("ipa-gnn-full")
    table = Sampler("full", Lengths.uniform((20, 30, 40)), seed=6).table(0, 45)
    exact, found = evaluate(model, table), evaluate(model, table, tolerance=0.2)
    assert found.open is not None
    assert found.open.mean() <= 0.2
    assert np.array_equal(found.prediction[~found.open], exact.prediction[~found.open])
