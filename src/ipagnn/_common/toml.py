"""TOML out: the few kinds of value that a configuration has. (TOML in is `tomllib`.)"""

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any


def to_toml(values: Mapping[str, Any]) -> str:
    """Nested tables, and lists of tables, of texts, numbers, truth values and lists of these as a TOML document."""
    return "".join(_table(values, "")).lstrip("\n")


def _table(values: Mapping[str, Any], path: str) -> list[str]:
    plain, below = [], []
    for key, value in values.items():
        inner = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            below += [f"\n[{inner}]\n", *_table(value, inner)]
        elif isinstance(value, list | tuple) and value and all(isinstance(each, Mapping) for each in value):
            below += [line for table in value for line in (f"\n[[{inner}]]\n", *_table(table, inner))]
        else:
            plain.append(f"{key} = {_value(value)}\n")
    return plain + below


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)  # TOML writes nan, inf and -inf as Python does
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        # A basic string has JSON's escapes, and one more.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_value, value))}]"
    raise TypeError(f"TOML has no value for {value!r}.")


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """`key=value` pairs with dotted keys as nested tables; what is not a TOML value is text.

    Raises:
        ValueError: A setting has no `=`, or its key is also the name of a table.
    """
    tables: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        *path, leaf = key.strip().split(".")
        if not equals or not leaf or not all(path):
            raise ValueError(f"The setting {setting!r} is not understood; write key=value, as in model.hidden=64.")
        table = tables
        for part in path:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ValueError(f"The setting {setting!r} contradicts {part}={table!r}, which is no table.")
        table[leaf] = _parse_value(text.strip())
    return tables


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}\n")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):  # no setting has values nested so deeply
        return text
