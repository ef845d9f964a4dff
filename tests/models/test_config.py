import json
import pickle
from pathlib import Path

import pytest
import torch

from ipagnn._common.options import describe, phrases
from ipagnn.data.collate import StepBudget
from ipagnn.languages.arithmetic import Lengths, Sampler
from ipagnn.languages.arithmetic.grammar import Grammar
from ipagnn.languages.arithmetic.program import ProgramTable
from ipagnn.languages.arithmetic.text import parse
from ipagnn.models import (
    GGNN,
    IPAGNN,
    MODELS,
    RGAT,
    HardIPRNN,
    NoControl,
    NoExecute,
    build_model,
    config_from_dict,
    load_model,
    model_config,
    register,
    save_model,
)
from ipagnn.models.legacy import upgrade_model


def test_a_configuration_survives_json() -> None:
    config = RGAT.Config(
        hidden=12,
        heads=3,
        budget=StepBudget("static", 1.5, 99),
        grammar=Grammar(modulus=100, condition_modulus=5),
    )
    values = json.loads(json.dumps(config.to_dict()))
    assert values["name"] == "r-gat"
    assert config_from_dict(values) == config
    assert config_from_dict({}) == IPAGNN.Config()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"hiden": 3}, "'model.hiden' is not a setting. Did you mean 'model.hidden'?"),
        ({"budget": {"kinds": "paper"}}, "'model.budget.kinds' is not a setting. Did you mean 'model.budget.kind'?"),
        ({"grammar": {"modulos": 10}}, "Did you mean 'model.grammar.modulus'?"),
        ({"hidden": 0}, "hidden is 0; it must be at least 1"),
        ({"hidden": "many"}, "model.hidden is 'many'; it must be a whole number"),
        ({"heads": 2}, "'model.heads' is not a setting."),
        ({"name": "r-gat", "hidden": 10, "heads": 0}, "heads is 0; it must be at least 1"),
        ({"name": "r-gat", "hidden": 10, "heads": 3}, "heads is 3; it must divide hidden, 10"),
        ({"name": "no-control", "bidirectional": 1}, "model.bidirectional is 1; it must be true or false"),
        ({"name": "ipagnn"}, "There is no model 'ipagnn'. Did you mean 'ipa-gnn'?"),
    ],
)
def test_bad_configurations_are_refused_in_a_sentence(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        config_from_dict(values, "model")
    assert sentence in str(caught.value)


def test_constructors_take_keywords_a_configuration_or_nothing() -> None:
    assert IPAGNN().config == IPAGNN.Config()
    model = IPAGNN(hidden=4, normalise=False, seed=3)
    config = IPAGNN.Config(hidden=4, normalise=False)
    assert model.config == config
    same = (
        IPAGNN(config, seed=3),
        IPAGNN(config, generator=torch.Generator().manual_seed(3)),
        IPAGNN(IPAGNN.Config(hidden=8), hidden=4, normalise=False, seed=3),
        build_model(config, seed=3),
        build_model("ipa-gnn", seed=3, hidden=4, normalise=False),
    )
    for other in same:
        assert other.config == config
        assert all(torch.equal(x, other.state_dict()[key]) for key, x in model.state_dict().items())
    with pytest.raises(ValueError, match=r"'hiden' is not a setting\. Did you mean 'hidden'\?"):
        IPAGNN(hiden=4)
    with pytest.raises(TypeError, match="is one of 'ggnn', not of 'ipa-gnn'"):
        IPAGNN(GGNN.Config(hidden=4))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_has_a_configuration_of_its_own(name: str) -> None:
    config = MODELS[name].Config(hidden=4)
    assert config.name == name
    assert type(build_model(config)) is MODELS[name]
    assert pickle.loads(pickle.dumps(config)) == config
    assert all(each.help for each in describe(type(config)) if "." not in each.name and each.name != "grammar")


def test_configurations_of_two_models_differ() -> None:
    assert IPAGNN.Config(hidden=4) != HardIPRNN.Config(hidden=4)
    other = model_config("no-execute", IPAGNN.Config(hidden=4, normalise=False, indent=False), absorbing_exit=True)
    assert other == NoExecute.Config(hidden=4, normalise=False, indent=False, absorbing_exit=True)


def test_reports_have_their_words_from_the_configuration() -> None:
    assert phrases(NoControl.Config(hidden=4)) == []
    found = phrases(NoControl.Config(bidirectional=False, edge_types=True, indent=False))
    assert found == ["no indentation read", "messages along edges only", "a Dense per edge type"]
    assert phrases(RGAT.Config(hidden=8, heads=4)) == ["4 attention heads"]


def test_a_configuration_that_is_no_dataclass_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Careless\.Config is no dataclass"):

        class Careless(IPAGNN):
            class Config(IPAGNN.Config):
                depth: int = 3

            name = "careless"


OLD = {"classes": 1000, "normalise": True, "heads": 1, "both_ways": True, "edge_types": False, "absorb": False}


def test_configurations_of_0_1_0_are_read() -> None:
    old = {"name": "ggnn", "hidden": 4, **OLD, "decoder": False}
    assert config_from_dict(upgrade_model(old)) == GGNN.Config(hidden=4)
    assert config_from_dict(upgrade_model(old | {"name": "no-execute", "absorb": True})) == NoExecute.Config(
        hidden=4, absorbing_exit=True
    )
    assert config_from_dict(upgrade_model(old | {"name": "no-control", "both_ways": False})) == NoControl.Config(
        hidden=4, bidirectional=False
    )
    smaller = old | {"classes": 10, "grammar": {"modulus": 10}}
    assert config_from_dict(upgrade_model(smaller)) == GGNN.Config(hidden=4, grammar=Grammar(modulus=10))
    new = NoControl.Config(hidden=4, edge_types=True)
    assert config_from_dict(upgrade_model(new.to_dict())) == new
    for wrong in ({"classes": 10}, {"heads": 2}, {"hiden": 3}):
        with pytest.raises(ValueError, match="is not a setting"):
            config_from_dict(upgrade_model(old | wrong))


def test_a_grammar_brings_its_number_of_classes(short: ProgramTable) -> None:
    model = IPAGNN(hidden=4, grammar=Grammar(modulus=50))
    assert model(model.collate(list(short))).logits.shape == (len(short), 50)


def test_the_grammars_moduli_decide_the_trace() -> None:
    program = parse("v0 = 9\nif v0 % 10 > 7:\n  v0 += 1")
    taken = build_model("trace-rnn", hidden=4).collate([program]).trace
    missed = build_model("trace-rnn", hidden=4, grammar=Grammar(condition_modulus=5)).collate([program]).trace
    assert taken is not None
    assert missed is not None
    assert (len(taken), len(missed)) == (3, 2)


def test_weights_follow_from_the_seed_and_from_nothing_else() -> None:
    for name in MODELS:
        torch.manual_seed(1)
        first = build_model(name, hidden=4, seed=3).state_dict()
        torch.manual_seed(2)
        again = build_model(name, hidden=4, seed=3).state_dict()
        other = build_model(name, hidden=4, seed=4).state_dict()
        assert all(torch.equal(first[key], again[key]) for key in first)
        assert any(not torch.equal(first[key], other[key]) for key in first)


def test_unknown_names_are_answered_with_the_near_miss() -> None:
    with pytest.raises(ValueError, match=r"There is no model 'ipagnn'\. Did you mean 'ipa-gnn'\?"):
        build_model("ipagnn")


def test_a_taken_name_cannot_be_registered_again() -> None:
    class Impostor(IPAGNN):
        pass

    with pytest.raises(ValueError, match="The name 'ipa-gnn' is taken by IPAGNN"):
        register(Impostor)


def test_models_without_a_pointer_to_prune_say_so() -> None:
    model = build_model("ggnn", hidden=4).eval()
    with pytest.raises(ValueError, match="'ggnn' cannot prune; call it with prune=0"):
        model(model.collate([]), prune=1e-4)


def test_with_config_shares_weights_and_keeps_their_type() -> None:
    model = build_model("ipa-gnn", hidden=4).double().eval()
    twin = model.with_config(budget=StepBudget(factor=2.0))
    assert twin.config.budget.factor == 2.0
    assert not twin.training
    assert twin.cell.embedding.data_ptr() == model.cell.embedding.data_ptr()
    assert twin.cell.embedding.dtype == torch.float64
    assert all(parameter.requires_grad for parameter in twin.parameters())


@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"env-ipa-gnn"}))  # which never reads it
def test_a_model_can_leave_indentation_unread(name: str) -> None:
    table = Sampler(lengths=Lengths.exact(14), seed=2).table(0, 6)
    assert (table.line_tokens[:, 0] > 2).any()
    model = build_model(name, hidden=8, seed=0)
    blind = model.with_config(indent=False)
    batch = model.collate(table)
    batch.line_tokens[:, 0] = batch.node_tokens[batch.node_line >= 0, 0] = 1
    assert torch.equal(blind(blind.collate(table)).logits, model(batch).logits)
    assert not torch.equal(model(model.collate(table)).logits, model(batch).logits)
    assert blind.config.to_dict()["indent"] is False


@pytest.mark.parametrize("name", ["line-rnn", "trace-rnn"])
def test_a_recurrent_model_can_have_the_decoder_of_the_release(name: str, tmp_path: Path) -> None:
    table = Sampler(lengths=Lengths.exact(8), seed=2).table(0, 6)
    model = build_model(name, hidden=8, decoder=True, seed=0)
    batch = model.collate(table)
    logits = model(batch).logits
    assert logits.shape == (6, 1000)
    torch.testing.assert_close(model(batch, execution="reference").logits, logits)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    save_model(model, tmp_path / "model.safetensors")
    assert torch.equal(load_model(tmp_path / "model.safetensors")(batch).logits, logits)
