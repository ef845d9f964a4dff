"""Texts, tokens, values and files with something changed."""

import io
import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ipagnn.languages.arithmetic import Lengths, Sampler, format_program

LETTERS = "v0123456789 +-*/=<>%:\n\r\t[]_MASK#ifwhilebreakcontinuepasselseé\u2028😀\x00"
ODD: list[Any] = [None, True, -1, 0, 2**31, 2**63, 1e300, float("nan"), "", "nope", "7", [], {}, [[]], {"a": {"b": []}}]


def mutated_text(text: str, draw: random.Random) -> str:
    """A text with some letters, lines and numbers changed."""
    letters = list(text)
    for _ in range(draw.choice((0, 1, 1, 2, 5, 30))):
        at, kind = draw.randrange(len(letters) + 1), draw.randrange(5)
        if kind == 0:
            letters.insert(at, draw.choice(LETTERS))
        elif kind == 1:
            del letters[at : at + draw.randrange(1, 8)]
        elif kind == 2:
            letters[at : at + 1] = draw.choice(LETTERS)
        elif kind == 3:
            letters[at:at] = letters[at : at + draw.randrange(1, 60)]
        else:
            letters.insert(at, draw.choice(("999", "1000", "\nwhile v0 > 0:\n  v0 = 1", "\n_", "*= 999")))
    return "".join(letters)


def mutated_tokens(tokens: "np.ndarray[Any, Any]", draw: random.Random) -> "np.ndarray[Any, Any]":
    """Token ids with some of them changed."""
    tokens = tokens.copy()
    for _ in range(draw.choice((0, 1, 1, 2, 4))):
        i, kind = draw.randrange(len(tokens)), draw.randrange(4)
        if kind == 0:
            tokens[i, draw.randrange(4)] = draw.choice((0, 1, 2, 999, 1001, 1014, 1019, 1036, 1045, 1047, -1, 32767))
        elif kind == 1 and len(tokens) > 1:
            tokens = np.delete(tokens, i, 0)
        elif kind == 2:
            tokens[[i, draw.randrange(len(tokens))]] = tokens[[draw.randrange(len(tokens)), i]]
        else:
            tokens[i, 0] = max(int(tokens[i, 0]) + draw.choice((-1, 1)), -9) % 2**15
    return tokens


def mutated_bytes(data: bytes, draw: random.Random) -> bytes:
    """Bytes cut off, overwritten, repeated or taken out."""
    damaged = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8))):
        at, kind = draw.randrange(len(damaged) + 1), draw.randrange(4)
        if kind == 0:
            del damaged[at:]
        elif kind == 1:
            damaged[at : at + 4] = draw.randbytes(4)
        elif kind == 2:
            damaged[at:at] = damaged[at : at + draw.randrange(1, 40)]
        else:
            del damaged[at : at + draw.randrange(1, 40)]
    return bytes(damaged)


def mutated_values(values: Any, draw: random.Random) -> Any:
    """JSON with a value somewhere in it replaced, taken out or nested deeper."""
    if isinstance(values, dict) and values and draw.random() < 0.9:
        key = draw.choice(sorted(values))
        changed = dict(values)
        if draw.random() < 0.15:
            del changed[key]
        elif draw.random() < 0.05:
            changed[key + "x"] = changed.pop(key)
        else:
            changed[key] = mutated_values(values[key], draw)
        return changed
    if isinstance(values, list) and values and draw.random() < 0.7:
        at = draw.randrange(len(values))
        return [*values[:at], mutated_values(values[at], draw), *values[at + 1 :]]
    return draw.choice(ODD)


def mutated_safetensors(data: bytes, draw: random.Random) -> bytes:
    """A file of tensors whose header or metadata says something else."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__")
    key = draw.choice(sorted(metadata))
    if draw.random() < 0.8:
        try:
            metadata[key] = json.dumps(mutated_values(json.loads(metadata[key]), draw))
        except ValueError:
            metadata[key] = draw.choice(("", "nope", "[" * 5000, "1e999", "null"))
    else:
        header = mutated_values(header, draw)
    whole = header | {"__metadata__": metadata} if isinstance(header, dict) else header
    text = json.dumps(whole).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def mutated_file(kind: str, data: bytes, draw: random.Random) -> bytes:
    """A file of its kind, damaged in a way that its reader may not notice at once."""
    if draw.random() < 0.3:
        return mutated_bytes(data, draw)
    if kind in ("model", "checkpoint"):
        return mutated_safetensors(data, draw)
    if kind == "manifest":
        values = mutated_values(json.loads(data), draw)
        if isinstance(values, dict):
            values["checksum"] = ""
        return json.dumps(values).encode()
    if kind == "config":
        lines = data.decode().split("\n")
        at = draw.randrange(len(lines))
        name = lines[at].partition("=")[0]
        lines[at] = f"{name} = {draw.choice(('nan', 'inf', '1e300', '-1', '[]', '{}', '[[1]]', 'true', '7', ''))}"
        return "\n".join(lines).encode()
    return mutated_rows(data, draw)


def mutated_rows(data: bytes, draw: random.Random) -> bytes:
    """A shard in which rows say something else, in Parquet that is whole."""
    table = pq.read_table(io.BytesIO(data))
    columns = {name: table.column(name).to_pylist() for name in table.column_names}
    row = draw.randrange(len(table))
    for _ in range(draw.choice((1, 1, 2))):
        kind = draw.randrange(5)
        tokens = np.array(columns["tokens"][row], np.int16).reshape(-1, 4)
        if kind == 0:
            columns["target"][row] = draw.choice((-100, -1, 0, 1, 999, 1000, 10**6, 2**31 - 1))
        elif kind == 1:
            columns["length"][row] = draw.choice((-1, 0, 1, len(tokens) + 1, 2**15 - 1))
        else:
            tokens = mutated_tokens(tokens, draw)
            columns["tokens"][row] = tokens.reshape(-1).tolist()
            columns["length"][row] = len(tokens)
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pydict(columns, schema=table.schema), sink)
    return sink.getvalue()


def texts(draw: random.Random) -> Iterator[str]:
    """Mutated programs without an end."""
    tables = [Sampler(task, Lengths.uniform((5, 10, 20)), seed=4).table(0, 200) for task in ("full", "partial")]  # type: ignore[arg-type]
    sources = [format_program(program) for table in tables for program in table]
    while True:
        yield mutated_text(draw.choice(sources), draw)
