"""Code blocks of a page, and its Python as a program; needs the standard library alone.

`python doc_blocks.py PAGE ...` executes the Python of pages where nothing but `cavity` is installed.
"""

import doctest
import re
import sys
from pathlib import Path
from typing import NamedTuple

FENCED = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    language: str
    text: str
    line: int
    """Line of the page where the text begins."""

    @property
    def session(self):
        """Whether it is Python with prompts and what the interpreter prints."""
        return self.language == "python" and self.text.startswith(">>>")


def blocks(page):
    """The fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [Block(m[1], m[2], text[: m.start(2)].count("\n") + 1) for m in FENCED.finditer(text)]


def run_python(page, block, names):
    """Execute a block of Python among the names; a session must print what the page says."""
    if not block.session:
        exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), names)
        return
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    session = doctest.DocTestParser().get_doctest(
        block.text, names, page.name, page.name, block.line - 1
    )
    report = []
    runner.run(session, out=report.append, clear_globs=False)
    names.update(session.globs)
    assert runner.failures == 0, "".join(report)


def program(page):
    """The Python of a page without prompts and output, each line where the page has it."""
    lines = [""] * page.read_text(encoding="utf-8").count("\n")
    for block in blocks(page):
        parts = []
        if block.session:
            examples = doctest.DocTestParser().get_examples(block.text)
            parts = [(example.lineno, example.source) for example in examples]
        elif block.language == "python":
            parts = [(0, block.text)]
        for start, code in parts:
            for number, line in enumerate(code.splitlines(), block.line - 1 + start):
                lines[number] = line
    return "\n".join(lines).rstrip() + "\n"


def main():
    """Execute the Python of every page that is named, in the current folder."""
    for name in sys.argv[1:]:
        page, names = Path(name), {"__name__": "__main__"}
        for block in blocks(page):
            if block.language == "python":
                run_python(page, block, names)


if __name__ == "__main__":
    main()
