"""What checking foreign programs costs, beside reading them: `python benchmarks/checks.py`.

Processor time, so that other work on the machine counts little, and the least of several rounds in one process. Reading
is what `read_shards` does with a shard: hash the file, decode Parquet, and hold the rows against the manifest.
"""

import hashlib
import time
from collections.abc import Callable

from ipagnn.data import recipe
from ipagnn.data.labels import find_wrong_label
from ipagnn.data.shards import LABELS_CHECKED, decode_shard, encode_shard
from ipagnn.languages.arithmetic import Grammar, Lengths

PROGRAMS = 100_000
ROUNDS = 7
LANGUAGES = {
    "paper": Grammar(),
    "18 digits, variable operands": Grammar(
        modulus=10**18,
        initial_values=(0, 10**18 - 1),
        operands=(0, 10**18 - 1),
        factors=(0, 9),
        by_digits=True,
        variables=4,
        digit_variables=2,
        operand_variable=1,
    ),
}


def least_seconds(work: Callable[[], object]) -> float:
    """Processor time of the fastest round."""
    found = []
    for _ in range(ROUNDS + 1):  # the first one compiles
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found[1:])


def row(language: str, grammar: Grammar, name: str, lengths: Lengths, count: int) -> str:
    """What reading and checking programs of a language and length costs."""
    what = recipe("train", "full", count, 0, lengths, grammar)
    table = what.table(0, count)
    data = encode_shard(table, wide=grammar.modulus > 2**31)
    sample = table.take(range(0, count, count // LABELS_CHECKED))
    check = least_seconds(
        lambda: table.check(task="full", modulus=grammar.modulus, known=True, extended=grammar.is_extended)
    )
    read = least_seconds(lambda: (hashlib.sha256(data), decode_shard(data, "a shard", what)))
    labels = least_seconds(lambda: find_wrong_label(sample, grammar))
    share = check / (read - check)
    return f"| {language} | {name} | {1e3 * read:.1f} | {1e3 * check:.1f} | {share:.1%} | {1e3 * labels:.1f} |"


def main() -> None:
    print("| language | lines | read (ms) | of that the check (ms) | share | labels of a sample (ms) |")
    print("|---|---:|---:|---:|---:|---:|")
    for language, grammar in LANGUAGES.items():
        print(row(language, grammar, "training, up to 10", Lengths.training(10), PROGRAMS))
        print(row(language, grammar, "100", Lengths.exact(100), PROGRAMS // 10))


if __name__ == "__main__":
    main()
