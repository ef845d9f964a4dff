"""The report as one page of HTML that opens from disk: no scripts, no network, pictures inside.

Every number on the page is looked up in the document by a path, which the page keeps as `data-key`; so it shows what
the JSON beside it holds, and anyone can check.
"""

import base64
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

Format = Callable[[Any], str]

_STYLE = """
:root { color-scheme: light dark; --line: #bbb; --soft: #f3f3f3; }
@media (prefers-color-scheme: dark) { :root { --line: #555; --soft: #222; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .45rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top; }
.text { text-align: left; } .text:first-child { overflow-wrap: anywhere; min-width: 7rem; }
td:not(.text) { white-space: nowrap; }
thead th { border-bottom: 2px solid currentColor; }
figure { margin: 1rem 0; } img { max-width: 100%; background: #fff; padding: .4rem; box-sizing: border-box; }
figcaption, .note { font-size: .9rem; } .note { background: var(--soft); padding: .5rem .8rem; }
pre { background: var(--soft); padding: .6rem .8rem; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .8rem; }
"""


def percent(value: float) -> str:
    """A share in per cent."""
    return f"{100 * value:.1f}"


def points(value: float) -> str:
    """A difference of shares in points."""
    return f"{100 * value:+.1f}"


def whole(value: float) -> str:
    """A number without decimals."""
    return f"{value:,.0f}"


def three(value: float) -> str:
    """A number with three decimals."""
    return f"{value:.3f}"


def programs(count: float) -> str:
    """A number of programs, in millions where there are."""
    return whole(count) if count < 1_000_000 else f"{count / 1e6:.1f} M"


