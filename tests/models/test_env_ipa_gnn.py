"""The environment IPA-GNN: two executions, numbers by hand, several languages, masked lines."""

import pytest
import torch

from ipagnn.data.collate import StepBudget
from ipagnn.data.contract import Batch
from ipagnn.languages.arithmetic import Grammar, Lengths, ProgramTable, Sampler, parse
from ipagnn.languages.arithmetic.tables import ValueTables, grammar_statements
from ipagnn.models import EnvIPAGNN, ProgramModel, load_model, save_model
from ipagnn.nn.targets import MAX_CLASSES
from ipagnn.nn.values.base import Values
from ipagnn.nn.values.classes import Classes

from ..conftest import reference

EXACT = {"rtol": 1e-9, "atol": 1e-13}
GRAMMARS = {
    "few": Grammar(modulus=10, condition_modulus=5, initial_values=(0, 9), counters=2),
    "odd": Grammar(modulus=21, condition_modulus=7, initial_values=(0, 20), operands=(1, 19), loop_counts=(1, 4)),
    "large": Grammar(modulus=30, initial_values=(0, 29), comparisons=("<",), arithmetic_operations=("+=", "-=")),
}


def small(grammar: Grammar, **options: object) -> EnvIPAGNN:
    model = EnvIPAGNN(hidden=7, width=5, grammar=grammar, seed=1, **options).double()
    with torch.no_grad():
        model.values.branch *= 8  # decisions far from even
        model.mask_weights.copy_(torch.linspace(-1, 1, len(model.mask_weights)))
    return model


def gradients(model: ProgramModel, batch: Batch) -> dict[str, torch.Tensor]:
    model.zero_grad()
    model.loss(model(batch, record=("likelihood",)), batch).sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("task", ["full", "partial"])
