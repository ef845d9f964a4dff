"""The training loop: every `log_every` steps it reads the metrics, and then may validate, save or stop."""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from ipagnn.data.shards import DataSet
from ipagnn.data.stream import Stream
from ipagnn.evaluation.score import Score
from ipagnn.models import StageProgress, build_model
from ipagnn.training.config import TrainConfig
from ipagnn.training.processes import Processes
from ipagnn.training.runs.checkpoint import Checkpoint, Position
from ipagnn.training.runs.events import Events
from ipagnn.training.runs.files import RunError
from ipagnn.training.runs.folder import MetricsFile, Result, RunFolder
from ipagnn.training.runs.provenance import now, peak_memory_mb
from ipagnn.training.schedule import rate_at, stage_rate_at
from ipagnn.training.signals import stop_signals
from ipagnn.training.sources import make_source, stage_costs
from ipagnn.training.step import StepMetrics, TrainingStep, first_model, make_step
from ipagnn.training.validation import Validation

MAX_FAILED_INTERVALS: Final = 20
"""Intervals between metrics in a row in which nine of ten steps or more were skipped, after which a run is given up."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is, for whoever watches.

    Attributes:
        step, steps: Steps taken, and of the whole run; the most, where the accuracy may end stages earlier.
        examples: Programs seen.
        loss, accuracy: Of the programs since the last look, before they were learnt from.
        examples_per_second: Since the last look.
        seconds_left: At this speed, the most as `steps`; programs of later stages count by the steps they take.
            Validations are not counted.
        validation: Accuracy of the last validation in this start; None before it.
        validated: Programs that had been seen when it was made; 0 before it.
        stage, stages: Number of the stage, from 1, and how many there are; 1 in a run without stages.
        length: Lines of the longest programs that are trained on now.
    """

    step: int
    steps: int
    examples: int
    loss: float
    accuracy: float
    examples_per_second: float
    seconds_left: float
    validation: float | None
    validated: int = 0
    stage: int = 1
    stages: int = 1
    length: int = 0


