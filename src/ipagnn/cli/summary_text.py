"""The numbers of an evaluation, for the terminal."""

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from ipagnn.evaluation import Summary


def print_summary(console: Console, summary: "Summary", *, first: bool) -> None:
    """Print the numbers of an evaluation; all but the first after an empty line."""
    if not first:
        console.print()
    used = summary["set"]
    console.print(
        f"{summary['weights']}: {summary['model']} on {used['count']:,} {summary['task']} programs of {used['name']}",
        soft_wrap=True,
        markup=False,
    )
    if used.get("skipped"):
        console.print(
            f"{used['skipped']:,} invalid programs were left out; the first: {used['first_skipped']}",
            soft_wrap=True,
            markup=False,
        )
    best = summary.get("ceiling")
    table = Table(header_style="bold")
    for title in ("length", "programs", "accuracy", *(("best possible",) if best else ())):
        table.add_column(title, justify="right")
    rows = [*summary["by_length"].items(), ("all", summary["overall"])]
    for n, (length, row) in enumerate(rows):
        cells = [length, f"{row['count']:,}", f"{row['accuracy']:.1%} ± {row['stderr']:.1%}"]
        if best:
            cells.append(f"{(best['overall'] if length == 'all' else best['by_length'][length])['best']:.1%}")
        table.add_row(*cells, end_section=n == len(rows) - 2)
    console.print(table)
    _print_details(console, summary)


def _print_details(console: Console, summary: "Summary") -> None:
    """What else was measured, a line each."""
    from ipagnn.evaluation.metrics import columns

    for target, metric, is_share in columns([summary]):
        value = summary["targets"][target][metric]
        console.print(f"{metric.replace('_', ' ')} of {target}: {f'{value:.1%}' if is_share else f'{value:.3f}'}")
    if "top" in summary:
        top = ", ".join(f"{k} {value:.1%}" for k, value in summary["top"].items())
        console.print(f"target among the k likeliest: {top}")
        console.print(f"calibration error {summary['calibration']['ece']:.3f}")
    if not summary.get("bounded", True):
        console.print("run over what the model has learned of each statement: hard pointer, no bound on steps")
    if "trace" in summary:
        fits, exceeds = summary["trace"]["fits"], summary["trace"]["exceeds"]
        console.print(f"true trace fits the steps given: {_share(fits)}; does not: {_share(exceeds)}")
    if "by_loops" in summary:
        loops = (f"{_depth(n)} {_share(row)}" for n, row in summary["by_loops"].items())
        console.print(f"loops on the true trace: {', '.join(loops)}")
    if "pointer" in summary:
        numbers = summary["pointer"]
        parts = [
            f"discrete branch decisions {_percent(numbers['discrete'])}",
            f"exit reached {_percent(numbers['reached'])}",
            f"after {_number(numbers['exit_step'])} steps",
        ]
        if "trace_length" in numbers:
            parts[-1] += f" where the true trace has {_number(numbers['trace_length'])} (medians)"
            parts.append(f"path equals trace {_percent(numbers['path_exact'])}")
        console.print(f"pointer: {', '.join(parts)}")
    if "dropped" in summary:
        numbers = summary["dropped"]
        console.print(
            f"mass dropped for speed: {numbers['mass']:.2g} per program; it could change {numbers['open']:,} answers "
            f"({numbers['share']:.1%}); exact with --tolerance 0"
        )


def _depth(loops: str) -> str:
    return {"0": "none", "1": "not nested"}.get(loops, f"{loops} deep")


def _share(row: dict[str, Any]) -> str:
    return f"{row['accuracy']:.1%} of {row['count']:,}" if row["count"] else "no programs"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
