"""Options: fields of frozen dataclasses that are declared once, with default, range, help and the words of a report.

    @dataclass(frozen=True, kw_only=True)
    class Config:
        heads: int = option(1, "Number of attention heads.", least=1, phrase="{} attention heads")

        def __post_init__(self) -> None:
            check_options(self)

An option holds true or false, a whole number, a number, text, one of a `Literal`, another dataclass of options, or a
tuple of these.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from ipagnn._common.hints import near_miss

_KEY: Final = "ipagnn.option"
_KINDS: Final = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Option:
    """What is known of an option beside its name, type and default.

    Attributes:
        help: What it means, in sentences.
        least, most: The range of a number, its ends included.
        above, below: The same, its ends excluded.
        choices: The accepted values, where the type is no `Literal` that lists them.
        phrase: What a report says where the option differs from its default; `{}` stands for the value.
        variant: What the title of a row of results says then, if such models have rows of their own.
    """

    help: str = ""
    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf
    choices: tuple[Any, ...] = ()
    phrase: str = ""
    variant: str = ""


def option(
    default: Any,
    help: str,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    choices: tuple[Any, ...] = (),
    phrase: str = "",
    variant: str = "",
) -> Any:
    """A field of a dataclass that says what it means. See `Option` for the arguments."""
    about = Option(help, least, most, above, below, choices, phrase, variant)
    return field(default=default, metadata={_KEY: about})


def check_options(instance: Any) -> None:
    """Hold every field of a dataclass against its type, range and choices; for `__post_init__`.

    Raises:
        ValueError: The sentence names the field, its value and what is accepted.
    """
    for name, each, hint in _declared(type(instance)):
        value = getattr(instance, name)
        _check_type(name, value, hint)
        about = _about(each)
        if about.choices and value not in about.choices:
            raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(str, about.choices))}.")
        if isinstance(value, int | float) and not isinstance(value, bool):
            _check_range(name, value, about)


def options_from_dict(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """A dataclass of options from some or all of its fields by name; the others keep their defaults.

    Args:
        cls: The dataclass.
        values: As JSON or TOML knows them. A whole number will do for a real one.
        where: Dotted names of the tables around it, for error messages.

    Raises:
        ValueError: A name is unknown (the sentence gives the near miss), or a value is not what its field holds.
    """
    declared = {name: hint for name, _, hint in _declared(cls)}
    given: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{where}.{name}" if where else name
        if name not in declared:
            raise ValueError(f"{path!r} is not a setting. {near_miss(path, _paths(cls, where), 'The settings are')}")
        given[name] = _read(path, value, declared[name])
    return cls(**given)


def options_to_dict(instance: Any) -> dict[str, Any]:
    """All fields as JSON and TOML know them; `options_from_dict` reads it back."""
    return {each.name: _plain(getattr(instance, each.name)) for each in fields(instance)}


@dataclass(frozen=True, slots=True)
class Description:
    """An option in words, for help texts and documentation.

    Attributes:
        name: With the tables around it, dotted.
        kind: What it holds.
        default: Its default.
        help: What it means.
    """

    name: str
    kind: str
    default: Any
    help: str


def describe(cls: type, where: str = "") -> list[Description]:
    """All options of a dataclass and of those inside it, in the order they are declared."""
    found = []
    for name, each, hint in _declared(cls):
        path = f"{where}.{name}" if where else name
        if is_dataclass(hint):
            assert isinstance(hint, type)
            found += describe(hint, path)
        else:
            default = None if each.default is MISSING else each.default
            found.append(Description(path, _kind(hint), default, _about(each).help))
    return found


def phrases(instance: Any) -> list[str]:
    """What is particular about a dataclass of options, in words: a phrase for each option that is not its default."""
    return [about.phrase.format(value) for about, value in _changed(instance) if about.phrase]


def variants(instance: Any) -> list[str]:
    """What the title of a row of results says of a dataclass of options, for those options that have rows."""
    return [about.variant.format(value) for about, value in _changed(instance) if about.variant]


def flatten(values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Nested tables as one, with dotted names; the tables of a list are numbered from 1."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{where}.{name}" if where else name
        tables = _numbered(value)
        flat |= {path: value} if tables is None else flatten(tables, path)
    return flat


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables with those of `changes` laid over them; changes may name the tables of a list by number, from 1.

    Raises:
        ValueError: There is no table of that number.
    """
    merged = dict(base)
    for name, value in changes.items():
        here = _numbered(merged.get(name))
        if not isinstance(value, Mapping) or here is None:
            merged[name] = value
            continue
        both = merge(here, value)
        if isinstance(merged[name], Mapping):
            merged[name] = both
        elif unknown := [each for each in both if each not in here]:
            raise ValueError(f"There is no {name}.{unknown[0]}; {name} are numbered from 1 to {len(here)}.")
        else:
            merged[name] = list(both.values())
    return merged


