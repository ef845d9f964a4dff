import json
from pathlib import Path

import pytest
import torch

from ipagnn.data.collate import StepBudget
from ipagnn.languages.arithmetic import Lengths, Sampler
from ipagnn.languages.arithmetic.grammar import Grammar
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.languages.arithmetic.text import parse
from ipagnn.models import MODELS, ModelConfig, build_model, load_model, register, save_model
from ipagnn.models.ipa_gnn import IPAGNN


def test_a_configuration_survives_json() -> None:
    config = ModelConfig(
        name="r-gat",
        hidden=12,
        heads=3,
        budget=StepBudget("static", 1.5, 99),
        grammar=Grammar(modulus=100, condition_modulus=5),
    )
    assert config.classes == 100
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert ModelConfig.from_dict({}) == ModelConfig()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"hiden": 3}, "'hiden' is not a field of a model configuration. Did you mean 'hidden'?"),
        ({"budget": {"kinds": "paper"}}, "'kinds' is not a field of a step budget. Did you mean 'kind'?"),
        ({"grammar": {"modulos": 10}}, "Did you mean 'modulus'?"),
        ({"classes": 10}, "classes is 10 but the grammar's modulus is 1000; they must be equal"),
        ({"hidden": 0}, "hidden is 0; it must be 1 or more"),
        ({"execution": "fast"}, "The execution 'fast' is unknown; choose 'packed' or 'dense'"),
        ({"prune": 1.5}, "prune is 1.5"),
        ({"prune": float("nan")}, "prune is nan"),
        ({"hidden": 10, "heads": 3}, "heads is 3; it must be 1 or more and divide hidden, 10"),
    ],
)
def test_bad_configurations_are_refused_in_a_sentence(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        ModelConfig.from_dict(values)
    assert sentence in str(caught.value)


def test_a_grammar_brings_its_number_of_classes(short: ProgramTable) -> None:
    config = ModelConfig(hidden=4).replace(grammar=Grammar(modulus=50))
    assert config.classes == 50
    model = build_model(config)
    assert model(model.collate(short)).logits.shape == (len(short), 50)


def test_the_grammars_moduli_decide_the_trace() -> None:
    program = parse("v0 = 9\nif v0 % 10 > 7:\n  v0 += 1")
    taken = build_model(ModelConfig("trace-rnn", hidden=4)).collate([program]).rows
    missed = (
        build_model(ModelConfig("trace-rnn", hidden=4, grammar=Grammar(condition_modulus=5))).collate([program]).rows
    )
    assert taken is not None
    assert missed is not None
    assert (len(taken), len(missed)) == (3, 2)


def test_weights_follow_from_the_seed_and_from_nothing_else() -> None:
    for name in MODELS:
        torch.manual_seed(1)
        first = build_model(ModelConfig(name, hidden=4), seed=3).state_dict()
        torch.manual_seed(2)
        again = build_model(ModelConfig(name, hidden=4), seed=3).state_dict()
        other = build_model(ModelConfig(name, hidden=4), seed=4).state_dict()
        assert all(torch.equal(first[key], again[key]) for key in first)
        assert any(not torch.equal(first[key], other[key]) for key in first)


def test_unknown_names_are_answered_with_the_near_miss() -> None:
    with pytest.raises(ValueError, match=r"There is no model 'ipagnn'\. Did you mean 'ipa-gnn'\?"):
        build_model(ModelConfig("ipagnn"))


def test_a_taken_name_cannot_be_registered_again() -> None:
    class Impostor(IPAGNN):
        pass

    with pytest.raises(ValueError, match="The name 'ipa-gnn' is taken by IPAGNN"):
        register(Impostor)


def test_models_without_a_pointer_to_prune_say_so() -> None:
    with pytest.raises(ValueError, match="'ggnn' cannot prune; set prune=0, or choose one of ipa-gnn, hard-ip-rnn"):
        build_model(ModelConfig("ggnn", hidden=4, prune=1e-4))


def test_with_config_shares_weights_and_keeps_their_type() -> None:
    model = build_model(ModelConfig(hidden=4)).double().eval()
    twin = model.with_config(execution="dense")
    assert twin.config.execution == "dense"
    assert not twin.training
    assert twin.cell.embedding.data_ptr() == model.cell.embedding.data_ptr()
    assert twin.cell.embedding.dtype == torch.float64
    assert all(parameter.requires_grad for parameter in twin.parameters())


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_can_leave_indentation_unread(name: str) -> None:
    table = Sampler(lengths=Lengths.exact(14), seed=2).table(0, 6)
    assert (table.line_tokens[:, 0] > 2).any()
    model = build_model(ModelConfig(name, hidden=8), 0)
    blind = model.with_config(indent=False)
    batch = model.collate(table)
    batch.line_tokens[:, 0] = batch.node_tokens[batch.node_line >= 0, 0] = 1
    if batch.rows is not None:
        batch.rows.tokens[:, 0] = 1
    assert torch.equal(blind(blind.collate(table)).logits, model(batch).logits)
    assert not torch.equal(model(model.collate(table)).logits, model(batch).logits)
    assert blind.config.to_dict()["indent"] is False


@pytest.mark.parametrize("name", ["line-rnn", "trace-rnn"])
def test_a_recurrent_model_can_have_the_decoder_of_the_release(name: str, tmp_path: Path) -> None:
    table = Sampler(lengths=Lengths.exact(8), seed=2).table(0, 6)
    model = build_model(ModelConfig(name, hidden=8, decoder=True), 0)
    batch = model.collate(table)
    logits = model(batch).logits
    assert logits.shape == (6, 1000)
    torch.testing.assert_close(model.with_config(execution="dense")(batch).logits, logits)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    save_model(model, tmp_path / "model.safetensors")
    assert torch.equal(load_model(tmp_path / "model.safetensors")(batch).logits, logits)
