"""The environment IPA-GNN without the pointer mass that is not worth following."""

from dataclasses import replace

import pytest
import torch

from ipagnn.evaluation import evaluate
from ipagnn.languages.arithmetic import Lengths, Sampler, parse
from ipagnn.models import build_model, load_model


@pytest.mark.parametrize("values", ["classes", "digits"])
@pytest.mark.parametrize("task", ["full", "partial"])
def test_what_is_dropped_makes_the_only_difference(values: str, task: str) -> None:
    model = build_model("env-ipa-gnn", hidden=16, width=8, values=values).double().eval()
    batch = model.collate(Sampler(task, Lengths.uniform(range(5, 25)), seed=1).table(0, 12))  # type: ignore[arg-type]
    record = ("pointer", "branch", "dropped")
    with torch.no_grad():
        whole = model(batch, record=("pointer",))
    exact, pruned = (model(batch, prune=prune, record=record) for prune in (1e-300, 1e-3))
    assert torch.allclose(exact.logits.exp(), whole.logits.exp(), rtol=1e-10, atol=1e-15)
    assert not exact["dropped"].any()
    assert (pruned["dropped"] > 0).any()
    difference = (pruned.logits.exp() - whole.logits.exp()).abs().sum(dim=1)
    assert (difference <= pruned["dropped"] + 1e-12).all()
    steps = len(exact["pointer"])
    reachable = whole["pointer"][:steps] > 0
    assert torch.allclose(exact["pointer"][reachable], whole["pointer"][:steps][reachable], rtol=1e-10)


@pytest.mark.parametrize("values", ["classes", "digits"])
def test_negligible_mass_is_within_rounding(values: str) -> None:
    model = build_model("env-ipa-gnn", hidden=16, width=8, values=values).double().eval()
    batch = model.collate(Sampler("full", Lengths.uniform(range(5, 25)), seed=3).table(0, 12))
    with torch.no_grad():
        whole = model(batch)
    pruned = model(batch, prune=model.negligible_mass)
    assert torch.allclose(pruned.logits.exp(), whole.logits.exp(), rtol=0, atol=1e-6)


def test_beliefs_are_not_recorded_of_what_is_pruned() -> None:
    model = build_model("env-ipa-gnn", hidden=8, width=4).eval()
    batch = model.collate(Sampler("full", Lengths.exact(10), seed=1).table(0, 2))
    with pytest.raises(ValueError, match="Pruned execution does not record beliefs"):
        model(batch, prune=0.1, record=("beliefs",))


def test_an_evaluation_with_steps_prunes_what_cannot_matter() -> None:
    model = build_model("env-ipa-gnn", hidden=8, width=4).eval()
    table = Sampler("full", Lengths.uniform(range(5, 15)), seed=2).table(0, 10)
    evaluation = evaluate(model, table, tables=False, pointer=True)
    assert evaluation.bounded
    assert evaluation.prediction.tolist() == model(model.collate(table)).logits.argmax(dim=1).tolist()
    assert evaluation.pointer is not None


def test_a_program_whose_pointer_has_not_arrived_has_no_answer() -> None:
    model = load_model("env-ipa-gnn-full").eval()
    programs = [parse("v0 = 7\nv1 = 9\nwhile v1 > 0:\n  v1 -= 1\n  v0 *= 1"), parse("v0 = 7\nv0 *= 1")]
    batch = replace(model.collate(programs), targets={"value": torch.tensor([7, 7])})
    with torch.inference_mode():
        output = model(batch)
    assert output.logits.argmax(dim=1).tolist() == [7, 7]  # some mass leaves the loop early
    assert model.correct(output, batch).tolist() == [False, True]
