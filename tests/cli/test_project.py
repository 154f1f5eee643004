"""`latentalign project` with links from a file."""

import gzip

import pytest

from support.commands import command

SOURCE = "Das <b>kleine Haus</b> brennt.\n\nEr <i>schläft</i>\n"
TARGET = "The small house is burning.\n\nHe sleeps\n"
LINKS = "0-0 1-1 2-2 3-3 3-4\n\n0-0 1-1\n"


@pytest.fixture
def files(tmp_path):
    for name, text in (("source", SOURCE), ("target", TARGET), ("links", LINKS)):
        (tmp_path / name).write_text(text)
    return tmp_path


def run(*arguments, stdin=b"", code=0):
    done = command("project", *arguments, stdin=stdin)
    assert done.returncode == code, done.stderr.decode()
    return (done.stderr if code else done.stdout).decode()


def test_lines_of_a_file_get_their_markup(files):
    options = ["--target", files / "target", "--links", files / "links"]
    expected = "The <b>small house</b> is burning.\n\nHe <i>sleeps</i>\n"
    assert run("--source", files / "source", *options) == expected
    assert run(*options, stdin=gzip.compress(SOURCE.encode())) == expected
    assert run(*options, "--kind", "xml", "-o", files / "out", stdin=SOURCE.encode()) == ""
    assert (files / "out").read_text() == expected
    assert run("--plain", stdin=SOURCE.encode()) == "Das kleine Haus brennt.\n\nEr schläft\n"


def test_bad_input_is_named_with_its_line(files):
    options = ["--source", files / "source", "--target", files / "target", "--links", files / "links"]
    assert "--format must be one of text, json" in run(*options, "--format", "pharaoh", code=2)
    assert "must be one of html, xml, placeholders, got 'rtf'" in run(*options, "--kind", "rtf", code=2)
    assert "pass --target" in run("--source", files / "source", code=2)
    assert "either a run or --links" in run(files, *options, code=2)
    (files / "source").write_text("a\n\n<b>c\n")
    message = run(*options, "--kind", "xml", code=2)
    assert f"{files / 'source'}, line 3: line 1, column 1 of the markup: not well-formed XML" in message
    (files / "links").write_text("0-0\n\n0-7\n")
    message = run(*options, code=2)
    assert f"{files / 'links'}, line 3: link (0, 7): the source has 1 words and the target 2" in message
    (files / "links").write_text("0-0\n")
    assert "1 lines of links for 3 sentence pairs" in run(*options, code=2)
    (files / "target").write_text("a\n")
    assert "has 3 lines but" in run(*options, code=2)
