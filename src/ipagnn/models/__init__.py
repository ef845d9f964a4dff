"""The paper's models: `build_model` makes one, `load_model` reads one, and `model(batch)` runs it."""

from typing import TYPE_CHECKING

from ipagnn._common.lazy import import_lazily

if TYPE_CHECKING:
    from ipagnn._common.options import option
    from ipagnn.models.base import ProgramModel
    from ipagnn.models.config import ModelConfig
    from ipagnn.models.env_ipa_gnn import EnvIPAGNN
    from ipagnn.models.files import ModelFile, ModelFileError, available_models, find_model_file, load_model, save_model
    from ipagnn.models.ggnn import GGNN
    from ipagnn.models.hard_ip_rnn import HardIPRNN
    from ipagnn.models.ipa_gnn import IPAGNN
    from ipagnn.models.line_rnn import LineRNN
    from ipagnn.models.no_control import NoControl
    from ipagnn.models.no_execute import NoExecute
    from ipagnn.models.output import Output, Recorded
    from ipagnn.models.r_gat import RGAT
    from ipagnn.models.registry import (
        MODELS,
        build_model,
        config_from_dict,
        model_config,
        model_title,
        register,
        register_file,
    )
    from ipagnn.models.stepping import StageProgress
    from ipagnn.models.trace_rnn import TraceRNN

__all__ = [
    "GGNN",
    "IPAGNN",
    "MODELS",
    "RGAT",
    "EnvIPAGNN",
    "HardIPRNN",
    "LineRNN",
    "ModelConfig",
    "ModelFile",
    "ModelFileError",
    "NoControl",
    "NoExecute",
    "Output",
    "ProgramModel",
    "Recorded",
    "StageProgress",
    "TraceRNN",
    "available_models",
    "build_model",
    "config_from_dict",
    "find_model_file",
    "load_model",
    "model_config",
    "model_title",
    "option",
    "register",
    "register_file",
    "save_model",
]

import_lazily(__name__)
