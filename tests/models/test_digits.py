"""Values as digits: two executions agree, automata say what the network does, and draws follow from the batch."""

import random
from dataclasses import replace

import pytest
import torch

from ipagnn.data.collate import StepBudget
from ipagnn.data.contract import Batch
from ipagnn.languages.arithmetic import Grammar, Lengths, ProgramTable, Sampler, parse, target
from ipagnn.languages.arithmetic.automata import disagreement, read_statement, true_automaton
from ipagnn.languages.arithmetic.automata.run import GIVEN_UP, run_automata, statements_of
from ipagnn.languages.arithmetic.tables import ValueTables
from ipagnn.languages.arithmetic.vocabulary import ADD, ASSIGN, MULTIPLY, OPERATION, OPERATION_ID, SUBTRACT
from ipagnn.models import EnvIPAGNN, StageProgress, load_model, save_model
from ipagnn.nn.values.digits import Digits, places_of

from ..conftest import reference

EXACT = {"rtol": 1e-9, "atol": 1e-13}
SMALL = Grammar(modulus=100, initial_values=(0, 99), counters=3)


def small(**options: object) -> EnvIPAGNN:
    given = {"hidden": 9, "width": 5, "states": 6, "values": "digits", "grammar": SMALL, "seed": 1} | options
    model = EnvIPAGNN(**given).double()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 3  # states and decisions far from even
    return model


def batch_of(model: EnvIPAGNN, count: int = 12, lengths: tuple[int, ...] = (2, 4, 7, 11), seed: int = 5) -> Batch:
    return model.collate(Sampler("full", Lengths.uniform(lengths), model.config.grammar, seed=seed).table(0, count))


