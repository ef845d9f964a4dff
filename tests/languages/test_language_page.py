"""docs/language.md names every setting of a grammar with its default, and has a command for each that works."""

import json
import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

from ipagnn._common.toml import parse_settings
from ipagnn.languages.arithmetic import Grammar, execute, parse
from ipagnn.languages.arithmetic.membership import outside_grammar

PAGE = (Path(__file__).parents[2] / "docs" / "language.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def test_every_setting_has_its_default() -> None:
    told: dict[str, Any] = {}
    for names, defaults in re.findall(r"^\| (`.*?`) \| (.*?) \|", PAGE, re.MULTILINE):
        values = json.loads(f"[{defaults}]")
        told |= dict(zip(re.findall(r"`(\w+)`", names), values, strict=True))
    assert told == json.loads(json.dumps({each.name: each.default for each in fields(Grammar)}))


def test_every_setting_has_a_command_whose_programs_follow_it(run: Any) -> None:
    shown = set()
    for command in COMMANDS:
        name, *words = shlex.split(command)[1:]
        settings = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
        if name != "sample" or "|" in words:
            continue
        grammar = Grammar.from_dict(parse_settings(settings))
        shown |= {setting.partition("=")[0] for setting in settings}
        result = run("sample", *words, "--count", 3, "--json")
        assert result.code == 0, result.err
        for line in result.out.splitlines():
            drawn = json.loads(line)
            program = parse(drawn["source"], grammar=grammar)
            assert outside_grammar(program, grammar) == []
            moduli = grammar.modulus, grammar.condition_modulus
            value = execute(program, *moduli, wrap=grammar.wrap, variable=grammar.target_variable).value
            assert drawn["target"] == value or grammar.block_limit
    assert shown == {each.name for each in fields(Grammar)}
