"""What tests of several rooms share: programs, small models, and the command line in this process and in another."""

import copy
import io
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from hypothesis import strategies as st

from ipagnn.cli.main import main
from ipagnn.data import Batch, build_test_set
from ipagnn.languages.arithmetic import Grammar, Lengths, ProgramTable, Sampler
from ipagnn.languages.arithmetic.cfg import steps
from ipagnn.languages.arithmetic.tables import StatementArray, ValueTables
from ipagnn.languages.arithmetic.vocabulary import OPERATION
from ipagnn.models import Output, ProgramModel, build_model

from .program_texts import paper_sources

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Shells have what they run in the background ignore Ctrl-C, and processes that tests interrupt would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.pop("COLUMNS", None)  # readline sets it in the workers of pytest-xdist, and answers would be wrapped by it

EXTENDED = Grammar(
    modulus=10**12,
    variables=10,
    target_variable=3,
    digit_variables=3,
    initial_values=(0, 10**12 - 1),
    operands=(0, 10**9),
    factors=(0, 9),
    by_digits=True,
    operand_variable=1,
    condition_variable=1,
    stmt_assign=5,
    wrap=True,
)
"""A language with all that goes past the paper's."""

REFERENCE = Path(__file__).parents[1] / "../shared/reference/full_records.json"


@pytest.fixture(scope="session")
def reference_records() -> list[dict[str, Any]]:
    """50 records of the authors' release; they lie beside the repository, not in it."""
    if not REFERENCE.exists():
        pytest.skip(f"{REFERENCE} is not there")
    records: list[dict[str, Any]] = json.loads(REFERENCE.read_text())
    return records


@pytest.fixture(scope="session")
def sources() -> st.SearchStrategy[str]:
    """Programs as text: any shape the language has, with loops that end, loops that do not, and dead code."""
    return paper_sources()


class Lookup(ProgramModel):
    """A model that is nothing but tables: the truth, but for some wrong facts, of which it is 60% sure.

    Attributes:
        wrong: Operation, operand, value and what the model makes of it.
        asked: How often it was tabulated.
    """

    name: ClassVar[str] = "lookup"
    can_tabulate: ClassVar[bool] = True
    reliable_lines: ClassVar[int | None] = None
    reliable_depth: ClassVar[int | None] = None
    wrong: tuple[tuple[int, int, int, int], ...] = ()
    asked = 0

    def build(self, generator: torch.Generator) -> None:
        self.nothing = torch.nn.Parameter(torch.zeros(1))

    def tabulate(self, statements: StatementArray | None = None) -> ValueTables:
        self.asked += 1
        tables = ValueTables.exact(self.config.grammar, statements)
        outcomes, probabilities = tables.outcomes.copy(), tables.probabilities.copy()
        for operation, operand, value, outcome in self.wrong:
            row = tables.rows[operation - OPERATION, operand]
            if row >= 0:
                outcomes[row, value], probabilities[row, value] = outcome, 0.6
        return replace(tables, outcomes=outcomes, probabilities=probabilities)

    def forward(self, batch: Batch, *, record: frozenset[str] = frozenset()) -> Output:
        raise NotImplementedError