@pytest.mark.parametrize("widths", [(1,), (2,), (3,)])
@pytest.mark.parametrize("training", [True, False])
def test_both_executions_agree(widths: tuple[int, ...], training: bool) -> None:
    packed = small(widths=widths, budget=StepBudget("static", cap=40)).train(training)
    dense = reference(packed)
    batch = batch_of(packed)
    found = [model(batch, record=("pointer", "likelihood")) for model in (packed, dense)]
    torch.testing.assert_close(found[0]["likelihood"], found[1]["likelihood"], **EXACT)
    torch.testing.assert_close(found[0].logits.exp(), found[1].logits.exp(), **EXACT)
    gradients = []
    for model in (packed, dense):
        model.zero_grad()
        output = model(batch, record=("likelihood",))
        (-output["likelihood"].clamp_min(1e-36).log()).sum().backward()
        gradients.append({name: x.grad for name, x in model.named_parameters() if x.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradient, gradients[1][name], rtol=1e-5, atol=1e-9)
    assert any(gradient.abs().max() > 1e-6 for gradient in gradients[0].values())


def test_every_parameter_gets_a_gradient_in_training() -> None:
    model = small(widths=(3,)).train()
    batch = batch_of(model, 64)
    model.loss(model(batch, record=("likelihood",)), batch).mean().backward()
    for name, parameter in model.values.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 1e-12, name


def test_the_probability_of_a_target_is_that_of_its_digits() -> None:
    model = small().eval()
    batch = batch_of(model)
    output = model(batch, record=("pointer", "likelihood"))
    taken = output.logits.exp().gather(1, batch.target[:, None])[:, 0]
    torch.testing.assert_close(taken, output["likelihood"], **EXACT)
    assert model.values.probabilities(model.values.literal(torch.arange(99))).sum(1).tolist() == pytest.approx([1] * 99)


@pytest.mark.parametrize("places", [1, 4, 18])
def test_automata_say_what_the_network_does(places: int) -> None:
    model = small(grammar=Grammar(modulus=10**places, condition_modulus=10)).eval()
    values, generator = model.values, random.Random(places)
    assert isinstance(values, Digits)
    numbers = [generator.randrange(10**places) for _ in range(40)]
    known = values.view(values.known(torch.tensor(numbers)))
    assert values.likeliest(known)[0].tolist() == numbers
    sizes = set()
    for operation, operand in [(ADD, 3), (SUBTRACT, 41), (MULTIPLY, 7), (ASSIGN, 507), (OPERATION_ID["if >= %"], 4)]:
        automaton = values.automaton(operation, operand)
        sizes.add(len(automaton))
        operations, operands = torch.full((40,), operation - OPERATION), torch.full((40,), operand)
        if operation == ASSIGN:
            found = values.likeliest(values.literal(operands))[0]
        elif automaton.decides:
            found = (values.condition(operations, operands, known).argmax(1) == 0).long()
        else:
            found = values.likeliest(values.statement(operations, operands, known))[0]
        assert found.tolist() == [automaton.run(number, places) for number in numbers]
    assert max(sizes) > 2


def test_programs_over_automata_end_as_by_tables() -> None:
    model = small().eval()
    programs = Sampler("full", Lengths.uniform((5, 9)), SMALL, seed=3).table(0, 60)
    statements = statements_of(programs)
    automata = dict(zip(statements, model.automata(statements), strict=True))
    run = run_automata(automata, programs, 2, max_steps=2_000)
    by_tables = model.tabulate()
    rows, literals = by_tables.rows, by_tables.literals
    assert (run.value != GIVEN_UP).sum() > 20
    for (operation, operand), automaton in automata.items():
        for value in (0, 7, 10, 99):
            if operation == ASSIGN:
                assert automaton.run(value, 2) == literals[operand]
            else:
                assert automaton.run(value, 2) == by_tables.outcomes[rows[operation - OPERATION, operand], value]


def test_noise_and_digits_follow_from_the_batch() -> None:
    model = small(widths=(2, 3, 4)).train()
    batches = [batch_of(model, 6, (2, 5), seed) for seed in range(12)]

    def losses() -> list[float]:
        return [float(model.loss(model(b, record=("likelihood",)), b).mean().detach()) for b in batches]

    model.on_step(StageProgress(3, 3, 0.5, 1_000))
    assert model.values.noise == model.config.noise
    noisy = losses()
    assert losses() == noisy
    worked = set()
    for batch in batches:
        model.values.begin(batch)
        worked.add(model.values._working)
    assert worked == {2, 3, 4}
    model.on_step(StageProgress(1, 3, 0.5, 10))
    assert model.values.noise == 0
    assert losses() != noisy


def test_noise_rises_in_the_second_stage() -> None:
    model = small(noise=2.0)
    noise = []
    for stages, stage, progress in ((3, 1, 0.9), (3, 2, 0.0), (3, 2, 0.3), (3, 2, 0.8), (3, 3, 0.0), (1, 1, 0.3)):
        model.on_step(StageProgress(stage, stages, progress, 7))
        noise.append(model.values.noise)
    assert noise == [0, 0, 1, 2, 2, 1]


def test_weights_do_not_depend_on_the_number_of_digits(tmp_path: object) -> None:
    model = small()
    path = f"{tmp_path}/model.safetensors"
    save_model(model, path, task="full")
    loaded = load_model(path)
    assert isinstance(loaded, EnvIPAGNN)
    larger = loaded.with_config(grammar=Grammar(modulus=10**12)).eval()
    assert disagreement(larger.automaton("*= 7"), loaded.automaton("v0 *= 7")) is None
    assert len(larger.values.known(torch.tensor([7]))[0]) == 12


def test_statements_are_read() -> None:
    assert read_statement("*= 7") == read_statement("v0 *= 7") == (MULTIPLY, 7)
    assert read_statement("v3 = 413") == (ASSIGN, 413)
    assert read_statement("if v0 % 10 < 4:") == read_statement("if % 10 < 4") == (OPERATION_ID["if < %"], 4)
    assert read_statement("while v1 > 0") == (OPERATION_ID["while >"], 0)
    assert len(true_automaton(*read_statement("*= 7"))) == 7
    assert read_statement("v2 += v13") == read_statement("+= v1") == (ADD, None)
    assert read_statement("if v0 < v12:") == (OPERATION_ID["if <"], None)
    for wrong in ("", "pass", "if v0 % 10 < v1", "v3", "if v0 % 7 < 4", "else", "v0", "if 3"):
        with pytest.raises(ValueError, match="is no statement"):
            read_statement(wrong)


def test_bad_input_is_refused_in_a_sentence() -> None:
    for modulus in (1, 12, 250, 10**19):
        assert places_of(modulus) == 0
        with pytest.raises(ValueError, match="values as digits need a power of ten"):
            Digits(modulus, 4, 4, 4, (3,), torch.Generator())
    with pytest.raises(ValueError, match="from 1 to 18"):
        small(widths=(3, 19))
    with pytest.raises(ValueError, match="has no automata; choose a model whose values are digits"):
        EnvIPAGNN(hidden=4, width=4, grammar=SMALL).automaton("*= 7")
    large = small(grammar=Grammar(modulus=10**12))
    with pytest.raises(ValueError, match="too large to give every value a probability"):
        large(batch_of(large, 2))
    assert ValueTables.exact(SMALL).grammar == SMALL


EXTENDED = Grammar(
    modulus=1_000,
    variables=4,
    target_variable=1,
    digit_variables=1,
    initial_values=(0, 9_999),
    operands=(0, 99_999),
    factors=(0, 9),
    by_digits=True,
    operand_variable=2,
    condition_variable=2,
    stmt_assign=3,
    wrap=True,
    counters=3,
    loop_counts=(2, 4),
)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("options", [{}, {"target_variable": 0, "condition_variable": 0}, {"operand_variable": 0}])
def test_executions_agree_where_operands_are_variables(training: bool, options: dict[str, int]) -> None:
    grammar = replace(EXTENDED, **options)  # type: ignore[arg-type]
    packed = small(grammar=grammar, widths=(2, 3), budget=StepBudget("static", cap=40)).train(training)
    programs = Sampler("full", Lengths.uniform((3, 5, 8)), grammar, seed=3, trace_limit=30).table(0, 24)
    copies = ProgramTable.from_programs([parse(COPIES, grammar=EXTENDED)], [5])
    batch = packed.collate_for_training(ProgramTable.concatenate([programs, copies]))
    found, gradients = [], []
    for execution in ("auto", "reference"):
        packed.zero_grad()
        output = packed(batch, record=("pointer", "likelihood"), execution=execution)
        (-output["likelihood"].clamp_min(1e-36).log()).sum().backward()
        found.append((output["likelihood"].detach(), output.logits.detach().exp()))
        gradients.append(torch.cat([x.grad.flatten() for x in packed.values.parameters() if x.grad is not None]))
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other, **EXACT)
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-9)
    assert (gradients[0].abs() > 1e-6).sum() > 300
    if not training:
        pruned = packed(batch, prune=1e-12).logits.exp()
        torch.testing.assert_close(pruned, found[0][1], rtol=1e-8, atol=1e-12)


