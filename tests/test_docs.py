"""Every Python block of the README and of docs/ runs, and prints what it says it prints."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    names = {"__name__": "__main__"}
    for match in BLOCK.finditer(text):
        line = text[: match.start(1)].count("\n")
        if match[1].startswith(">>>"):
            run_session(match[1], names, page.name, line)
        else:
            exec(compile("\n" * line + match[1], page, "exec"), names)


def run_session(block, names, page, line):
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    session = doctest.DocTestParser().get_doctest(block, names, page, page, line)
    report = []
    runner.run(session, out=report.append, clear_globs=False)
    names.update(session.globs)
    assert runner.failures == 0, "".join(report)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"