@pytest.fixture(scope="session")
def lookup() -> Callable[..., Lookup]:
    """`lookup((MULTIPLY, 7, 413, 890), grammar=…)`: a model of tables with these wrong facts."""

    def make(*wrong: tuple[int, int, int, int], **options: Any) -> Lookup:
        model = Lookup(**options)
        model.wrong = wrong
        return model

    return make


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("sample", "--length", "5", stdin=b"…")`: exit code and what was written."""

    def call(*arguments: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin)))
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture
def run_process() -> Run:
    """The same in a process of its own."""

    def call(*arguments: object, stdin: bytes = b"") -> Result:
        command = [sys.executable, "-m", "ipagnn", *map(str, arguments)]
        done = subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=300)
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


@pytest.fixture
def run_terminal() -> Callable[..., str]:
    """The same on a terminal, 160 columns wide by default: all it showed, read while it ran, as terminals hold 4 kB."""

    def call(*arguments: object, columns: int = 160) -> str:
        ours, theirs = pty.openpty()
        environment = {name: x for name, x in os.environ.items() if name != "NO_COLOR"}
        environment |= {"TERM": "xterm-256color", "COLUMNS": str(columns)}
        command = [sys.executable, "-m", "ipagnn", *map(str, arguments)]
        process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # what a terminal says when nobody writes to it any more
                break
        os.close(ours)
        assert process.wait(300) == 0
        return shown.decode()

    return call


@pytest.fixture
def is_sentence() -> Callable[[str], bool]:
    """Whether a text is what goes to standard error on bad input: one line that ends like a sentence."""

    def check(text: str) -> bool:
        return text.startswith("Error: ") and text.count("\n") == 1 and text.endswith((".\n", "?\n", "!\n"))

    return check


IP_MODELS = ("ipa-gnn", "hard-ip-rnn", "trace-rnn", "line-rnn")
IP_CASES = [(name, {}) for name in IP_MODELS] + [(name, {"normalise": False}) for name in ("ipa-gnn", "hard-ip-rnn")]
"""These models with their options."""

Make = Callable[..., ProgramModel]


def reference(model: ProgramModel) -> ProgramModel:
    """A copy that is always called with the reference execution, which spells the paper."""
    twin = copy.deepcopy(model)
    forward = twin.forward
    options = {"execution": "reference"} if model.has_executions else {}
    twin.forward = lambda batch, **given: forward(batch, **given | options)  # type: ignore[method-assign]
    return twin


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Matrices here are small: a second thread costs more than it brings."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def mixed() -> ProgramTable:
    """Programs of 2 to 60 lines, loops inside loops among them."""
    chosen = []
    for length in (2, 5, 10, 20, 40, 60):
        drawn = Sampler(lengths=Lengths.exact(length), seed=length).table(0, 50)
        quick = [i for i, program in enumerate(drawn) if steps(program) <= 200]  # of the dense execution's time
        chosen.append(drawn.take(quick[:2]))
    table = ProgramTable.concatenate(chosen)
    assert any(steps(program) > 8 * len(program) // 3 for program in table), "loops inside loops are part of the test"
    return table


@pytest.fixture(scope="session")
def short() -> ProgramTable:
    """Programs of the training lengths."""
    return Sampler(seed=7).table(0, 24)


@pytest.fixture(scope="session")
def make() -> Make:
    """A small model in float64, whose decisions are far from even (fresh ones are all close to one half)."""

    def model(name: str, hidden: int = 6, seed: int = 0, dense: bool = False, **options: Any) -> ProgramModel:
        made = build_model(name, hidden=hidden, **options, seed=seed).double()
        with torch.no_grad():
            for key, parameter in made.named_parameters():
                if "branch.weight" in key:
                    parameter *= 4
        return reference(made) if dense else made

    return model


def memory_taken(prepare: str, script: str, *arguments: object) -> int:
    """Bytes that a process of its own takes while it runs `script`, more than it had after `prepare`.

    The largest memory is read from the process's own map: `ru_maxrss` also counts what its parent had when it forked.
    """
    if not Path("/proc/self/status").exists():
        pytest.skip("the memory of a process is read from /proc, which is not there")
    peak = "next(1024 * int(x.split()[1]) for x in open('/proc/self/status') if x.startswith('VmHWM'))"
    whole = f"import sys\n{prepare}\nbefore = {peak}\n{script}\nprint({peak} - before)"
    command = [sys.executable, "-c", whole, *map(str, arguments)]
    return int(subprocess.run(command, capture_output=True, check=True, text=True, timeout=900).stdout)


@pytest.fixture(scope="session")
def ipa_gnn() -> ProgramModel:
    return build_model("ipa-gnn", hidden=8, seed=1).eval()


@pytest.fixture(scope="session")
def full_programs() -> ProgramTable:
    """Programs of lengths 20 to 100, two of each."""
    return build_test_set("full", 2)


@pytest.fixture(scope="session")
def partial_programs() -> ProgramTable:
    return build_test_set("partial", 2)