@pytest.mark.parametrize("name", sorted(GRAMMARS))
def test_executions_agree(name: str, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grammar = GRAMMARS[name]
    packed = small(grammar, budget=StepBudget("static", cap=40))
    dense = reference(packed)
    lengths = Lengths.uniform((2, 4, 7, 11, 16)[: 5 if task == "full" else 3])
    table = Sampler(task, lengths=lengths, grammar=grammar, seed=5).table(0, 25 if task == "full" else 6)  # type: ignore[arg-type]
    batch = packed.collate(table)
    ours, theirs = (model(batch, record=("pointer", "branch", "likelihood")) for model in (packed, dense))
    torch.testing.assert_close(ours.logits.exp(), theirs.logits.exp(), **EXACT)
    torch.testing.assert_close(ours["likelihood"], theirs["likelihood"], **EXACT)
    useful = ours["pointer"] > 0
    torch.testing.assert_close(ours["pointer"][useful], theirs["pointer"][useful], **EXACT)
    decided = ~ours["branch"].isnan()
    torch.testing.assert_close(ours["branch"][decided], theirs["branch"][decided], **EXACT)
    alone = packed(batch, record=("likelihood",))
    assert not alone.predictions
    torch.testing.assert_close(alone["likelihood"], theirs["likelihood"], **EXACT)
    torch.testing.assert_close(packed.loss(alone, batch), packed.loss(ours, batch), **EXACT)
    ours, theirs = gradients(packed, batch), gradients(dense, batch)
    monkeypatch.setattr(Classes, "follow_target", Values.follow_target)  # plain torch, as on a GPU
    plain = gradients(packed, batch)
    names = dict(packed.named_parameters()).keys() - ({"mask_weights"} if task == "full" else set())
    assert ours.keys() == theirs.keys() == plain.keys() == names
    for key, gradient in ours.items():
        assert gradient.abs().max() > 1e-6, key
        for other in (theirs, plain):
            torch.testing.assert_close(
                gradient, other[key], rtol=1e-8, atol=1e-11, msg=lambda m, key=key: f"{key}: {m}"
            )


class ByHand:
    """Values whose statements and decisions a hand can follow: exact arithmetic, and decisions of 3/4."""

    def __init__(self, model: EnvIPAGNN) -> None:
        self.tables = ValueTables.exact(model.config.grammar)
        self.modulus = model.config.grammar.modulus

    def statement(self, operation: torch.Tensor, operand: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
        outcome = torch.from_numpy(self.tables.outcomes)[torch.from_numpy(self.tables.rows)[operation, operand].long()]
        return torch.zeros_like(view).scatter_add(1, outcome.long(), view)

    def literal(self, operand: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(operand, self.modulus).double()

    def condition(self, operation: torch.Tensor, operand: torch.Tensor, view: torch.Tensor) -> torch.Tensor:
        return torch.tensor([[3.0, 1.0]], dtype=torch.float64).log().expand(len(view), 2)

    def view(self, belief: torch.Tensor) -> torch.Tensor:
        return belief


@pytest.fixture(params=["auto", "reference"])
def by_hand(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> EnvIPAGNN:
    model = small(GRAMMARS["few"])
    if request.param == "reference":
        model = reference(model)
        assert isinstance(model, EnvIPAGNN)
    hand = ByHand(model)
    for name in ("statement", "literal", "condition", "view"):
        monkeypatch.setattr(model.values, name, getattr(hand, name))
    monkeypatch.setattr(Classes, "follow_target", Values.follow_target)  # compiled code would not call them
    return model


def chances(model: EnvIPAGNN, source: str) -> dict[int, float]:
    """The values that the model gives a chance, with the chance of each."""
    probability = model(model.collate([parse(source, 5)])).logits[0].exp()
    return {i: pytest.approx(float(x), abs=1e-9) for i, x in enumerate(probability) if x > 1e-9}


def test_an_if_by_hand(by_hand: EnvIPAGNN) -> None:
    assert chances(by_hand, "v0 = 7") == {7: 1}
    assert chances(by_hand, "v0 = 7\nif v0 % 5 > 3:\n  v0 *= 3\nv0 += 4") == {5: 0.75, 1: 0.25}
    # Beliefs meet before the last line: 3/4 of 2 and 1/4 of 8, doubled.
    assert chances(by_hand, "v0 = 7\nif v0 % 5 > 3:\n  v0 += 5\nelse:\n  v0 += 1\nv0 *= 2") == {4: 0.75, 6: 0.25}


def test_variables_do_not_touch_each_other(by_hand: EnvIPAGNN) -> None:
    assert chances(by_hand, "v0 = 7\nv3 = 2\nv3 += 4\nv0 += 1") == {8: 1}


def test_mass_that_does_not_arrive_is_missing(by_hand: EnvIPAGNN) -> None:
    # T(x) = 7: the loop is left after 1, 3 and 5 tests of 1/4 each; 27/64 are still in it.
    source = "v0 = 3\nwhile v0 > 0:\n  v0 -= 1"
    assert chances(by_hand, source) == {3: 1 / 4, 2: 3 / 16, 1: 9 / 64}
    batch = by_hand.collate(ProgramTable.from_programs([parse(source, 5)], [2]))
    loss = by_hand.loss(by_hand(batch, record=("likelihood",)), batch)
    torch.testing.assert_close(loss.exp(), torch.tensor([16 / 3], dtype=torch.float64))


def test_beliefs_of_each_variable_at_each_step(by_hand: EnvIPAGNN) -> None:
    batch = by_hand.collate([parse("v0 = 7\nv1 = 2\nif v1 > 1:\n  v0 += 1\nv1 -= 1", 5)])
    output = by_hand(batch, record=("beliefs", "pointer"))
    assert output.recorded["beliefs"].axes == ("step+1", "node", "variable", "value")
    beliefs = output["beliefs"]
    assert beliefs.shape == (batch.steps.max() + 1, 6, 2, 10)
    assert beliefs[1, 1].argmax(1).tolist() == [7, 0], "a variable that was never written is 0"
    assert beliefs[2, 2].argmax(1).tolist() == [7, 2]
    torch.testing.assert_close(beliefs[4, 4, 0, [7, 8]], torch.tensor([0.0, 1.0], dtype=torch.float64))
    torch.testing.assert_close(beliefs[-1, 5, 0, [7, 8]], torch.tensor([0.25, 0.75], dtype=torch.float64))
    torch.testing.assert_close(beliefs[-1, 5, 1, 1], torch.ones((), dtype=torch.float64))


def test_a_masked_line_is_each_statement_with_its_weight(by_hand: EnvIPAGNN) -> None:
    weights = by_hand.mask_weights.softmax(0).detach()
    statements = grammar_statements(by_hand.config.grammar)[: len(weights)].tolist()
    expected = torch.zeros(10, dtype=torch.float64)
    for (operation, operand), weight in zip(statements, weights, strict=True):
        expected[int({1001: 3 + operand, 1002: 3 - operand, 1003: 3 * operand}[operation] + 1) % 10] += weight
    found = by_hand(by_hand.collate([parse("v0 = 3\n_\nv0 += 1", 5), parse("v0 = 3", 5)])).logits.exp()
    torch.testing.assert_close(found[0], expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found[1, 3], torch.ones((), dtype=torch.float64))


def test_what_a_batch_shares_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(GRAMMARS["few"])
    calls = []
    run = model.values._run
    monkeypatch.setattr(model.values, "_run", lambda *given: (calls.append(len(given[1])), run(*given))[1])
    batch = model.collate([parse("v0 = 3\nv0 += 1\nv0 *= 2", 5)] * 5 + [parse("v0 = 3\nv0 += 1", 5)])
    model(batch)
    assert calls == [1, 1, 1], "one literal and two statements"


def test_tables_say_what_the_network_says(tmp_path: object) -> None:
    model = small(GRAMMARS["odd"])
    tables = model.tabulate()
    assert tables.statements.tolist() == grammar_statements(model.config.grammar).tolist()
    for row, value in ((0, 3), (30, 20)):
        operation, operand = tables.statements[row].tolist()
        name = {1001: "+=", 1002: "-=", 1003: "*="}[operation]
        with torch.no_grad():  # the literal's belief made certain, so that both read the same
            model.values.output_bias[value] += 1e4
            literal = model.values.literal(torch.tensor([value]))
            assert literal[0, value] == 1
            model.values.output_bias[value] -= 1e4
            belief = model.values.statement(
                torch.tensor([operation - 1001]), torch.tensor([operand]), model.values.view(literal)
            )
        assert tables.outcomes[row, value] == belief.argmax(), name
        assert tables.probabilities[row, value] == pytest.approx(float(belief.max().detach()))
    assert tables.weights == pytest.approx(model.mask_weights.softmax(0).tolist())
    chosen = tables.statements[[5, 2]]
    again = model.tabulate(chosen)
    assert (again.outcomes == tables.outcomes[[5, 2]]).all()


def test_saved_weights_come_back(tmp_path: object) -> None:
    model = EnvIPAGNN(hidden=8, width=6, grammar=GRAMMARS["large"])
    path = f"{tmp_path}/model.safetensors"
    save_model(model, path, task="full")
    loaded = load_model(path)
    assert isinstance(loaded, EnvIPAGNN)
    assert loaded.config == model.config
    assert all(torch.equal(x, model.state_dict()[name]) for name, x in loaded.state_dict().items())


def test_bad_input_is_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match=f"at most {MAX_CLASSES:,}"):
        small(GRAMMARS["few"]).values.__class__(MAX_CLASSES + 1, 1, 1, torch.Generator())
    model = small(GRAMMARS["few"])
    with pytest.raises(ValueError, match="The target of a program is unknown"):
        model(model.collate([parse("v0 = 1", 5)]), record=("likelihood",))
    with pytest.raises(ValueError, match="A program has 3 masked lines; this execution takes at most 2"):
        model(model.collate([parse("v0 = 1\n_\n_\n_", 5)]))
    with pytest.raises(ValueError, match="values is 'numbers'; it must be one of auto, classes, digits"):
        EnvIPAGNN(values="numbers")
