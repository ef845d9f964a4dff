"""Reading JSON and TOML that anyone may have written: every value must have the expected type."""

import json
import math
import sys
import tomllib
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

_WORDS: Final = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    type(None): "null",
    dict: "a table",
    list: "a list",
}
_SHOWN: Final = 60


def parse_json(text: str | bytes) -> Any:
    """What a JSON text says.

    Raises:
        ValueError: It is not JSON, or nested too deeply to be anything that this package wrote.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def parse_toml(text: str) -> dict[str, Any]:
    """What a TOML document says; as `parse_json`."""
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def typed(kind: Any, value: Any, where: str) -> Any:
    """`value` as `kind` holds it.

    Args:
        kind: A type: int, float, str, bool, None, a `Literal`, a union, `list[X]`, `tuple[X, ...]`, `dict[str, X]`, a
            dataclass of such fields, or `Any`. A whole number will do for a float.
        value: As JSON or TOML has it.
        where: What the value is called in error messages.

    Raises:
        ValueError: It is something else.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return value
    if origin is Literal:
        if value in [x for x in arguments if type(x) is type(value)]:
            return value
        raise ValueError(f"{where} is {_shown(value)}; it must be one of {', '.join(map(repr, arguments))}")
    if origin in (Union, types.UnionType):
        return _of_union(arguments, value, where)
    if origin in (list, tuple):
        each = typed(list, value, where)
        items = [typed(arguments[0], x, f"{where}[{i}]") for i, x in enumerate(each)]
        return items if origin is list else tuple(items)
    if origin is dict:
        return {str(name): typed(arguments[1], x, f"{where}.{name}") for name, x in typed(dict, value, where).items()}
    if isinstance(kind, type) and is_dataclass(kind):
        return typed_fields(kind, value, where)
    if kind is float and type(value) is int and abs(value) <= sys.float_info.max:
        return float(value)
    kind = types.NoneType if kind is None else kind
    if type(value) is not kind or (kind is float and not math.isfinite(value)):
        raise ValueError(f"{where} is {_shown(value)}; it must be {_WORDS[kind]}")
    return value


def typed_fields(kind: type[T], values: Any, where: str) -> T:
    """A dataclass from a table of its fields; those with a default may be missing.

    Raises:
        ValueError: A field is missing, unknown, or of another type.
    """
    table = typed(dict, values, where)
    hints = get_type_hints(kind)
    declared = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    for name in table:
        if name not in declared:
            raise ValueError(f"{where} has the key {_shown(name)}, which is unknown")
    for name, each in declared.items():
        if name not in table and each.default is MISSING and each.default_factory is MISSING:
            raise ValueError(f"{where} has no {name}")
    return kind(**{name: typed(hints[name], value, f"{where}.{name}") for name, value in table.items()})


def _of_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    for kind in kinds:
        try:
            return typed(kind, value, where)
        except ValueError:
            continue
    words = " or ".join(_WORDS.get(kind, getattr(kind, "__name__", str(kind))) for kind in kinds)
    raise ValueError(f"{where} is {_shown(value)}; it must be {words}")


def _shown(value: object) -> str:
    """A value as it can stand in a sentence."""
    if isinstance(value, Mapping | list | tuple):
        return f"a {'table' if isinstance(value, Mapping) else 'list'} of {len(value)}"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
