"""Models on disk: safetensors, with all that is needed to rebuild the model in the metadata. Nothing is unpickled."""

import json
import os
from importlib import resources
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ipagnn._common.files import write_whole
from ipagnn.languages.arithmetic.vocabulary import VOCABULARY_SIZE, VOCABULARY_VERSION
from ipagnn.models.base import ModelConfig, ProgramModel, build_model

FORMAT: Final = "ipagnn model"
FORMAT_VERSION: Final = 1
"""Rises when files written before can no longer be read."""
SUFFIX: Final = ".safetensors"


class ModelFileError(ValueError):
    """A file that is not a model this version can read."""


def save_model(model: ProgramModel, path: str | os.PathLike[str], *, half: bool = False, record: str = "") -> None:
    """Write a model. The file appears complete or not at all.

    Args:
        model: What to write.
        path: Where.
        half: Round weights to float16, which takes half the room; they are read back as float32.
        record: Name of the record that tells how the model was trained and what it can do.
    """
    metadata = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "vocabulary_version": str(VOCABULARY_VERSION),
        "name": model.config.name,
        "config": json.dumps(model.config.to_dict()),
    }
    if record:
        metadata["record"] = record
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    if half:
        tensors = {name: tensor.half() for name, tensor in tensors.items()}
    write_whole(Path(path), save(tensors, metadata))


def available_models() -> list[str]:
    """Names of the models that come with the package."""
    folder = resources.files("ipagnn") / "weights"
    files = folder.iterdir() if folder.is_dir() else iter(())
    return sorted(file.name.removesuffix(SUFFIX) for file in files if file.name.endswith(SUFFIX))


def model_record(path_or_name: str | os.PathLike[str]) -> str | None:
    """Name of the record of a model, if its file tells.

    Raises:
        FileNotFoundError: There is no such file or model.
    """
    with safe_open(_find(path_or_name), framework="pt") as file:
        metadata: dict[str, str] = file.metadata() or {}
    return metadata.get("record")


def load_model(path_or_name: str | os.PathLike[str], **options: Any) -> ProgramModel:
    """Read a model, ready for inference (`eval` mode), on the CPU.

    Args:
        path_or_name: A file, or the name of a model that comes with the package (`available_models`).
        options: Fields of `ModelConfig` to change, such as `prune=1e-4`, or `name="hard-ip-rnn"` to run the weights of
            an IPA-GNN with hard decisions.

    Raises:
        FileNotFoundError: There is no such file or model.
        ModelFileError: The file is truncated, foreign, or of another version.
    """
    path = _find(path_or_name)
    try:
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
            _check_version(path, metadata)
            config = _read_config(path, metadata).replace(**options)
            tensors = {name: _whole(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 (no dictionary)
    except SafetensorError as error:
        raise ModelFileError(
            f"{path} is not a readable safetensors file ({error}); it is cut off, damaged or of another kind. "
            "Fetch or save it again."
        ) from error
    try:
        _check_size(config, tensors)
        model = build_model(config)
        model.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise ModelFileError(
            f"The weights in {path} are not those of a {config.name!r} of {config.hidden} hidden units: {error}"
        ) from error
    return model.eval()


def _whole(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype == torch.float16 else tensor


def _find(path_or_name: str | os.PathLike[str]) -> Path:
    path = Path(path_or_name)
    if path.is_file():
        return path
    available = available_models()
    if str(path_or_name) in available:
        return Path(str(resources.files("ipagnn") / "weights" / f"{path_or_name}{SUFFIX}"))
    come = (
        f"The models that come with the package are {', '.join(available)}."
        if available
        else ("No models come with this installation.")
    )
    raise FileNotFoundError(f"There is no file and no model {str(path_or_name)!r}. {come}")


def _read_config(path: Path, metadata: dict[str, str]) -> ModelConfig:
    try:
        return ModelConfig.from_dict(json.loads(metadata["config"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"The configuration in {path} cannot be read: {error}") from error


def _check_size(config: ModelConfig, tensors: dict[str, Tensor]) -> None:
    """Before anything is allocated: a damaged configuration must not ask for all memory there is."""
    found = tensors["cell.embedding"].shape if "cell.embedding" in tensors else None
    if found != (VOCABULARY_SIZE, config.hidden):
        raise RuntimeError(f"cell.embedding has shape {found} instead of {(VOCABULARY_SIZE, config.hidden)}.")


def _check_version(path: Path, metadata: dict[str, str]) -> None:
    if metadata.get("format") != FORMAT:
        raise ModelFileError(
            f"{path} is a safetensors file, but its metadata does not say {FORMAT!r}; it was not written by save_model."
        )
    for what, ours in (("format", FORMAT_VERSION), ("vocabulary", VOCABULARY_VERSION)):
        found = metadata.get(f"{what}_version")
        if found != str(ours):
            raise ModelFileError(
                f"{path} has {what} version {found}; this version of ipagnn reads {ours}. "
                "Install the ipagnn that wrote it, or save the model again."
            )
