"""What users read is in usual words, and prose in the pages is wrapped.

Covered: README, docs, CONTRIBUTING, SECURITY, CHANGELOG, examples (comments too), and of src/compilot every message,
the templates, and the docstrings of the modules that users read (PUBLIC). Inline code in pages is left out: a name such
as `StalePlan` is a name. Not covered: docstrings of other modules, comments and names of src/compilot, bench/.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 120  # characters of a line of prose

WORDS = {  # what we do not write: what we write instead
    r"(un)?mend(s|ed|ing|able)?": "fix",
    r"vouch(es|ed|ing)?": "trust, sign",
    r"tid(y|ied|ies|ying)": "clean up, remove",
    r"stir(s|red|ring)?": "shuffle, change",
    r"tells": "reports, shows, says",
    r"told (with|as|in|by)": "reported with, named",
    r"hears? why": "says why",
    r"unasked": "by itself",
    r"(is|are|be|becomes?|makes? \w+( \w+)?|a|the|two) stale( plans?| bundles?)?": "out of date",
    r"heed(s|ed|ing)?": "follow, respect",
    r"lest": "so that ... not",
    r"thus|hence|thereby|whilst|henceforth": "so, therefore, while, from now on",
    r"amongst": "among",
    r"(need|ought|sha)n't": "need not, must not",
}
UNWANTED = {re.compile(rf"(?<![\w-])(?:{old})(?![\w-])", re.IGNORECASE): new for old, new in WORDS.items()}

PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "ARCHITECTURE.md")]
PAGES += sorted((ROOT / "docs").glob("*.md"))
EXAMPLES = sorted((ROOT / "examples").glob("*.*"))
SOURCES = sorted((ROOT / "src" / "compilot").rglob("*.py"))
PUBLIC = (
    *("__init__.py", "api/", "cache.py", "cli/", "errors.py", "keys.py", "progress.py", "records.py", "store.py"),
    *("artifacts/store/answers.py", "report/results.py", "testing/"),
    *("diagnose/report_records.py", "engines/protocol.py", "engines/space.py", "engines/traits.py"),
    *("runtime/apply.py", "runtime/fast.py", "runtime/notices.py", "runtime/start.py", "workload/workload.py"),
)
TEMPLATES = sorted((ROOT / "src" / "compilot").rglob("*.j2"))


def unwanted(text: str) -> list[str]:
    """Words in a text that we do not write, each with what to write instead."""
    return [f"{found[0]!r}: write {new!r}" for pattern, new in UNWANTED.items() for found in pattern.finditer(text)]


def prose(page: str) -> str:
    """A page without its inline code; blocks of code stay, because their comments are read as well."""
    return re.sub(r"(?<!`)`[^`\n]+`(?!`)", "``", page)


def strings(path: Path, *, docstrings: bool = True) -> Iterator[tuple[int, str]]:
    """Every piece of text in a module: messages and the fixed parts of formatted ones, docstrings; with their lines."""
    tree = ast.parse(path.read_text())
    left_out = set() if docstrings else {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            yield node.lineno, node.value


def is_public(path: Path) -> bool:
    """Whether users read this module's docstrings: in the reference, in help texts, or to plug something in."""
    return name_of(path).removeprefix("src/compilot/").startswith(PUBLIC)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES, *TEMPLATES], ids=name_of)
def test_pages_examples_and_templates_are_in_usual_words(path: Path) -> None:
    text = path.read_text()
    if path.suffix == ".ipynb":
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    lines = prose(text).splitlines()
    assert [(number, found) for number, line in enumerate(lines, 1) for found in unwanted(line)] == []


def test_messages_and_docstrings_are_in_usual_words() -> None:
    found = [
        f"{name_of(path)}:{line}: {word}"
        for path in SOURCES
        for line, text in strings(path, docstrings=is_public(path))
        for word in unwanted(prose(text))
    ]
    assert found == []


def test_the_parts_of_a_formatted_message_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text('"""Says what to mend."""\nraise ValueError(f"{a} is vouched for; " "mend it")\n')
    assert sum(len(unwanted(text)) for _, text in strings(tmp_path / "one.py")) == 3
    assert sum(len(unwanted(text)) for _, text in strings(tmp_path / "one.py", docstrings=False)) == 2


def test_the_public_modules_are_there() -> None:
    names = [name_of(path).removeprefix("src/compilot/") for path in SOURCES]
    assert [start for start in PUBLIC if not any(name.startswith(start) for name in names)] == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("To mend it: call eval().", 1),
        ("How it was mended, and who vouches for it", 2),
        ("`fast.stats()` tells how many", 1),
        ("the plan is stale", 1),
        ("a stale plan", 1),
        ("StalePlan, allow_stale=True, recommended, amendment", 0),
        ("they cannot be told apart, nor told from noise", 0),
        ("the old value is told with the new one", 1),
        ("fix, reports, trusted, out of date", 0),
    ],
)
def test_the_list_finds_words_and_not_parts_of_them(text: str, number: int) -> None:
    assert len(unwanted(text)) == number


def long_lines(text: str) -> list[int]:
    """Numbers of prose lines that are too long; code, tables and lines of one link or word cannot be wrapped."""
    found, code = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        if len(line) > LONGEST and not code and not line.lstrip().startswith(("|", "![")) and " " in line.strip():
            found.append(number)
    return found


WRAPPED = [path for path in PAGES if path.name != "CHANGELOG.md"]


@pytest.mark.parametrize("path", WRAPPED, ids=name_of)
def test_prose_is_wrapped(path: Path) -> None:
    assert long_lines(path.read_text()) == []


def test_a_long_line_would_be_found() -> None:
    line = "word " * 30
    assert long_lines(f"{line}\n```\n{line}\n```\n| {line} |\n{line}\n") == [1, 6]
