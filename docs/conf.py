"""The documentation site: the Markdown of the repository, and a reference of the public API from its docstrings.

    make docs

The source folder is the root of the repository, so that pages may link to README.md, records/ and benchmarks/.
"""

import re
from pathlib import Path
from typing import Final

from sphinx.application import Sphinx

from ipagnn import __version__

project = "ipagnn"
author = "the ipagnn authors"
release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "docs/findings/*.md",
    "records/README.md",
    "benchmarks/README.md",
]
root_doc = "docs/index"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # links to headings work as on the hosting site

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_preserve_defaults = True  # `grammar=PAPER`, not all fields of it
napoleon_google_docstring = True
napoleon_custom_sections = ["Shapes", ("Attributes", "params_style")]
default_role = "code"  # docstrings are written with single backticks
nitpicky = False

html_theme = "furo"
html_title = f"ipagnn {__version__}"
html_show_copyright = False
html_copy_source = False


LINK: Final = re.compile(r"\]\((?!https?:|#)([^)#\s]+?)/?\)")


def link_folders(app: Sphinx, page: str, source: list[str]) -> None:
    """Let links to a folder lead to its README, or to the settings of a record: a site has no listings of folders."""
    here = Path(app.env.doc2path(page)).parent

    def target(found: re.Match[str]) -> str:
        for name in ("README.md", "config.toml"):
            if (here / found[1] / name).is_file():
                return f"]({found[1]}/{name})"
        return found[0]

    source[0] = LINK.sub(target, source[0])


def escape_stars(app: Sphinx, what: str, name: str, found: object, options: object, lines: list[str]) -> None:
    """Let `[row, *state]` of a docstring stand as it is: no docstring means emphasis by a star."""
    lines[:] = [re.sub(r"(?<![*\\`])\*(?=\w)", r"\\*", line) for line in lines]


def setup(app: Sphinx) -> None:
    """See Sphinx."""
    app.connect("autodoc-process-docstring", escape_stars, priority=900)  # after napoleon
    app.connect("source-read", link_folders)
