"""Models on disk: safetensors, with all that is needed to rebuild the model in the metadata. Nothing is unpickled."""

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ipagnn._common.files import write_whole
from ipagnn._common.typed import parse_json, parse_toml, typed
from ipagnn.languages.arithmetic.vocabulary import VOCABULARY_VERSION
from ipagnn.models.base import ProgramModel
from ipagnn.models.config import ModelConfig
from ipagnn.models.legacy import upgrade_model
from ipagnn.models.registry import build_model, config_from_dict, model_class, model_config

FORMAT: Final = "ipagnn model"
FORMAT_VERSION: Final = 1
"""Rises when files written before can no longer be read."""
MAX_BYTES: Final = 2**30
"""Size of a model file. Loading it takes at most three times as much memory, and refusing it next to none."""
_SMALL_BYTES: Final = 16 * 2**20
"""Models of larger files are built without memory of their own; for the others that would take longer than it saves."""
SUFFIX: Final = ".safetensors"
MODEL_FILE: Final = f"model{SUFFIX}"
"""Name of the file in a run folder that holds the selected weights."""


class ModelFileError(ValueError):
    """A file that is not a model this version can read."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A file of weights that somebody named.

    Attributes:
        name: What was given: a file, a run folder, or the name of a model that comes with the package.
        path: The file.
        run: The run folder, if one was given.
        task: Name of the task that the model was trained for; None if neither the file nor the run folder says.
        record: Name of the record that describes the training run; None if the file does not say.
    """

    name: str
    path: Path
    run: Path | None
    task: str | None
    record: str | None

    def load(self, **options: Any) -> ProgramModel:
        """The model; see `load_model`."""
        return load_model(self.path, **options)


def available_models() -> list[str]:
    """Names of the models that come with the package."""
    folder = resources.files("ipagnn") / "weights"
    files = folder.iterdir() if folder.is_dir() else iter(())
    return sorted(file.name.removesuffix(SUFFIX) for file in files if file.name.endswith(SUFFIX))


def model_path(name: str | os.PathLike[str]) -> Path:
    """The file that holds the weights of this name: a file, a run folder, or a model that comes with the package.

    Raises:
        FileNotFoundError: There is no such file or model.
        ValueError: The folder holds no weights.
    """
    path = Path(name)
    if path.is_dir():
        if not (path / MODEL_FILE).is_file():
            raise ValueError(
                f"The folder {path} holds no {MODEL_FILE}; give a run that has ended, or let it go on to its end with "
                f"`ipagnn train {path}`."
            )
        return path / MODEL_FILE
    if path.is_file():
        return path
    available = available_models()
    if str(name) in available:
        return Path(str(resources.files("ipagnn") / "weights" / f"{name}{SUFFIX}"))
    packaged = (
        f"The models that come with the package are {', '.join(available)}."
        if available
        else "No models come with this installation."
    )
    raise FileNotFoundError(f"There is no file and no model {str(name)!r}. {packaged}")


def find_model_file(name: str | os.PathLike[str]) -> ModelFile:
    """The weights of this name, and what their file says about them.

    Args:
        name: A file, a run folder, or the name of a model that comes with the package (`available_models`).

    Raises:
        FileNotFoundError: There is no such file or model.
        ValueError: The folder holds no weights, or the file is not a model.
    """
    path = model_path(name)
    with _opened(path) as file:
        metadata: dict[str, str] = file.metadata() or {}
    _check_version(path, metadata)
    task = metadata.get("task") or _task_of_run(path.parent)
    return ModelFile(str(name), path, Path(name) if Path(name).is_dir() else None, task, metadata.get("record"))


def count_parameters(path: Path) -> int:
    """Numbers in the weights of a file. Only its header is read."""
    with safe_open(path, framework="pt") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118


def hash_weights(path: Path) -> str:
    """A hash (SHA-256) of the names, shapes and values in a file of weights, whatever else its header says.

    Values count as float32, as they are computed with.
    """
    found = hashlib.sha256()
    with _opened(path) as file:
        for name in sorted(file.keys()):
            tensor = file.get_tensor(name).float().contiguous()
            found.update(f"{name}{tuple(tensor.shape)}".encode() + tensor.numpy().tobytes())
    return found.hexdigest()


def save_model(
    model: ProgramModel,
    path: str | os.PathLike[str],
    *,
    task: str | None = None,
    half: bool = False,
    record: str = "",
) -> None:
    """Write a model. The file appears complete or not at all, and is the same for the same model.

    Args:
        model: What to write.
        path: Where.
        task: Name of the task that the model was trained for, such as `full`; None takes `model.task`.
        half: Round weights to float16, which takes half the room; they are read back as float32.
        record: Name of the record that describes how the model was trained and evaluated.
    """
    metadata = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "vocabulary_version": str(VOCABULARY_VERSION),
        "name": model.config.name,
        "config": json.dumps(model.config.to_dict()),
        "task": task or model.task or "",
        "record": record,
    }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    if half:
        tensors = {name: tensor.half() for name, tensor in tensors.items()}
    data = save(tensors, {key: value for key, value in metadata.items() if value})
    write_whole(Path(path), with_sorted_header(data))