COPIES = "v0 = 57\nv1 = v0\nv0 = 8\nv3 = 4\nv1 *= v3\nif v0 < v1:\n  v1 += v1"


def test_a_copy_does_not_depend_on_what_the_variable_was() -> None:
    model = small(grammar=EXTENDED).eval()
    sources = ["v0 = 57\nv1 = v0", "v0 = 57\nv1 = 812\nv1 += 4\nv1 = v0", "v0 = 81\nv1 = v0"]
    batch = model.collate([parse(source, grammar=EXTENDED) for source in sources])
    found = model(batch).logits.exp()
    torch.testing.assert_close(found[0], found[1], **EXACT)
    assert (found[0] - found[2]).abs().max() > 1e-3


def test_targets_of_training_are_those_of_the_digits_worked_with() -> None:
    model = small(grammar=EXTENDED, widths=(1, 2, 3, 8)).train()
    assert isinstance(model.values, Digits)
    assert model.values.widths == (1, 2, 3)  # numbers of 8 digits wrap otherwise than those of 3
    sampler, widths = Sampler("full", Lengths.uniform((5, 9)), EXTENDED, seed=2, trace_limit=40), set()
    for start in range(0, 120, 12):
        table = sampler.table(start, 12)
        batch = model.collate_for_training(table)
        model.values.begin(batch)
        widths.add(model.values._working)
        smaller = replace(EXTENDED, modulus=10**model.values._working)
        assert batch.target.tolist() == [target(program, smaller) for program in table]
        model.loss(model(batch, record=("likelihood",)), batch).mean().backward()
    assert widths == {1, 2, 3}
    paper = small().train()
    table = Sampler("full", Lengths.exact(5), SMALL, seed=2).table(0, 12)
    assert paper.collate_for_training(table).target.tolist() == table.target.tolist()


@pytest.mark.parametrize("places", [1, 3, 18])
def test_automata_of_pairs_say_what_the_network_does(places: int) -> None:
    model = small(grammar=replace(EXTENDED, modulus=10**places)).eval()
    values, generator = model.values, random.Random(places)
    assert isinstance(values, Digits)
    numbers = [[generator.randrange(10**places) for _ in range(40)] for _ in range(2)]
    view, right = (values.known(torch.tensor(each)) for each in numbers)
    for statement in ("v0 += v1", "v0 -= v1", "*= v3", "v1 = v2", "if v1 < v2:"):
        automaton = model.automaton(statement)
        assert automaton.operand is None
        operations = torch.full((40,), automaton.operation - OPERATION)
        if automaton.decides:
            found = (values.condition(operations, right, view).argmax(1) == 0).long()
        else:
            found = values.likeliest(values.statement(operations, right, view))[0]
        assert found.tolist() == [automaton.run(x, places, y) for x, y in zip(*numbers, strict=True)]
        given = values.statement(operations, torch.tensor(numbers[1]), view)  # the same operands as numbers
        if not automaton.decides and automaton.operation != ASSIGN:
            assert values.likeliest(given)[0].tolist() == found.tolist()


def test_what_languages_past_the_papers_do_not_have() -> None:
    with pytest.raises(ValueError, match=r'Choose values="digits"'):
        EnvIPAGNN(hidden=4, width=4, grammar=EXTENDED)
    model = small(grammar=EXTENDED)
    masked = model.collate([parse("v0 = 3\nv1 = 2\n[MASK]", grammar=EXTENDED)])
    with pytest.raises(ValueError, match="Give complete programs"):
        model(masked)
