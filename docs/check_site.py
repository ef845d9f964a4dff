"""Check the built site: every link within it leads somewhere, and to view a page needs no other host.

python docs/check_site.py out/docs
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}
"""Elements that a browser loads something for, and where they say what."""
STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?(?!data:|#)([^\"')\s;]+)")


class Page(HTMLParser):
    """What a page links to, what it loads, and which anchors it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See `HTMLParser`."""
        found = dict(attrs)
        self.anchors |= {name for key in ("id", "name") if (name := found.get(key))}
        if tag == "a" and (link := found.get("href")):
            self.links.append(link)
        elif (address := found.get(LOADS.get(tag, ""))) and found.get("rel") not in ("canonical", "license"):
            self.loads.append(address)


def problems(site: Path) -> Iterator[str]:
    """What is wrong with a site, a sentence each."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        here = path.relative_to(site)
        for address in page.loads:
            if urlsplit(address).scheme not in ("", "data") or urlsplit(address).netloc:
                yield f"{here} loads {address} from another host."
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{here} links to {link}, which is not there."
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{here} links to {link}, which has no such heading."
    for path in sorted(site.rglob("*.css")):
        for address in STYLE.findall(path.read_text(encoding="utf-8")):
            if urlsplit(address).scheme or urlsplit(address).netloc:
                yield f"{path.relative_to(site)} loads {address} from another host."
    if not pages:
        yield f"{site} has no pages; build them with `make docs`."


def main() -> None:
    """See the top of this file."""
    found = list(problems(Path(sys.argv[1]).resolve()))
    print(*found, sep="\n", end="\n" * bool(found))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
