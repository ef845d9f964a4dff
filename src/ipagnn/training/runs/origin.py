"""The weights that a run starts from: a name may mean others later, so `run.json` keeps their hash and record."""

from dataclasses import dataclass

from ipagnn.models.files import find_model_file, hash_weights
from ipagnn.training.config import TrainConfig


@dataclass(frozen=True, slots=True)
class Origin:
    """The weights that a run starts from.

    Attributes:
        weights: Their hash, as `hash_weights` computes it.
        record: Name of the record of the run that made them; None if their file does not say.
    """

    weights: str
    record: str | None = None


def find_origin(config: TrainConfig) -> Origin | None:
    """The weights that `config.init_from` names now; None if a run draws new ones.

    Raises:
        FileNotFoundError: There are no weights of this name.
        ValueError: The file or folder holds none.
    """
    if not config.init_from:
        return None
    file = find_model_file(config.init_from)
    return Origin(hash_weights(file.path), file.record)
