"""The application: the API under `/api`, and the page."""

import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from importlib import resources
from typing import Annotated, Any, Final, NamedTuple

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from ipagnn import __version__
from ipagnn.data import collate
from ipagnn.data.collate import PAPER_BUDGET
from ipagnn.inference.explain import explain_programs
from ipagnn.inference.loaded import LoadedModel
from ipagnn.inference.predict import predict_programs
from ipagnn.languages.arithmetic import Lengths, Program, ProgramError, Sampler, card, format_program
from ipagnn.server import schema
from ipagnn.server.guard import LOCAL, RETRY_SECONDS, Guard
from ipagnn.server.limits import BusyError, Lane, Limits, TooLongError
from ipagnn.server.models import Offer

LONGEST_SAMPLE: Final = 100
_PAGE: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/editor.js": ("editor.js", "text/javascript; charset=utf-8"),
    "/graph.js": ("graph.js", "text/javascript; charset=utf-8"),
    "/heatmap.js": ("heatmap.js", "text/javascript; charset=utf-8"),
    "/help.js": ("help.js", "text/javascript; charset=utf-8"),
    "/number.js": ("number.js", "text/javascript; charset=utf-8"),
    "/panel.js": ("panel.js", "text/javascript; charset=utf-8"),
    "/results.js": ("results.js", "text/javascript; charset=utf-8"),
    "/values.js": ("values.js", "text/javascript; charset=utf-8"),
    "/svg.js": ("svg.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
}
_PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    400: {"model": schema.Problem, "description": "Not JSON, or asked under a name that is not the server's."},
    403: {"model": schema.Problem, "description": "Asked by the page of another site."},
    408: {"model": schema.Problem, "description": "The body did not arrive in time."},
    413: {"model": schema.Problem, "description": "The body is too large."},
    422: {"model": schema.Problem, "description": "Not a program, too long a one, or no such model."},
    503: {
        "model": schema.Problem,
        "description": "Too much is waiting already.",
        "headers": {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}},
    },
}


def create_app(offer: Offer, limits: Limits | None = None, hosts: Collection[str] = LOCAL) -> Guard:
    """The application with its guard.

    Args:
        offer: Its models.
        limits: What requests may cost.
        hosts: Names that it answers to.
    """
    bounds = limits or Limits()
    short, long = Lane("short", bounds), Lane("long", bounds)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        short.close()
        long.close()

    app = FastAPI(
        title="ipagnn",
        version=__version__,
        description="Models that learned to execute programs: their predictions, and how they reached them.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # those pages load scripts from another host
        redoc_url=None,
        lifespan=lifespan,
        responses=_PROBLEMS,
    )
    _add_handlers(app, bounds)

    async def answer(asked: schema.ProgramRequest, kind: type[BaseModel], work: "_Work") -> Response:
        began = time.monotonic()
        prepared = await short.run(lambda: _prepare(asked, offer, bounds), began)

        def answer_bytes() -> bytes:
            [result] = work([prepared.program], prepared.model, bounds.truth_steps)
            return kind.model_validate(result.to_dict()).model_dump_json().encode()

        lane = long if prepared.is_long else short
        return Response(await lane.run(answer_bytes, began), media_type="application/json")

    @app.post("/api/predict", response_model=schema.PredictionAnswer)
    async def predict(asked: schema.ProgramRequest) -> Response:
        """Predict a program's result and show the true one."""
        return await answer(asked, schema.PredictionAnswer, predict_programs)

    @app.post("/api/explain", response_model=schema.ExplanationAnswer)
    async def explain(asked: schema.ProgramRequest) -> Response:
        """The same, and where the instruction pointer was at each step."""
        return await answer(asked, schema.ExplanationAnswer, explain_programs)

    @app.get("/api/sample")
    async def sample(
        length: Annotated[int, Query(ge=2, le=LONGEST_SAMPLE, description="Lines.")] = 10,
        task: schema.TaskName = "full",
        seed: Annotated[int | None, Query(ge=0, lt=2**53, description="Which; by default any.")] = None,
        model: Annotated[str | None, Query(description="Whose language; by default the first model's.")] = None,
    ) -> schema.SampleAnswer:
        """Draw a program from the grammar."""
        chosen = offer.choose(model, "full")
        drawn = secrets.randbelow(2**32) if seed is None else seed

        def draw() -> schema.SampleAnswer:
            program, target = Sampler(task, Lengths.exact(length), chosen.grammar, drawn).program(0)
            source = format_program(program, chosen.grammar.condition_modulus)
            return schema.SampleAnswer(source=source, length=length, task=task, seed=drawn, target=target)

        return await short.run(draw)

    @app.get("/api/models")
    async def models() -> list[schema.ModelAnswer]:
        """The models to choose from, the usual one first."""
        return [
            schema.ModelAnswer(
                name=name,
                architecture=model.config.name,
                task=model.task,
                tasks=list(model.model.tasks),
                hidden=model.config.hidden,
                modulus=model.grammar.modulus,
                variable=model.grammar.target_variable,
                condition_modulus=model.grammar.condition_modulus,
            )
            for name, model in offer.models.items()
        ]

    @app.get("/api/language")
    async def language(
        model: Annotated[str | None, Query(description="Whose language; by default the first model's.")] = None,
    ) -> schema.LanguageAnswer:
        """The forms of statements, with examples for the available models."""
        shown = [each for each in card.EXAMPLES if _is_for(each, offer)]
        examples = [each if each.compare in offer.models else each._replace(compare=None) for each in shown]
        return schema.LanguageAnswer(
            forms=[schema.FormAnswer(**form._asdict()) for form in card.forms(offer.choose(model, "full").grammar)],
            examples=[schema.ExampleAnswer(**example._asdict()) for example in examples],
        )

    @app.get("/api/health")
    async def health() -> schema.HealthAnswer:
        """Whether the server is there, and how busy it is."""
        return schema.HealthAnswer(version=__version__, busy=short.busy + long.busy)

    for path, (name, kind) in _PAGE.items():
        app.get(path, include_in_schema=False)(_file(name, kind))
    return Guard(app, hosts, bounds)


