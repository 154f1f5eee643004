"""Run the commands of docs/first-hour.md and write their output and time into the page.

    python docs/_generate/first_hour.py

Run it on a quiet machine, with `latentalign` on the PATH. It takes about ten minutes.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "first-hour.md"
MOST_LINES = 24
"""Lines of output that the page shows; longer output is cut in the middle."""
WIDTH = 100


def blocks(text: str, kind: str) -> list[str]:
    """The contents of all code blocks of a kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, flags=re.M | re.S)


def commands(block: str) -> list[str]:
    """The commands of a console block."""
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


def run(command: str, folder: Path) -> tuple[str, float]:
    """Output and seconds of a command; raises if it fails."""
    start = time.perf_counter()
    pipes = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
    }  # in the order in which a reader sees them
    done = subprocess.run(command, shell=True, cwd=folder, text=True, check=False, **pipes)
    if done.returncode:
        raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout, time.perf_counter() - start


def shorten(output: str) -> str:
    """Output that fits on the page."""
    lines = [
        line.rstrip() if len(line.rstrip()) <= WIDTH else line[: WIDTH - 3] + "..."
        for line in output.splitlines()
    ]
    if len(lines) > MOST_LINES:
        half = MOST_LINES // 2
        lines = [*lines[:half], "...", *lines[-half:]]
    return "\n".join(lines)


def main() -> None:
    """Fill the page."""
    text = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.joinpath("my.toml").write_text(blocks(text, "toml")[0], encoding="utf-8")

        def fill(match: re.Match[str]) -> str:
            parts, seconds = [], 0.0
            for command in commands(match[1]):
                print(command, flush=True)
                output, elapsed = run(command, folder)
                seconds += elapsed
                parts.append(f"$ {command}\n{shorten(output)}".rstrip())
            return "```console\n" + "\n".join(parts) + f"\n```\n\nTime: {max(1, round(seconds))} s.\n"

        pattern = r"^```console\n(.*?)^```\n(?:\nTime: \d+ s\.\n)?"
        PAGE.write_text(re.sub(pattern, fill, text, flags=re.M | re.S), encoding="utf-8")


if __name__ == "__main__":
    main()
