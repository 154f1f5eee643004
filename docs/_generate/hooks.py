"""MkDocs hooks: pages that are generated at build time, and links that work both on a code host and on the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import api_pages
import command_pages
import output_pages
import recipe_pages
import repository_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
SINGLE_PAGES = {"index.md", "tutorial.md"}
"""Pages without siblings: the list of pages beside them would have one entry."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace the folders of the navigation by the pages they contain."""
    folders = {"results/": results_nav(), "reference/api/": api_pages.navigation(ROOT / "src")}
    config.nav = [expand_folders(entry, folders) for entry in config.nav or []]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those of the folder `docs`."""
    pages = {
        **repository_pages.pages(ROOT),
        **api_pages.pages(ROOT / "src"),
        "reference/commands.md": command_pages.page(),
        "reference/recipes.md": recipe_pages.page(),
        "reference/figures.md": output_pages.figures_page(),
        "reference/json.md": output_pages.documents_page(),
    }
    for path, markdown in pages.items():
        files.append(File.generated(config, path, content=markdown))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files outside the folder `docs` at the pages made from them."""
    source = page.file.src_uri
    if source in SINGLE_PAGES:
        page.meta["hide"] = ["navigation"]
    if source.startswith("reference/"):
        return markdown
    return repository_pages.rewrite_links(markdown, page=source)


def expand_folders(entry: Any, folders: dict[str, Any]) -> Any:
    """A navigation entry in which each folder is replaced by its list of pages."""
    if isinstance(entry, dict):
        return {title: expand_folders(value, folders) for title, value in entry.items()}
    if isinstance(entry, list):
        return [expand_folders(value, folders) for value in entry]
    return folders.get(entry, entry)


def results_nav() -> list[Any]:
    """The overview of the results, then one page for each data set."""
    pages = sorted((ROOT / "docs" / "results").glob("*.md"))
    return [{"Overview": "results.md"}, *({page.stem: f"results/{page.name}"} for page in pages)]
