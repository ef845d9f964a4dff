"""The commands that show programs: `sample` and `inspect`."""

import json
import sys
from contextlib import nullcontext
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ipagnn.cli.language import LanguageSettings, chosen_grammar
from ipagnn.cli.terminal import output

if TYPE_CHECKING:
    from ipagnn.languages.arithmetic import Grammar, Program

_WITH_TOKENS = 60  # columns from which tokens are shown
_BLOCK = 4096  # programs drawn at a time, so that any count needs little memory


def sample(
    length: Annotated[int, typer.Option(help="Number of lines per program.")] = 10,
    count: Annotated[int, typer.Option(min=0, help="Number of programs.")] = 1,
    seed: Annotated[int, typer.Option(help="Random seed. The same seed gives the same programs.")] = 0,
    task: Annotated[
        Literal["full", "partial"], typer.Option(help="Complete programs, or programs with masked lines.")
    ] = "full",
    masked_lines: Annotated[int, typer.Option(help="Masked lines per program of the partial task.")] = 1,
    train_lengths: Annotated[
        bool,
        typer.Option("--train-lengths", help="Draw lengths as in training: up to `--length`, shorter ones less often."),
    ] = False,
    settings: LanguageSettings = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line, with the keys `source` and `target`.")
    ] = False,
) -> None:
    """Draw programs from the paper's probabilistic grammar, or from one with other settings.

    The target of a program is v0 mod 1000 at its end. The target of a partial program is that of the complete one.

    `ipagnn sample --length 20 --count 3 --seed 7`

    `ipagnn sample --set modulus=1_000_000 --set variables=4 --set operand_variable=1`
    """
    from ipagnn.languages.arithmetic import Lengths, Sampler, format_program

    lengths = Lengths.training(length) if train_lengths else Lengths.exact(length)
    grammar = chosen_grammar(settings)
    sampler = Sampler(task, lengths, grammar, seed, masked_lines=masked_lines)
    console = output()
    for start in range(0, count, _BLOCK):
        table = sampler.table(start, min(_BLOCK, count - start))
        for i, (program, target) in enumerate(zip(table, table.target.tolist(), strict=True), start):
            source = format_program(program, grammar.condition_modulus)
            if as_json:
                typer.echo(json.dumps({"source": source, "target": target}))
                continue
            if i:
                typer.echo()
            if console.is_terminal:
                console.print(_highlighted(f"{source}\n# {target}"))
            else:
                typer.echo(f"{source}\n# {target}")


def inspect(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE…", help="Files with one program each. `-` is standard input.")
    ],
    settings: LanguageSettings = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object per file. Indices count from 0.", rich_help_panel="Format"),
    ] = False,
    dot: Annotated[
        bool, typer.Option("--dot", help="Print the control flow graph for Graphviz.", rich_help_panel="Format")
    ] = False,
) -> None:
    """Show what models read of a program: nodes, branches, tokens and steps T(x), and its true result.

    Each line is a node, except `else:`, `pass`, `break` and `continue`. The exit is the last node. A masked line is
    written `[MASK]`, `_` or `_ = 0`. Programs with masked lines and endless programs have no result.

    `ipagnn sample | ipagnn inspect -`

    `ipagnn inspect program.py --dot | dot -Tsvg > program.svg`
    """
    if as_json and dot:
        raise ValueError("Both --json and --dot were given; choose one.")
    grammar = chosen_grammar(settings)
    for i, name in enumerate(files):
        program = _read(name, grammar)
        if as_json:
            typer.echo(json.dumps(_description(program, grammar)))
        elif dot:
            from ipagnn.languages.arithmetic import control_flow_graph

            typer.echo(control_flow_graph(program).to_dot())
        else:
            _print_table(program, grammar, name if len(files) > 1 else None, first=not i)


def _read(name: str, grammar: "Grammar") -> "Program":
    from ipagnn.languages.arithmetic import ProgramError, parse
    from ipagnn.languages.arithmetic.text import MAX_CHARACTERS

    shown = "standard input" if name == "-" else name
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
            reader = TextIOWrapper(file, encoding="utf-8")
            # One character too many is enough for the parser to refuse a text of any size.
            source = reader.read(MAX_CHARACTERS + 1)
            reader.detach()
        return parse(source, grammar=grammar)
    except UnicodeDecodeError as error:
        raise ValueError(f"{shown} is not UTF-8 text; a program is a plain text file.") from error
    except ProgramError as error:
        raise ValueError(f"{shown}, {error}") from error


def _outcome(program: "Program", grammar: "Grammar") -> tuple[int | None, int | None, str]:
    """Value and trace length, or None for both and the reason why there are none."""
    from ipagnn.languages.arithmetic import Arithmetic, ExecutionError

    try:
        value, trace_length = Arithmetic(grammar).run(program)
    except ExecutionError as error:
        return None, None, str(error)
    return value, trace_length, ""


def _description(program: "Program", grammar: "Grammar") -> dict[str, Any]:
    from ipagnn.languages.arithmetic import control_flow_graph, format_program, steps

    graph = control_flow_graph(program)
    value, trace_length, _ = _outcome(program, grammar)
    return {
        "lines": format_program(program, grammar.condition_modulus).split("\n"),
        "nodes": graph.nodes.tolist(),
        "true": graph.true.tolist(),
        "false": graph.false.tolist(),
        "exit": graph.exit,
        "steps": steps(program),
        "node_tokens": graph.node_tokens.tolist(),
        "line_tokens": program.line_tokens.tolist(),
        "value": value,
        "trace_length": trace_length,
    }


def _print_table(program: "Program", grammar: "Grammar", title: str | None, *, first: bool) -> None:
    seen = _description(program, grammar)
    console = output()
    wide = console.width >= _WITH_TOKENS
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    table.add_column("line", justify="right", style="dim")
    table.add_column("source", no_wrap=not wide, overflow="fold" if wide else "ellipsis")
    table.add_column("node", justify="right", style="cyan")
    table.add_column("true", justify="right")
    table.add_column("false", justify="right")
    if wide:
        table.add_column("tokens", overflow="fold", style="dim")
    node_of = {line: node for node, line in enumerate(seen["nodes"])}
    for line, (source, tokens) in enumerate(zip(seen["lines"], seen["line_tokens"], strict=True), 1):
        node = node_of.get(line - 1)
        successors = ("", "", "") if node is None else (str(node), *_successors(seen, node))
        row: list[str | Text] = [str(line), _highlighted(source), *successors, " ".join(map(str, tokens))]
        table.add_row(*(row if wide else row[:-1]))
    table.add_row("", Text("exit", "italic"), str(seen["exit"]), str(seen["exit"]))
    if not first:
        console.print()
    console.print(table)
    console.print(f"T(x) = {seen['steps']:,} steps for a model")
    if seen["value"] is None:
        console.print(f"no value: {_outcome(program, grammar)[2]}", markup=False, soft_wrap=True)
    else:
        console.print(f"value {seen['value']} after {seen['trace_length']:,} executed statements")


def _successors(seen: dict[str, Any], node: int) -> tuple[str, str]:
    true, false = seen["true"][node], seen["false"][node]
    return str(true), "" if true == false else str(false)


def _highlighted(source: str) -> Text:
    text = Syntax(source, "python", theme="ansi_dark").highlight(source)
    text.rstrip()
    return text
