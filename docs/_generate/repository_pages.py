"""Pages made from files outside the folder `docs`: the README as the home page, the examples, the license."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

RENAMED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.md",
}
REPOSITORY_PATHS = {page: file for file, page in RENAMED.items()}

MARKDOWN_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
HTML_LINK = re.compile(r"""((?:src|srcset|href)=")([^"\s]+)(")""")
CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def pages(root: Path) -> dict[str, str]:
    """Markdown of every page that is made from a file of the repository."""
    found = {page: (root / file).read_text(encoding="utf-8") for file, page in RENAMED.items()}
    found["license.md"] = f"# License\n\n```text\n{found['license.md']}```\n"
    found["examples.md"] = examples_page(root / "examples")
    return found


def examples_page(folder: Path) -> str:
    """Every example with its code, then the files of the example plugin."""
    parts = ["# Examples", "", "Each example is one file and runs in seconds: `python examples/NAME.py`.", ""]
    for path in sorted(folder.glob("*.py")):
        parts += file_section(path, path.name)
    parts += ["The last files are a package: see [Plugins](plugins.md).", ""]
    for path in sorted((folder / "plugin").glob("*.*")):
        parts += file_section(path, f"plugin/{path.name}")
    return "\n".join(parts)


def file_section(path: Path, title: str) -> list[str]:
    """Lines of a section with the content of a file."""
    language = {".py": "python", ".toml": "toml"}[path.suffix]
    code = path.read_text("utf-8").rstrip()
    return [f"## {title} {{ #{path.stem} }}", "", f"```{language}", code, "```", ""]


def rewrite_links(markdown: str, *, page: str) -> str:
    """Markdown whose links lead to pages of the site; links in code stay as they are."""
    folder = posixpath.dirname(REPOSITORY_PATHS.get(page, f"docs/{page}"))

    def rewrite(match: re.Match[str]) -> str:
        return match[1] + site_link(match[2], folder=folder, page=page) + match[3]

    parts = CODE.split(markdown)
    for index in range(0, len(parts), 2):  # the odd parts are code
        parts[index] = HTML_LINK.sub(rewrite, MARKDOWN_LINK.sub(rewrite, parts[index]))
    return "".join(parts)


def site_link(link: str, *, folder: str, page: str) -> str:
    """A link of a repository file, as seen from a page of the site."""
    target, hash_sign, anchor = link.partition("#")
    if not target or "://" in target or target.startswith("mailto:"):
        return link
    path = posixpath.normpath(posixpath.join(folder, target))
    if path.startswith("examples/") and path.endswith((".py", ".toml")):
        path, hash_sign, anchor = "docs/examples.md", "#", Path(path).stem
    path = f"docs/{RENAMED[path]}" if path in RENAMED else path
    if path == "examples":
        path = "docs/examples.md"
    relative = posixpath.relpath(path, posixpath.join("docs", posixpath.dirname(page)))
    return relative + hash_sign + anchor