def duration(seconds: float) -> str:
    """A time in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def energy(joules: float) -> str:
    """An energy in kilojoules."""
    return f"{joules / 1000:,.1f} kJ"


def plain(value: object) -> str:
    """As it is."""
    return str(value)


FORMATS: dict[str, Format] = {f.__name__: f for f in (percent, points, whole, three, programs, duration, energy, plain)}
"""By the name that the page keeps as `data-format`."""


def look_up(document: Any, key: str) -> Any:
    """What stands at a path such as `rows.0.full.ours`; None if there is nothing."""
    here = document
    for part in key.split("."):
        if isinstance(here, list):
            here = here[int(part)]
        elif isinstance(here, dict):
            here = here.get(part)
        else:
            return None
    return here


def render(document: dict[str, Any], pictures: Sequence[tuple[str, bytes]]) -> str:
    """The page.

    Args:
        document: From `build_document`.
        pictures: Caption and SVG of each figure.
    """
    page = _Page(document)
    runs = range(len(document["runs"]))
    body = [
        f"<h1>{escape(document['title'])}</h1>",
        f"<p>ipagnn {page.value('version', 'plain')}, {page.value('made', 'plain')}</p>",
        *(f'<p class="note">{escape(note)}</p>' for note in document["notes"]),
        "<h2>Accuracy on the test set, %</h2>",
        "<p>Of each model, the settings that are best on validation. Rows of their own have models with the release's "
        "decoder or edge types, those taught by traces, and those trained with enough steps, of which validation does "
        "not tell, so that the last programs of training choose. Runs that differ in their seed alone are averaged; ± "
        "is one standard error, over programs for one run and over runs for several.</p>",
        page.results(),
        *(_figure(caption, svg) for caption, svg in pictures),
        "<h2>All settings, %</h2>",
        page.groups(),
        "<h2>By length, %</h2>",
        page.by_length(runs),
        "<h2>What the models do</h2>",
        "<p>Discrete: share of pointer mass at branch decisions that meets one with more than 0.99 on one "
        "side. Exit step: median step by which half the mass is at the exit; trace: median length of the true "
        "trace of the same programs. Path = trace: the likelier branches lead along the true trace to its "
        "end. Fits, exceeds: accuracy where the true trace has at most as many statements as the model has "
        "steps, and where it has more. Top 5: the target is among the five likeliest. ECE: expected "
        "calibration error. To best: distance to the best possible accuracy.</p>",
        page.details(runs),
        "<h2>Settings, hardware and cost</h2>",
        page.costs(runs),
        *(page.settings(i) for i in runs),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        'img-src data:">\n'
        f"<title>{escape(document['title'])}</title>\n<style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _figure(caption: str, svg: bytes) -> str:
    # As images, for the identifiers inside one SVG must not meet those of another.
    data = base64.b64encode(svg).decode()
    alt = escape(caption, quote=True)
    picture = f'<img alt="{alt}" src="data:image/svg+xml;base64,{data}">'
    return f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], text: Sequence[int] = (0,)) -> str:
    """A table whose columns `text` hold words, the others numbers."""
    kinds = [' class="text"' if k in text else "" for k in range(len(head))]
    titles = "".join(f"<th{kind}>{escape(title)}</th>" for kind, title in zip(kinds, head, strict=True))
    lines = "\n".join(
        f"<tr>{''.join(f'<td{kind}>{cell}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>" for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{titles}</tr></thead>\n<tbody>\n{lines}\n</tbody></table></div>'


class _Page:
    """Tables that look everything up in the document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def value(self, key: str, form: str) -> str:
        found = look_up(self.document, key)
        if found is None:
            return "—"
        return f'<span data-key="{escape(key)}" data-format="{form}">{escape(FORMATS[form](found))}</span>'

    def plus_minus(self, at: str, mean: str = "mean") -> str:
        """A share and its standard error, where there is one."""
        shown, error = self.value(f"{at}.{mean}", "percent"), self.value(f"{at}.stderr", "percent")
        return shown if error == "—" else f"{shown} ± {error}"

    def results(self) -> str:
        tasks, rows = self.document["tasks"], []
        for i, row in enumerate(self.document["rows"]):
            cells = [escape(row["title"])]
            for task in tasks:
                at = f"rows.{i}.{task}"
                cells += [self.value(f"{at}.paper", "percent"), self.plus_minus(at, "ours")]
                cells += [self.value(f"{at}.difference", "points"), self.value(f"{at}.runs", "whole")]
            rows.append(cells)
        head = [f"{task}: {what}" for task in tasks for what in ("paper", "ours", "difference", "runs")]
        return _table(["model", *head], rows)

    def groups(self) -> str:
        columns = [
            ("runs", "seeds", "whole"),
            ("batch", "batch", "whole"),
            ("steps", "steps", "whole"),
            ("programs", "examples", "programs"),
            ("time", "seconds", "duration"),
            ("on", "hardware", "plain"),
        ]
        rows = []
        for i in range(len(self.document["groups"])):
            at = f"groups.{i}"
            cells = [self.value(f"{at}.{key}", "plain") for key in ("title", "task", "description")]
            cells += [self.value(f"{at}.{key}", form) for _, key, form in columns]
            cells += [self.plus_minus(f"{at}.validation"), self.plus_minus(f"{at}.test")]
            cells += [self.value(f"{at}.{key}", form) for key, form in (("count", "whole"), ("paper", "percent"))]
            rows.append(cells)
        head = ["model", "task", "settings", *(title for title, _, _ in columns), "validation", "test", "of", "paper"]
        return _table(head, rows, text=(0, 1, 2, 8))

    def by_length(self, runs: range) -> str:
        lengths = sorted({int(n) for run in self.document["runs"] for n in run["evaluation"]["by_length"]})
        rows = []
        for i in runs:
            cells = [self.value(f"runs.{i}.name", "plain"), self.value(f"runs.{i}.task", "plain")]
            for n in lengths:
                at = f"runs.{i}.evaluation.by_length.{n}"
                value = self.value(f"{at}.accuracy", "percent")
                cells.append(value if value == "—" else f"{value} ± {self.value(f'{at}.stderr', 'percent')}")
            cells.append(self.value(f"runs.{i}.evaluation.overall.count", "whole"))
            rows.append(cells)
        return _table(["run", "task", *map(str, lengths), "programs"], rows)

    def details(self, runs: range) -> str:
        columns = [
            ("discrete, %", "pointer.discrete", "percent"),
            ("exit reached, %", "pointer.reached", "percent"),
            ("exit step", "pointer.exit_step", "whole"),
            ("trace", "pointer.trace_length", "whole"),
            ("path = trace, %", "pointer.path_exact", "percent"),
            ("fits, %", "trace.fits.accuracy", "percent"),
            ("exceeds, %", "trace.exceeds.accuracy", "percent"),
            ("top 5, %", "top.5", "percent"),
            ("ECE", "calibration.ece", "three"),
            ("to best", "ceiling.overall.distance", "points"),
        ]
        rows = [
            [
                self.value(f"runs.{i}.name", "plain"),
                *(self.value(f"runs.{i}.evaluation.{key}", form) for _, key, form in columns),
            ]
            for i in runs
        ]
        return _table(["run", *(title for title, _, _ in columns)], rows)

    def costs(self, runs: range) -> str:
        columns = [
            ("H", "hidden", "whole"),
            ("seed", "seed", "plain"),
            ("rate", "settings.rate", "plain"),
            ("batch", "settings.batch_size", "whole"),
            ("programs", "cost.examples", "programs"),
            ("time", "cost.seconds", "duration"),
            ("programs/s", "cost.examples_per_second", "whole"),
            ("energy", "cost.joules", "energy"),
            ("validation, %", "validation", "percent"),
        ]
        rows = [
            [
                self.value(f"runs.{i}.name", "plain"),
                *(self.value(f"runs.{i}.{key}", form) for _, key, form in columns),
                self.value(f"runs.{i}.hardware.{self.processor(i)}", "plain"),
            ]
            for i in runs
        ]
        return _table(["run", *(title for title, _, _ in columns), "on"], rows, text=(0, len(columns) + 1))

    def processor(self, i: int) -> str:
        """What a run was computed with."""
        return "gpu" if self.document["runs"][i]["hardware"].get("gpu") else "cpu"

    def settings(self, i: int) -> str:
        run = self.document["runs"][i]
        lines = [
            f"command   {' '.join(map(str, run['command'])) or '—'}",
            f"commit    {run['commit'] or '—'}",
            f"versions  {', '.join(f'{k} {v}' for k, v in run['versions'].items()) or '—'}",
            f"hardware  {', '.join(f'{k} {v}' for k, v in run['hardware'].items()) or '—'}",
            *_flat(run["settings"]),
        ]
        return f"<details><summary>{escape(run['name'])}</summary><pre>{escape(chr(10).join(lines))}</pre></details>"


def _flat(values: dict[str, Any], prefix: str = "") -> list[str]:
    lines = []
    for key, value in values.items():
        if isinstance(value, dict):
            lines += _flat(value, f"{prefix}{key}.")
        else:
            lines.append(f"{prefix}{key} = {value}")
    return lines
