"""Which edit a sentence of advice is, for tests. In: the sentence. Out: the `Edit` whose words it has."""

from __future__ import annotations

import re

from compilot.diagnose.edits import Edit

_DECLARED = re.compile(r"; a plan of 'compilot tune' handles declared dimensions by itself$")


def advised_edit(advice: str) -> Edit:
    """The edit with the most words of its own; a sentence that none of them says is a failure."""
    text = _DECLARED.sub("", advice)
    found = [edit for edit in Edit if re.fullmatch(_pattern(edit), text, re.DOTALL)]
    assert found, f"no edit says: {advice}"
    return max(found, key=lambda edit: len(re.sub(r"\{\w+\}", "", edit.value)))


def _pattern(edit: Edit) -> str:
    parts = re.split(r"(\{\w+\})", edit.value)
    return "".join(".*?" if part.startswith("{") else re.escape(part) for part in parts)
