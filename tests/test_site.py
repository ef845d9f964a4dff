"""What `make docs` holds the site to, on a site made for it."""

from pathlib import Path
from types import ModuleType

import pytest

from .modules import load

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def check_site() -> ModuleType:
    return load(ROOT / "docs" / "check_site.py")


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ('<a href="b.html">', None),
        ('<a href="b.html#there">', None),
        ('<a href="#here"><h2 id="here">', None),
        ('<a href="https://example.org/"><img src="data:,">', None),
        ('<link rel="canonical" href="https://example.org/">', None),
        ('<a href="c.html">', "a.html links to c.html, which is not there."),
        ('<a href="b.html#gone">', "a.html links to b.html#gone, which has no such heading."),
        ('<img src="gone.png">', "a.html links to gone.png, which is not there."),
        ('<script src="https://example.org/x.js">', "a.html loads https://example.org/x.js from another host."),
        ('<script src="//example.org/x.js">', "a.html loads //example.org/x.js from another host."),
        ('<link rel="stylesheet" href="http://x/y.css">', "a.html loads http://x/y.css from another host."),
    ],
)
def test_links_and_hosts(check_site: ModuleType, tmp_path: Path, html: str, problem: str | None) -> None:
    (tmp_path / "a.html").write_text(html)
    (tmp_path / "b.html").write_text('<h1 id="there">')
    assert list(check_site.problems(tmp_path)) == ([] if problem is None else [problem])


def test_fonts_of_another_host_and_an_empty_site(check_site: ModuleType, tmp_path: Path) -> None:
    assert len(list(check_site.problems(tmp_path))) == 1
    (tmp_path / "a.html").write_text("")
    (tmp_path / "a.css").write_text("a { src: url(own.woff) } b { src: url('data:,') }")
    assert not list(check_site.problems(tmp_path))
    (tmp_path / "a.css").write_text("@import 'https://fonts.example.org/a.css'; b { src: url(//x/y.woff) }")
    assert len(list(check_site.problems(tmp_path))) == 2


def test_make_docs_checks_the_site() -> None:
    assert "docs/check_site.py out/docs" in (ROOT / "Makefile").read_text().partition("\ndocs:")[2].partition("\n\n")[0]