def with_sorted_header(data: bytes) -> bytes:
    """A safetensors file with the keys of its header in order; the library leaves that of the metadata to chance."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of 8 bytes
    return len(text).to_bytes(8, "little") + text + data[8 + length :]


def load_model(path_or_name: str | os.PathLike[str], **options: Any) -> ProgramModel:
    """Read a model, ready for inference (`eval` mode), on the CPU.

    Args:
        path_or_name: A file, a run folder, or the name of a model that comes with the package (`available_models`).
        options: Options of the model to change, such as `budget=StepBudget(factor=2)`, or `name="hard-ip-rnn"` to run
            the weights of an IPA-GNN with hard decisions. With another `grammar`, the weights of what a masked line may
            be start again, as they are about the statements of one grammar.

    Raises:
        FileNotFoundError: There is no such file or model.
        ModelFileError: The file is truncated, foreign, or of another version.
    """
    path = model_path(path_or_name)
    with _opened(path) as file:
        metadata: dict[str, str] = file.metadata() or {}
        _check_version(path, metadata)
        config = _read_config(path, metadata)
        config = model_config(options.pop("name", config.name), config, **options)
        try:
            found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118, as it is no dict
            _check_size(config, found)
            with _NoInitialisation(), torch.device("meta") if path.stat().st_size > _SMALL_BYTES else nullcontext():
                model = build_model(config)
            wanted = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
            zeros = {
                name: torch.zeros(wanted[name])
                for name in (model.grammar_weights if "grammar" in options else ())
                if found.get(name) != wanted[name]
            }
            _check_shapes(found, wanted, zeros.keys())
            kept = {name: _whole(file.get_tensor(name)) for name in found if name not in zeros}
            model.load_state_dict(kept | zeros, assign=True)
        except RuntimeError as error:
            raise ModelFileError(
                f"The weights in {path} are not those of a {config.name!r} of {config.hidden} hidden units: {error}"
            ) from error
    model.task = metadata.get("task") or _task_of_run(path.parent)
    return model.eval()


class _NoInitialisation(TorchFunctionMode):
    """Leave weights undefined instead of drawing them, since those of a file replace them all.

    (The device `meta` would do as well, but its first use takes more than a second.)
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        if func in (Tensor.uniform_, Tensor.normal_):
            return args[0]
        if func is torch.linalg.qr:  # of an orthogonal matrix
            return args[0], args[0]
        return func(*args, **(kwargs or {}))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A file of tensors, of which only the header is read at first. Its memory is bounded by its size."""
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise ModelFileError(f"{path} has {size:,} bytes; a model has at most {MAX_BYTES:,}.")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ModelFileError(
            f"{path} is not a readable safetensors file ({error}); it is cut off, damaged or of another kind. "
            "Fetch or save it again."
        ) from error


def _task_of_run(folder: Path) -> str | None:
    """The task in the settings of a run folder: files of older versions do not name it themselves."""
    try:
        return typed(str | None, parse_toml((folder / "config.toml").read_text("utf-8")).get("task"), "task") or None
    except (OSError, ValueError):
        return None


def _whole(tensor: Tensor) -> Tensor:
    # Copied where it is float32 already: where a file has it, it is not aligned, and products round differently.
    if tensor.dtype not in (torch.float16, torch.float32, torch.float64):
        raise RuntimeError(f"a tensor has the type {tensor.dtype}, and weights are float16, float32 or float64.")
    return tensor.float() if tensor.dtype == torch.float16 else tensor.clone()


def _read_config(path: Path, metadata: dict[str, str]) -> ModelConfig:
    try:
        return config_from_dict(upgrade_model(typed(dict, parse_json(metadata.get("config", "")), "it")))
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"The configuration in {path} cannot be read: {error}") from error


def _check_size(config: ModelConfig, shapes: dict[str, tuple[int, ...]]) -> None:
    """Before anything is allocated: a damaged configuration must not ask for all memory there is."""
    name, shape = model_class(config.name).weight_shape(config)
    found = shapes.get(name)
    if found != shape:
        raise RuntimeError(f"{name} has shape {found} instead of {shape}.")


def _check_shapes(
    found: dict[str, tuple[int, ...]], wanted: dict[str, tuple[int, ...]], left_out: Set[str] = frozenset()
) -> None:
    """Before any tensor is read, for the same reason."""
    for name in sorted((found.keys() | wanted.keys()) - left_out):
        if found.get(name) != wanted.get(name):
            there, asked = found.get(name, "missing"), wanted.get(name, "unknown")
            raise RuntimeError(f"{name} is {there} in the file and {asked} in the model.")


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
