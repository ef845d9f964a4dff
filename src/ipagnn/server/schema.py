"""What goes over the wire, as the OpenAPI description tells it."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

Probability = Annotated[float, Field(ge=0, le=1.000001)]
Index = Annotated[int, Field(ge=0)]
LARGEST_NUMBER: Final = 2**53 - 1
Value = Annotated[
    int,
    Field(ge=0, description="A whole number; as text above 2^53 - 1, beyond which readers of JSON may round."),
    PlainSerializer(lambda value: value if value <= LARGEST_NUMBER else str(value), int | str, when_used="json"),
]
TaskName = Literal["full", "partial"]


class ProgramRequest(BaseModel):
    """A program, and the model that is to run it."""

    model_config = ConfigDict(extra="forbid")

    source: str = Field(description="The program as text; one line may be masked, `[MASK]` or `_`.")
    model: str | None = Field(None, description="A name of `GET /api/models`; by default the first that fits.")


class Problem(BaseModel):
    """Why there is no answer."""

    detail: str = Field(description="One sentence.")
    line: int | None = Field(None, description="Line of the text, from 1, if the program is at fault.")
    column: int | None = Field(None, description="Column in that line, from 1.")


class Result(BaseModel):
    """A result and its probability."""

    value: Value
    probability: Probability


class ExactResult(Result):
    """A result with its exact probability, and what the model gives it."""

    predicted: Probability


class PredictionAnswer(BaseModel):
    """The prediction of a model, how far it can be trusted, and the true result."""

    model: str
    task: TaskName = Field(description="`partial` if a line is masked.")
    lines: list[str] = Field(description="The program in the paper's form; lines and columns below count from 0.")
    variable: Index = Field(description="The variable whose final value is the result: k of vk.")
    modulus: Value = Field(description="Results are modulo this.")
    value: Value = Field(description="The prediction.")
    confidence: Probability = Field(description="Its probability, given the part of the pointer in `exit_mass`.")
    exit_mass: Probability | None = Field(
        description="Share of the pointer that reached the exit; null for a model without one."
    )
    steps: Index | None = Field(
        description="Steps that the model was given; null for one that takes one for each line or statement."
    )
    trust: str = Field(description="What the answer rests on, in one line.")
    proved: bool | None = Field(
        description="Whether the model is proved to run the program as the language says; null where it is not a "
        "complete program over automata."
    )
    warnings: list[str] = Field(description="What speaks against the answer, in sentences that count lines from 1.")
    top: list[Result] = Field(description="The likeliest results.")
    true_value: Value | None = Field(
        description="The true result; null if a line is masked or the program does not end."
    )
    true_probability: Probability | None = Field(description="What the model gives it.")
    trace_length: Index | None = Field(description="Statements executed until then.")
    exact: list[ExactResult] | None = Field(description="For a masked program, the distribution over fillings.")
    samples: Index = Field(description="Fillings that `exact` is estimated from; 0 if it is over all.")
    why: str | None = Field(description="Why neither is known.")
    dropped: float = Field(description="Pointer mass that was not followed, for the program was long.")


class TraceStep(BaseModel):
    """One executed statement."""

    line: Index
    v0: Value = Field(description="The variable of the result, modulo the modulus, after it.")
    branch: bool | None = Field(description="Whether the condition held; null for a statement without one.")


class SoftDecisionAnswer(BaseModel):
    """A branch decision that was not discrete."""

    step: Index
    line: Index
    mass: float = Field(description="Pointer mass that met it.")
    true: Probability = Field(description="Share of it that took the true branch.")


class ShortcutAnswer(BaseModel):
    """A line that the model visits less often than the true trace."""

    line: Index
    visits: float
    executed: Index


class BeliefsAnswer(BaseModel):
    """The values of the variables before the first step and after each: what the model believes, and what is true."""

    variables: list[Index] = Field(description="The variables that the program mentions: k of vk.")
    lines: list[int] = Field(description="Where control is after each step; -1 at the exit.")
    values: list[list[Value]] = Field(description="By step, the likeliest value of each variable.")
    probabilities: list[list[Probability]] = Field(description="The probability of each.")
    true_lines: list[int] | None = Field(description="Where control is on the true trace; null if a line is masked.")
    true_values: list[list[Value]] | None = Field(description="The true values; null if a line is masked.")
    parts: Index | None = Field(description="The first step after which something is not as it truly is; or null.")


class RecordedAnswer(BaseModel):
    """A quantity that a model recorded, with an entry for each line or node."""

    axis: str = Field(description="`line` or `node`.")
    data: list[Any]


class ExplanationAnswer(PredictionAnswer):
    """What a model did on a program. Nodes are those of the control flow graph, the exit last."""

    nodes: list[Index] = Field(description="Line of each node but the exit.")
    true: list[Index] = Field(description="Node that follows each node if its condition holds.")
    false: list[Index] = Field(description="The same if not; equal for a node that does not branch.")
    exit: Index
    pointer: list[list[tuple[int, float]]] | None = Field(
        description="By step, from before the first: (node, mass of the instruction pointer), from 0.001 on. Null for "
        "a model without one; so are branch, path, path_ends, soft, visits and shortcuts."
    )
    branch: list[list[tuple[int, float]]] | None = Field(description="By step: (node, probability of true).")
    path: list[Index] | None = Field(description="Nodes on the path of likelier branches.")
    path_ends: bool | None = Field(description="Whether it reaches the exit; null if it does after more steps.")
    soft: list[SoftDecisionAnswer] | None
    visits: list[float] | None = Field(description="Expected visits of each node but the exit.")
    trace: list[TraceStep] | None = Field(description="The true trace as far as `pointer` goes; null if masked.")
    executed: list[Index] | None = Field(description="How often the true trace is at each node but the exit.")
    shortcuts: list[ShortcutAnswer] | None
    recorded: dict[str, RecordedAnswer] = Field(description="What else the model recorded, by name.")
    beliefs: BeliefsAnswer | None = Field(description="Values of variables by step; null for a model that holds none.")


class SampleAnswer(BaseModel):
    """A program from the grammar."""

    source: str
    length: Index
    task: TaskName
    seed: Index = Field(description="Asked for again, it gives the same program.")
    target: Value = Field(description="v0 modulo the modulus at the end of the complete program.")


class ModelAnswer(BaseModel):
    """A model to choose."""

    name: str
    architecture: str = Field(description="Such as `ipa-gnn`.")
    task: str | None = Field(description="What it was trained for; null if its file does not say.")
    tasks: list[str] = Field(description="What it can do.")
    hidden: Index
    modulus: Value = Field(description="Results are modulo this.")
    variable: Index = Field(description="The variable whose final value is the result: k of vk.")
    condition_modulus: Index


class FormAnswer(BaseModel):
    """Something that may be written."""

    text: str
    meaning: str = Field(description="What it does; parts in backquotes are code.")


class ExampleAnswer(BaseModel):
    """A program to begin with."""

    name: str
    source: str
    about: str = Field(description="What there is to see; parts in backquotes are code.")
    model: str | None = Field(description="The model that it is for; null for the usual one.")
    compare: str | None = Field(description="A second model that is worth seeing beside it.")


class LanguageAnswer(BaseModel):
    """The forms of statements."""

    forms: list[FormAnswer]
    examples: list[ExampleAnswer]


class HealthAnswer(BaseModel):
    """That the server is there, and how busy it is."""

    status: Literal["ok"] = "ok"
    version: str
    busy: Index = Field(description="Requests being worked on or waiting.")