class Loop:
    """One start of a run."""

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        data: DataSet | None,
        processes: Processes,
        report: Callable[[Progress], None] | None,
    ) -> None:
        self._config, self._folder, self._processes, self._report = config, folder, processes, report
        self._stack = ExitStack()
        checkpoint = folder.read_last()
        best = folder.read_best()
        self._position = replace(
            checkpoint.position if checkpoint else Position(),
            best_step=best.best_step,
            best_accuracy=best.best_accuracy,
            best_loss=best.best_loss,
        )
        self._begun = time.monotonic() - self._position.seconds
        self._saved_at, self._saved_step = time.monotonic(), self._position.step if checkpoint else -1
        model = build_model(config.trained_model, config.seed) if checkpoint else first_model(config)
        model.task = config.task
        self._model = model
        self._step: TrainingStep[Any] = make_step(model, config, processes.device)
        if checkpoint:
            try:
                self._step.load(checkpoint.weights, checkpoint.state)
            except (KeyError, IndexError, RuntimeError, ValueError) as error:
                raise RunError(
                    f"{folder.last} does not fit its own settings ({error}); it is damaged. Delete it to train from "
                    "the beginning in this folder."
                ) from error
        self._rate, self._failed_intervals = -1.0, 0
        self._data = data
        self._stages = config.stages or (None,)
        self._costs = stage_costs(config)
        self._score: Score | None = None
        self._validated = 0
        if processes.writes:
            self._validation = Validation(config, processes.device)
        if not self._over:
            with self._open_stream() as stream:
                next(stream)  # a first batch, to see that there is one and that it fits

    def open_files(self) -> None:
        """Begin to write metrics."""
        self._metrics = MetricsFile(self._folder, self._position.metrics_bytes)
        self._stack.callback(self._metrics.close)
        self._events = Events(self._folder.path, self._position.step)
        self._stack.callback(self._events.close)

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, deadline: float | None) -> Result:
        """Train to the end, or to the deadline."""
        with stop_signals() as signalled:

            def asked() -> bool:
                return bool(signalled) or (deadline is not None and time.monotonic() >= deadline)

            longest = 0.0
            while not self._over:
                stage = self._position.stage
                with self._open_stream() as stream:
                    while self._position.stage == stage:
                        began = time.monotonic()
                        self._interval(stream, asked)
                        longest = max(longest, time.monotonic() - began)
                        late = deadline is not None and time.monotonic() + longest > deadline
                        stop = self._processes.any(bool(signalled) or late)
                        if stop or self._over or self._due():
                            self._save()
                        if stop and not self._over:
                            if self._processes.any(bool(signalled)):
                                raise KeyboardInterrupt
                            return self._result("stopped")
        return self._finish()

    @property
    def _over(self) -> bool:
        """Whether all stages have ended."""
        return self._position.stage == len(self._stages)

    def _open_stream(self) -> "Stream[Any]":
        """The programs of the stage, from where it stands."""
        config, position = self._config, self._position
        return Stream(
            make_source(config, self._data, self._stages[position.stage], position.stage_examples),
            config.batch_sizes[position.stage] // self._processes.world,
            self._step.prepare,
            position=position.examples - position.stage_examples,
            threads=config.run.workers,
            ahead=2 * config.run.workers + 2,
            rank=self._processes.rank,
            world=self._processes.world,
        )

    def _interval(self, stream: "Stream[Any]", asked: Callable[[], bool]) -> None:
        """Train to the next multiple of `log_every` steps, the end of the stage, or until asked to stop, and look."""
        config, before = self._config, self._position
        first, batch_size = before.step, config.batch_sizes[before.stage]
        stage = self._stages[before.stage]
        steps_of_stage = config.steps if stage is None else stage.steps
        end = before.stage_step + steps_of_stage
        began = time.monotonic()
        for step in range(first, min(first - first % config.run.log_every + config.run.log_every, end)):
            rate = self._rate_at(step)
            if rate != self._rate:
                self._step.set_rate(rate)
                self._rate = rate
            gone = (step - before.stage_step) / steps_of_stage
            self._model.on_step(StageProgress(before.stage + 1, len(self._stages), gone, step))
            self._step(next(stream))
            if self._processes.world == 1 and asked():  # several would have to agree on the step
                break
        steps = step + 1 - first
        metrics = self._step.metrics()
        seconds = time.monotonic() - began
        if metrics.skipped and config.optimizer.on_nan == "stop":
            raise self._failure(first + metrics.first_skipped)
        self._failed_intervals = self._failed_intervals + 1 if metrics.skipped >= 0.9 * steps else 0
        if self._failed_intervals == MAX_FAILED_INTERVALS:
            raise RunError(
                f"In the last {MAX_FAILED_INTERVALS} intervals, up to step {first + steps}, nearly all gradients were "
                f"not finite or beyond norm_limit, {config.optimizer.norm_limit:g}: this run does not come back. "
                "Begin a new one with a smaller optimizer.learning_rate or optimizer.max_grad_norm."
            )
        now = self._position = replace(
            before,
            step=first + steps,
            examples=before.examples + steps * batch_size,
            counted=before.counted + metrics.count,
            correct=before.correct + metrics.correct,
            skipped=before.skipped + metrics.skipped,
            seconds=self._seconds,
        )
        whole = now.step % config.run.log_every == 0  # an interval that was not cut short
        reached = whole and stage is not None and 0 < stage.until * now.counted <= now.correct
        ended = now.step == end or reached
        if self._processes.writes:
            self._log(metrics, steps * batch_size / seconds)
            if ended or (whole and self._crossed(config.run.validation_every)):
                self._validate()
        if whole or ended:
            self._position = replace(self._position, looked_examples=now.examples, counted=0, correct=0)
        if ended:
            place = {"stage": now.stage + 1, "stage_step": now.step, "stage_examples": now.examples}
            self._position = replace(self._position, **place)

    def _rate_at(self, step: int) -> float:
        """The learning rate of a step of the stage."""
        stage = self._stages[self._position.stage]
        if stage is None:
            return rate_at(self._config, step)
        return stage_rate_at(self._config, stage, step, self._position.stage_step)

    def _crossed(self, every: int) -> bool:
        """Whether a multiple of `every` examples was reached since the last look."""
        position = self._position
        return position.looked_examples // every < position.examples // every

    def _log(self, metrics: StepMetrics, speed: float) -> None:
        config, step = self._config, self._position.step
        line = {
            "kind": "train",
            "step": step,
            "examples": self._position.examples,
            "loss": None if math.isnan(metrics.loss) else metrics.loss,  # where all steps were skipped
            "accuracy": None if math.isnan(metrics.accuracy) else metrics.accuracy,
            "norm": None if math.isnan(metrics.norm) else metrics.norm,
            "largest_norm": metrics.largest_norm,
            "rate": self._rate_at(step - 1),
            **({"stage": self._position.stage + 1} if config.stages else {}),
            "skipped": metrics.skipped,
            "seconds": round(self._position.seconds, 3),
            "examples_per_second": round(speed, 1),
            "memory_mb": round(peak_memory_mb(self._processes.device), 1),
        }
        self._write(line)
        if self._report:
            self._report(self._progress(metrics, speed))

    def _progress(self, metrics: StepMetrics, speed: float) -> Progress:
        config, position, stage = self._config, self._position, self._stages[self._position.stage]
        gone = position.step - position.stage_step
        costs = [cost * steps for cost, steps in zip(self._costs, _steps_of(config), strict=True)][position.stage :]
        costs[0] -= self._costs[position.stage] * gone  # in programs as long as those of this stage
        return Progress(
            step=position.step,
            steps=config.steps,
            examples=position.examples,
            loss=metrics.loss,
            accuracy=metrics.accuracy,
            examples_per_second=speed,
            seconds_left=sum(costs) / self._costs[position.stage] * config.batch_sizes[position.stage] / speed,
            validation=self._score.accuracy if self._score else None,
            validated=self._validated,
            stage=position.stage + 1,
            stages=len(self._stages),
            length=config.data.length if stage is None else stage.length,
        )

    def _validate(self) -> None:
        """Score the weights, and keep them if they are the best so far. Of equal ones, the later are kept."""
        weights = self._step.weights(averaged=True)
        self._score = score = self._validation(weights)
        step = self._position.step
        self._validated = self._position.examples
        self._write(
            {
                "kind": "validation",
                "step": step,
                "examples": self._validated,
                "loss": score.loss,
                "accuracy": score.accuracy,
                "count": score.count,
                "seconds": round(self._seconds, 3),
            }
        )
        best, loss = self._position.best_accuracy, self._position.best_loss
        if score.accuracy > best or (score.accuracy == best and loss is not None and score.loss <= loss):
            self._position = replace(self._position, best_step=step, best_accuracy=score.accuracy, best_loss=score.loss)
            Checkpoint(self._config, self._position, weights, {}).write(self._folder.best)

    def _write(self, line: dict[str, Any]) -> None:
        self._metrics.write(line)
        self._events.write(line)

    def _due(self) -> bool:
        config = self._config
        by_steps = config.run.checkpoint_steps and self._position.step - self._saved_step >= config.run.checkpoint_steps
        by_clock = config.run.checkpoint_every and time.monotonic() - self._saved_at >= config.run.checkpoint_every
        return bool(by_steps or by_clock)

    def _save(self) -> None:
        """Write the checkpoint that the run goes on from."""
        if not self._processes.writes or self._saved_step == self._position.step:
            return
        position = replace(self._position, metrics_bytes=self._metrics.flush(), seconds=self._seconds)
        Checkpoint(self._config, position, self._step.weights(), self._step.state_dict()).write(self._folder.last)
        self._saved_at, self._saved_step = time.monotonic(), position.step

    @property
    def _seconds(self) -> float:
        """Time so far, over all starts."""
        return time.monotonic() - self._begun

    def _failure(self, step: int) -> RunError:
        good = f"{self._folder.last}, after step {self._saved_step}" if self._saved_step >= 0 else "none yet"
        return RunError(
            f"The gradient of step {step} is not finite or its norm is beyond norm_limit, "
            f"{self._config.optimizer.norm_limit:g}; it was not applied, and training stopped. The last good "
            f"checkpoint is {good}. Go on with --set optimizer.on_nan=skip, or begin a new run with a smaller "
            "optimizer.learning_rate or optimizer.max_grad_norm."
        )

    def _finish(self) -> Result:
        result = self._result("finished")
        if self._processes.writes:
            self._folder.write_model()
            self._folder.finish(result)
        self._processes.wait()
        return result

    def _result(self, state: Literal["finished", "stopped"]) -> Result:
        position = self._position
        return Result(
            state,
            position.step,
            position.examples,
            position.best_accuracy,
            position.best_step,
            position.skipped,
            round(position.seconds, 3),
            now(),
        )


def _steps_of(config: TrainConfig) -> list[int]:
    """Steps of each stage; the most, where the accuracy may end it."""
    return [stage.steps for stage in config.stages] or [config.steps]
