"""Learning to execute programs with instruction pointer attention graph neural networks.

`predict` and `explain` run a model on programs; `load_model` reads the model itself, `train` makes a new one.
"""

from typing import TYPE_CHECKING

from ipagnn._common.lazy import import_lazily

if TYPE_CHECKING:
    from ipagnn import nn
    from ipagnn.evaluation.evaluate import evaluate
    from ipagnn.inference.embed import embed
    from ipagnn.inference.explain import Explanation, explain
    from ipagnn.inference.predict import Prediction, predict
    from ipagnn.languages.arithmetic.grammar import Grammar
    from ipagnn.languages.arithmetic.sampler import Sampler
    from ipagnn.languages.arithmetic.text import parse
    from ipagnn.models.env_ipa_gnn import EnvIPAGNN
    from ipagnn.models.files import available_models, load_model, save_model
    from ipagnn.models.ggnn import GGNN
    from ipagnn.models.hard_ip_rnn import HardIPRNN
    from ipagnn.models.ipa_gnn import IPAGNN
    from ipagnn.models.line_rnn import LineRNN
    from ipagnn.models.no_control import NoControl
    from ipagnn.models.no_execute import NoExecute
    from ipagnn.models.r_gat import RGAT
    from ipagnn.models.trace_rnn import TraceRNN
    from ipagnn.training.trainer import train

__all__ = [
    "GGNN",
    "IPAGNN",
    "RGAT",
    "EnvIPAGNN",
    "Explanation",
    "Grammar",
    "HardIPRNN",
    "LineRNN",
    "NoControl",
    "NoExecute",
    "Prediction",
    "Sampler",
    "TraceRNN",
    "__version__",
    "available_models",
    "embed",
    "evaluate",
    "explain",
    "load_model",
    "nn",
    "parse",
    "predict",
    "save_model",
    "train",
]

__version__ = "0.2.0"

import_lazily(__name__)
