"""What somebody may have meant by a name that is unknown."""

import difflib
from collections.abc import Iterable


def near_miss(name: str, known: Iterable[str], otherwise: str) -> str:
    """A sentence that names the nearest known name, or all of them if none is near.

    Names may be dotted. Their last words decide, so `hiden` is near `model.hidden`, and `model.xyz` is near nothing.

    Args:
        name: What was written.
        known: What is accepted.
        otherwise: How the sentence with all names begins, as in "The models are".
    """
    known = list(known)
    leaves = difflib.get_close_matches(_leaf(name), {_leaf(each) for each in known}, n=3, cutoff=0.7)
    near = [each for each in known if _leaf(each) in leaves]
    if not near:
        return f"{otherwise} {', '.join(known)}."
    best = max(near, key=lambda each: (_likeness(_leaf(name), _leaf(each)), _likeness(name, each)))
    return f"Did you mean {best!r}?"


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _likeness(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b).ratio()
