"""The sample project as a git repository, with commits made by tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SAMPLE = Path(__file__).parent / "gate_project"
_WHO = ("-c", "user.name=sample", "-c", "user.email=sample@example.com", "-c", "commit.gpgsign=false")


class Project:
    """A copy of the sample project under git."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(SAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
        self.git("init", "-q", "-b", "main")
        self.commit("the model")

    def git(self, *words: str) -> str:
        """Run git in the project."""
        command = ["git", *_WHO, "-C", str(self.folder), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def edit(self, old: str, new: str, file: str = "blocks.py") -> None:
        """Change one place of a file."""
        path = self.folder / file
        text = path.read_text()
        assert text.count(old) == 1, f"{file} has {text.count(old)} places like {old!r}"
        path.write_text(text.replace(old, new))

    def commit_file(self, name: str) -> str:
        """Commit one more file; the commit's name."""
        (self.folder / name).write_text("")
        return self.commit(name)

    def commit(self, message: str) -> str:
        """Commit everything; the commit's name."""
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")
