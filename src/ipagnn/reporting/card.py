"""Model cards: what weights are, how they came about, what they can do and what not, from the record of their run."""

import re
from dataclasses import replace
from typing import Any, Final

from ipagnn.data.tasks import find_task
from ipagnn.evaluation.benchmark import on_paper_test_set
from ipagnn.languages.arithmetic import AUTHORS, PAPER
from ipagnn.models import model_title
from ipagnn.reporting import paper
from ipagnn.reporting.formats import duration, percent, programs
from ipagnn.reporting.groups import describe_settings
from ipagnn.reporting.runs import RunRecord

_D_TEST: Final = "**Accuracy on the paper's test set**"
_LONGER: Final = "**Accuracy on longer programs**"
_READS: Final = {
    "trace-rnn": "It is given the true trace of the program, which only running it can tell: an oracle.",
    "line-rnn": "It reads the lines once from top to bottom, whatever branches and loops do.",
}


def model_card(
    run: RunRecord,
    name: str,
    record: str,
    changed: int,
    checked: int,
    longer: tuple[float, float] | None = None,
    on_digits: tuple[dict[int, dict[str, Any]], str] | None = None,
) -> str:
    """The card of a model, as Markdown.

    Args:
        run: A finished and evaluated run.
        name: Of the weights in the package.
        record: Name of the run's record.
        changed: Predictions that rounding to float16 changed.
        checked: Predictions that were compared.
        longer: How many times the run's steps the weights take, and their accuracy then on the same programs.
        on_digits: Where values are digits: accuracy on the paper's test programs by number of digits, and the claim
            about its automata.
    """
    evaluation, config = run.evaluation, run.config
    assert evaluation is not None
    task, last = evaluation["task"], (run.starts[-1] if run.starts else {}).get("hardware", {})
    language = "a language of its own (see the record)"
    if run.model.grammar in (PAPER, AUTHORS):
        language = "the paper's language"
    elif replace(run.model.grammar, modulus=PAPER.modulus) == PAPER:
        language = "the paper's language with larger numbers"
    hardware = last.get("gpu") or last.get("cpu") or "unknown hardware"
    reads = f" {_READS[run.model.name]}" if run.model.name in _READS else ""
    longest = max((stage.length for stage in config.stages), default=config.data.length)
    lines = [
        f"# {name}",
        "",
        f"{model_title(run.model.name)} with {run.model.hidden} hidden units for {find_task(task).subject} of "
        f"{language}: it predicts v0 mod {run.model.grammar.modulus:,} at their end.{reads}",
        "",
        f"- **Data**: {programs(run.result['examples'])} programs of up to {longest} lines, "
        f"{'drawn as training went' if config.data.source == 'stream' else 'from a fixed data set'}, seed {config.seed}"
        f"{', beside those of the weights it began with' if config.init_from else ''}. "
        "One program in 64 is withheld from all training.",
        f"- **Training**: {describe_settings(config)}; batch {max(config.batch_sizes):,}, "
        f"{run.result['step']:,} steps, {duration(run.result['seconds'])} on {hardware}. "
        f"Settings and metrics: `records/{record}`.",
        f"- **Accuracy on withheld programs** of {config.data.length} lines, which selected the weights: "
        f"{percent(run.result['accuracy'])}% of {config.run.validation_count:,}.",
        f"- {_LONGER}: {_overall(run, evaluation)}.",
        "",
        *_by_length(evaluation),
        "",
        *([_steps(*longer, checked, config.data.length)] if longer else []),
        *(_digits(*on_digits) if on_digits else []),
        f"- **Limits**: {_limits(evaluation)}",
        f"- Weights are stored as float16 and computed with as float32: of {checked:,} withheld programs {changed} "
        "got another prediction. Licence: Apache-2.0, as the code.",
    ]
    return "\n".join(lines) + "\n"


def card_accuracy(card: str) -> str | None:
    """The accuracy on D_test that a card states, such as `68.2% ± 0.7 of 4,500 (D_test)`, or else on others."""
    for title in (_D_TEST, _LONGER):
        found = re.search(rf"^- {re.escape(title)}: ([^;]*?)(?:;.*|\.)$", card, re.MULTILINE)
        if found:
            return found.group(1)
    return None


def _overall(run: RunRecord, evaluation: dict[str, Any]) -> str:
    sentence = _share(evaluation["overall"])
    sentence += f" ({evaluation['set']['name']})" if on_paper_test_set(evaluation) else " (not D_test)"
    theirs = paper.ACCURACY.get((run.model.name, evaluation["task"]))
    if theirs is not None and run.model.grammar in (PAPER, AUTHORS):
        sentence += f"; the paper's: {percent(theirs)}%"
    if "ceiling" in evaluation:
        sentence += f"; the best possible: {percent(evaluation['ceiling']['overall']['best'])}%"
    return sentence


def _steps(factor: float, accuracy: float, count: int, length: int) -> str:
    return (
        "- **Steps**: all above is with the steps of the run, the paper's T(x) unless its settings say otherwise. As "
        f"they are here, the weights take {factor:g} times as many: they then get {percent(accuracy)}% of {count:,} "
        f"withheld programs of {length} lines right."
    )


def _digits(overall: dict[int, dict[str, Any]], claim: str) -> list[str]:
    (_, first), *others = overall.items()
    more = ", ".join(f"{digits} digits {percent(each['accuracy'])}%" for digits, each in others)
    return [f"- {_D_TEST}: {_share(first)} (D_test); the same programs with {more}.", f"- **Semantics**: {claim}"]


def _share(overall: dict[str, Any]) -> str:
    return f"{percent(overall['accuracy'])}% ± {percent(overall['stderr'])} of {overall['count']:,}"


def _by_length(evaluation: dict[str, Any]) -> list[str]:
    lengths = sorted(map(int, evaluation["by_length"]))
    shares = [percent(evaluation["by_length"][str(n)]["accuracy"]) for n in lengths]
    return [
        f"| lines | {' | '.join(map(str, lengths))} |",
        "|---|" + "---:|" * len(lengths),
        f"| accuracy, % | {' | '.join(shares)} |",
    ]


def _limits(evaluation: dict[str, Any]) -> str:
    limits = "on programs unlike those of training neither its answers nor its probabilities mean much."
    trace = evaluation.get("trace", {})
    fits, exceeds = trace.get("fits", {}).get("accuracy"), trace.get("exceeds", {}).get("accuracy")
    if fits is not None and exceeds is not None:
        limits += (
            f" It gets {percent(fits)}% of the test programs right whose true trace has at most as many statements as "
            f"the program gets steps, and {percent(exceeds)}% of the others."
        )
    return f"{limits} Expected calibration error on test programs: {evaluation['calibration']['ece']:.3f}."
