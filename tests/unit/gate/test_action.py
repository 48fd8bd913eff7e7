"""The action's script: which commit a workflow compares with. Git is real and its server is a folder; Python is not."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest
from gate_history import Project

from compilot.gate.outputs.markdown import MARK

SCRIPT = Path(__file__).parents[3] / "action" / "check.sh"
PYTHON = '#!/bin/sh\nprintf "%s\\n" "$@" >"$ASKED"\n'


class Checkout:
    """What a runner has: one commit of a repository, and a server that has the others."""

    def __init__(self, server: Project, folder: Path, ref: str = "main") -> None:
        self.server, self.folder = server, folder
        python = folder.parent / "python"
        python.write_text(PYTHON)
        python.chmod(0o755)
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "COMPILOT_"))},
            "COMPILOT_PYTHON": str(python),
            "COMPILOT_TARGET": "model.py:net",
            "ASKED": str(folder.parent / "asked"),
            "RUNNER_TEMP": str(folder.parent),
        }
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
        self.git("remote", "add", "origin", f"file://{server.folder}")
        self.git("fetch", "-q", "--no-tags", "--depth=1", "origin", ref)
        self.git("checkout", "-q", "--detach", "FETCH_HEAD")

    def git(self, *words: str) -> str:
        command = ["git", "-C", str(self.folder), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def run(self, **variables: str) -> subprocess.CompletedProcess[str]:
        """The script with these inputs."""
        env, script = self._env | variables, ["bash", str(SCRIPT)]
        return subprocess.run(script, cwd=self.folder, env=env, capture_output=True, text=True, check=False)

    def base(self, **variables: str) -> str:
        """The commit that it compares with; it must be here."""
        done = self.run(**variables)
        assert done.returncode == 0, done.stderr
        asked = Path(self._env["ASKED"]).read_text().splitlines()
        assert asked[:4] == ["-m", "compilot", "check", "model.py:net"]
        return self.git("rev-parse", f"{asked[asked.index('--base-ref') + 1]}^{{commit}}")


@pytest.fixture
def server(tmp_path: Path) -> Project:
    """Three commits on main, of which the first has a tag, and a branch beside it."""
    made = Project(tmp_path / "server")
    made.git("tag", "-a", "v1", "-m", "the first")
    made.edit("x)) + x", "x)).add(x)")
    made.commit("the same in other words")
    made.git("branch", "release")
    made.edit("x)).add(x)", "x)) + 1 * x")
    made.commit("again")
    return made


@pytest.mark.parametrize("ref", ["v1", "release", "origin/release"])
def test_a_branch_or_a_tag_that_a_shallow_checkout_does_not_have_is_fetched(
    server: Project, tmp_path: Path, ref: str
) -> None:
    checkout = Checkout(server, tmp_path / "work")
    wanted = server.git("rev-parse", f"{ref.removeprefix('origin/')}^{{commit}}")
    assert checkout.base(COMPILOT_BASE_REF=ref) == wanted
    assert checkout.git("rev-list", "--count", "HEAD") == "1"  # and no more of the history than that


def test_a_whole_checkout_stays_whole(server: Project, tmp_path: Path) -> None:
    checkout = Checkout(server, tmp_path / "work")
    checkout.git("fetch", "-q", "--unshallow", "origin", "main")
    assert checkout.base(COMPILOT_BASE_REF="release") == server.git("rev-parse", "release")
    assert checkout.git("rev-list", "--count", "HEAD") == "3"
    assert checkout.git("rev-parse", "--is-shallow-repository") == "false"


def test_the_commit_before_a_push_is_fetched(server: Project, tmp_path: Path) -> None:
    before = server.git("rev-parse", "HEAD~1")
    checkout = Checkout(server, tmp_path / "work")
    assert checkout.base(COMPILOT_EVENT_BASE=before, GITHUB_EVENT_NAME="push") == before
    tagged = server.git("rev-parse", "v1^{commit}")
    assert checkout.base(COMPILOT_EVENT_BASE=before, COMPILOT_BASE_REF="v1") == tagged  # what was asked for counts


def test_a_pull_request_is_compared_with_what_it_is_merged_into(server: Project, tmp_path: Path) -> None:
    old, into = server.git("rev-parse", "v1^{commit}"), server.git("rev-parse", "main")
    server.git("checkout", "-q", "-b", "change", "v1")
    (server.folder / "other.py").write_text("")
    server.commit("a change")
    server.git("checkout", "-q", "--detach", "main")
    server.git("merge", "-q", "--no-ff", "-m", "merge", "change")
    merge = server.git("rev-parse", "HEAD")
    server.git("branch", "merged", merge)
    checkout = Checkout(server, tmp_path / "work", "merged")
    event = {"COMPILOT_EVENT_BASE": old, "GITHUB_EVENT_NAME": "pull_request"}
    assert checkout.base(**event, GITHUB_SHA=merge) == into
    assert checkout.base(**event, GITHUB_SHA=old) == old  # something else is checked out: its parents say nothing


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "set base-ref or baseline"),
        ({"COMPILOT_EVENT_BASE": "0" * 40}, "this push made the branch"),
        ({"COMPILOT_BASE_REF": "--upload-pack=touch x"}, "is no git ref"),
        ({"COMPILOT_BASE_REF": "gone"}, "git cannot fetch 'gone'"),
    ],
)
def test_nothing_to_compare_with_is_one_sentence(
    server: Project, tmp_path: Path, variables: dict[str, str], said: str
) -> None:
    done = Checkout(server, tmp_path / "work").run(**variables)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("::error title=compilot::")
    assert said in last
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("known", ["", "4711"])
def test_the_recipe_edits_its_own_comment(tmp_path: Path, known: str) -> None:
    page = (SCRIPT.parents[1] / "docs" / "ci.md").read_text()
    recipe = page.partition("        run: |\n")[2].partition("```")[0]
    assert f'startswith("{MARK}")' in recipe
    gh = tmp_path / "gh"
    gh.write_text('#!/bin/sh\necho "$*" >>"$ASKED"\ncase "$*" in *--jq*) echo "$KNOWN" ;; esac\n')
    gh.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ASKED": str(tmp_path / "asked"), "KNOWN": known}
    env |= {"GITHUB_REPOSITORY": "me/mine", "NUMBER": "7", "COMMENT": "comment.md"}
    subprocess.run(["bash", "-e", "-c", recipe], check=True, env=env)
    asked, written = (tmp_path / "asked").read_text().splitlines()
    assert "repos/me/mine/issues/7/comments" in asked
    edited = "api --silent --method PATCH repos/me/mine/issues/comments/4711 -F body=@comment.md"
    assert written == (edited if known else "pr comment 7 --body-file comment.md")


@pytest.mark.parametrize("name", ["runner", "DOMAIN\\some:body", None])
def test_the_header_is_where_torch_has_it(name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    def getuser() -> str:
        if name is None:
            raise KeyError("getpwuid(): uid not found: 4711")
        return name

    monkeypatch.setattr("getpass.getuser", getuser)
    spec = importlib.util.spec_from_file_location("fingerprint", SCRIPT.with_name("fingerprint.py"))
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert f"torchinductor_{script.user()}" == Path(default_cache_dir()).name


def test_two_checks_of_a_job_have_folders_of_their_own(server: Project, tmp_path: Path) -> None:
    checkout = Checkout(server, tmp_path / "work")
    for _ in range(2):
        checkout.base(COMPILOT_BASE_REF="v1")
    assert len(list(tmp_path.glob("compilot-check-*"))) == 2
