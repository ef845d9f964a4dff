"""From programs to what models read: batches, splits, shards, streams."""

from typing import TYPE_CHECKING

from ipagnn._common.lazy import import_lazily

if TYPE_CHECKING:
    from ipagnn.data.collate import PAPER_BUDGET, StepBudget, collate
    from ipagnn.data.contract import BATCH_FIELDS, Batch, Field, check_batch
    from ipagnn.data.generate import generate
    from ipagnn.data.manifest import DataSetError, Manifest, Shard
    from ipagnn.data.shards import DataSet, read_shards
    from ipagnn.data.splits import (
        TEST_LENGTHS,
        TEST_SEED,
        TRAIN_SEED,
        TRAINING_LENGTH,
        VALIDATION_SEED,
        Recipe,
        Split,
        build_test_set,
        build_validation_set,
        recipe,
        training_sampler,
    )
    from ipagnn.data.stream import Source, Stream
    from ipagnn.data.tasks import TASKS, Target, Task, find_task, register_task
    from ipagnn.data.torch_data import Collator, ProgramDataset, ProgramStream

__all__ = [
    "BATCH_FIELDS",
    "PAPER_BUDGET",
    "TASKS",
    "TEST_LENGTHS",
    "TEST_SEED",
    "TRAINING_LENGTH",
    "TRAIN_SEED",
    "VALIDATION_SEED",
    "Batch",
    "Collator",
    "DataSet",
    "DataSetError",
    "Field",
    "Manifest",
    "ProgramDataset",
    "ProgramStream",
    "Recipe",
    "Shard",
    "Source",
    "Split",
    "StepBudget",
    "Stream",
    "Target",
    "Task",
    "build_test_set",
    "build_validation_set",
    "check_batch",
    "collate",
    "find_task",
    "generate",
    "read_shards",
    "recipe",
    "register_task",
    "training_sampler",
]

import_lazily(__name__)