def _numbered(value: Any) -> Mapping[str, Any] | None:
    """A table, or a list of tables as one table; None for anything else."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(each, Mapping) for each in value):
        return {str(i): each for i, each in enumerate(value, 1)}
    return None


def _declared(cls: type) -> Iterator[tuple[str, Field[Any], Any]]:
    """Name, field and type of all fields."""
    hints = get_type_hints(cls)
    for each in fields(cls):
        yield each.name, each, hints[each.name]


def _about(each: Field[Any]) -> Option:
    found: Option = each.metadata.get(_KEY, Option())
    return found


def _changed(instance: Any) -> list[tuple[Option, Any]]:
    """Options that are not their defaults, with their values."""
    values = [(each, getattr(instance, each.name)) for each in fields(instance)]
    return [(_about(each), value) for each, value in values if value != each.default]


def _paths(cls: type, where: str) -> list[str]:
    return [each.name for each in describe(cls, where)]


def _read(path: str, value: Any, hint: Any) -> Any:
    """A value of JSON or TOML as a field of that type holds it."""
    if is_dataclass(hint) and isinstance(hint, type):
        if isinstance(value, hint):
            return value
        if not isinstance(value, Mapping):
            raise ValueError(f"{path} is {value!r}; it must be a table of settings.")
        return options_from_dict(hint, value, path)
    if _kind(hint) == "tables" and not isinstance(value, list | tuple):
        raise ValueError(f"{path} is {value!r}; it must be a list of tables.")
    if isinstance(value, list | tuple):
        (each, *_) = get_args(hint) or (None,)
        value = tuple(_read(f"{path}.{i}", x, each) if is_dataclass(each) else x for i, x in enumerate(value, 1))
    _check_type(path, value, hint)
    return float(value) if hint is float else value


def _check_type(name: str, value: Any, hint: Any) -> None:
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(str, get_args(hint)))}.")
        return
    accepted = int | float if hint is float else hint
    if hint in _KINDS and (not isinstance(value, accepted) or (isinstance(value, bool) and hint is not bool)):
        raise ValueError(f"{name} is {value!r}; it must be {_KINDS[hint]}.")


def _check_range(name: str, value: float, about: Option) -> None:
    if math.isfinite(value) and about.least <= value <= about.most and about.above < value < about.below:
        return
    limits = [("at least", about.least), ("above", about.above), ("at most", about.most), ("below", about.below)]
    words = " and ".join(f"{word} {_number(limit)}" for word, limit in limits if math.isfinite(limit))
    if math.isfinite(about.least) and math.isfinite(about.most):
        words = f"from {_number(about.least)} to {_number(about.most)}"
    raise ValueError(f"{name} is {value}; it must be {words or 'a finite number'}.")


def _number(limit: float) -> str:
    return str(int(limit)) if float(limit).is_integer() else f"{limit:g}"


def _kind(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple and is_dataclass(get_args(hint)[0]):
        return "tables"
    return _KINDS.get(hint) or str(getattr(hint, "__name__", hint))


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return options_to_dict(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
