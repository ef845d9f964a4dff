"""Learning to execute programs with instruction pointer attention graph neural networks.

`predict` and `explain` let a model look at a program; `load_model` gives the model itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipagnn.inference.explain import Explanation, explain
    from ipagnn.inference.predict import Prediction, predict
    from ipagnn.models import available_models, load_model

__all__ = ["Explanation", "Prediction", "__version__", "available_models", "explain", "load_model", "predict"]

__version__ = "0.1.0"

_HOMES = {
    "Explanation": "ipagnn.inference.explain",
    "Prediction": "ipagnn.inference.predict",
    "available_models": "ipagnn.models",
    "explain": "ipagnn.inference.explain",
    "load_model": "ipagnn.models",
    "predict": "ipagnn.inference.predict",
}


def __getattr__(name: str) -> Any:
    """What `__all__` names, imported when first asked for: `import ipagnn` alone does not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