def _is_for(example: card.Example, offer: Offer) -> bool:
    """Whether the model of an example is offered and its language has the program."""
    if example.model is None:
        return True
    if example.model not in offer.models:
        return False
    try:
        offer.models[example.model].parse(example.source)
    except ProgramError:
        return False
    return True


_Work = Callable[..., Any]


class _Prepared(NamedTuple):
    """A request that may be worked on.

    Attributes:
        model, program: What was asked.
        is_long: Whether it waits in the long lane.
    """

    model: LoadedModel
    program: Program
    is_long: bool


def _prepare(asked: schema.ProgramRequest, offer: Offer, limits: Limits) -> _Prepared:
    """The model and the program, if it is not too long."""
    if asked.model is None:
        first = next(iter(offer.models.values()))
        model = offer.choose(None, "partial" if offer.parse(asked.source, first).is_partial else "full")
    else:
        model = offer.choose(asked.model, "full")
    program = offer.parse(asked.source, model)
    if len(program) > limits.lines:
        raise ValueError(f"The program has {len(program):,} lines; this server runs up to {limits.lines:,}.")
    is_long = len(program) > limits.long_lines
    if model.runs_on is not None:  # once for each filling of the masked lines, of which two have hundreds
        return _Prepared(model, program, is_long or len(program.masked_lines) > 1)
    follows = model.model.walks == "trace" and not program.is_partial
    grammar, most = model.grammar, limits.traced
    batch = collate(
        [program],
        PAPER_BUDGET if follows else model.config.budget,
        modulus=grammar.modulus,
        condition_modulus=grammar.condition_modulus,
        trace_limit=most + 1,
        trace=follows,
        extended=grammar.is_extended,
        wrap=grammar.wrap,
    )
    if batch.trace is not None and len(batch.trace) > most:
        raise ValueError(f"The program executes more than {most:,} statements; this server follows up to {most:,}.")
    steps = int(batch.steps[0])
    if steps > limits.steps and not follows:
        raise ValueError(
            f"The model would take {steps:,} steps; this server runs up to {limits.steps:,}. Nest loops less deeply."
        )
    return _Prepared(model, program, is_long or len(batch.true) * steps > limits.long_node_steps)


def _file(name: str, kind: str) -> Callable[[], Any]:
    content = (resources.files("ipagnn") / "server/static" / name).read_bytes()

    async def send() -> Response:
        return Response(content, media_type=kind)

    return send


def _problem(status: int, sentence: str, *, line: int | None = None, column: int | None = None) -> JSONResponse:
    return JSONResponse({"detail": sentence, "line": line, "column": column}, status)


def _add_handlers(app: FastAPI, limits: Limits) -> None:
    """Every failure is a `Problem`."""

    @app.exception_handler(ProgramError)
    async def bad_program(_: Request, error: ProgramError) -> JSONResponse:
        return _problem(422, str(error), line=error.line, column=error.column)

    @app.exception_handler(ValueError)
    async def bad_value(_: Request, error: ValueError) -> JSONResponse:
        return _problem(422, str(error))

    @app.exception_handler(RequestValidationError)
    async def bad_request(_: Request, error: RequestValidationError) -> JSONResponse:
        parts = (f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in error.errors()[:3])
        return _problem(422, f"{'; '.join(parts)}.")

    @app.exception_handler(TooLongError)
    async def too_long(_: Request, error: TooLongError) -> JSONResponse:
        return _problem(422, f"The program takes longer than {limits.seconds:g} seconds; make it shorter.")

    @app.exception_handler(BusyError)
    async def busy(_: Request, error: BusyError) -> JSONResponse:
        answer = _problem(503, "The server has too much to do; ask again in a second.")
        answer.headers["Retry-After"] = str(RETRY_SECONDS)
        return answer

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> JSONResponse:
        answer = _problem(error.status_code, f"{error.detail}.".replace("..", "."))
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(ValidationError)  # of an answer of ours, that is; it is a ValueError, but no fault of theirs
    @app.exception_handler(Exception)
    async def failed(_: Request, error: Exception) -> JSONResponse:
        return _problem(500, "The server made a mistake; what happened is in its log.")
