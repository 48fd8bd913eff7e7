"""A plan's folder is used only if nobody else can change it and every file is the one that was measured."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from compilot.artifacts import planfolder, trust
from compilot.artifacts.cachelist import list_name, write_list
from compilot.artifacts.planfile import save_plan
from compilot.artifacts.planfolder import Claim, Needs, checked, needs_of, open_plan, refuse_foreign, why_not_trusted
from compilot.errors import ArtifactError, PlanError, UntrustedPlan
from compilot.files.digests import file_record
from compilot.records import Candidate, Plan, Region, Settings

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
FILES = {"model.bin": bytes(range(256)) * 3, "structure.json": b"{}"}
CACHED = {
    "ab/kernel.so": b"\x7fELF code",
    "fxgraph/f1/key/entry": b"\x80\x05pickle",
    "ab/wrapper.py": b"pass\n",
    "empty": b"",
}
WHOLE = Needs(nothing_more=True)
COMPILES = Needs(cache="inductor")


def make_files(folder: Path) -> Claim:
    """A candidate's folder as an engine that comes as files leaves it."""
    folder.mkdir(parents=True, mode=0o755)
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    return Claim(folder, tuple(file_record(folder / name, name) for name in FILES), WHOLE)


def make_cache(folder: Path) -> Claim:
    """A candidate's folder as torch.compile leaves it."""
    for name, data in CACHED.items():
        (folder / "inductor" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "inductor" / name).write_bytes(data)
    (folder / "inductor" / "locks").mkdir()
    (folder / "inductor" / "locks" / "kernel.lock").touch()
    (folder / "inductor" / "cache").mkdir()
    (folder / "inductor" / "cache" / "times").write_text("{}")
    record = write_list(folder, "inductor/")
    assert record is not None
    return Claim(folder, (record,), COMPILES)


@pytest.fixture
def files(tmp_path: Path) -> Claim:
    return make_files(tmp_path / "run" / "work" / "id")


@pytest.fixture
def cache(tmp_path: Path) -> Claim:
    return make_cache(tmp_path / "run" / "work" / "id")


@pytest.fixture
def plan_file(tmp_path: Path, plan: Plan) -> Path:
    path = tmp_path / "run" / "plan.json"
    save_plan(plan, path)
    return path


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


# ---- whose is it? ----------------------------------------------------------------------------------------------------


def test_a_folder_of_ones_own_is_used(files: Claim, plan_file: Path, plan: Plan) -> None:
    assert checked(files) == files.folder
    assert open_plan(plan_file) == plan
    assert why_not_trusted(plan_file) == ""


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_a_plan_that_others_may_write_to_is_refused_before_it_is_parsed(plan_file: Path, mode: int) -> None:
    plan_file.write_text("no plan at all")
    plan_file.chmod(mode)
    with pytest.raises(UntrustedPlan, match=rf"others may write to it \(mode {mode:04o}\).*chmod -R go-w"):
        open_plan(plan_file)
    assert "others may write to it" in why_not_trusted(plan_file)
    plan_file.chmod(0o644)
    with pytest.raises(PlanError, match="malformed JSON"):
        open_plan(plan_file)


def test_a_plan_in_a_folder_that_everybody_may_write_to_is_refused(plan_file: Path, plan: Plan) -> None:
    plan_file.parent.chmod(0o777)
    with pytest.raises(UntrustedPlan, match=r"everybody may write to .*/run"):
        open_plan(plan_file)
    plan_file.parent.chmod(0o1777)  # sticky, as /tmp
    assert open_plan(plan_file) == plan


@as_root
def test_a_plan_of_somebody_else_is_refused(plan_file: Path) -> None:
    os.chown(plan_file, NOBODY, NOBODY)
    with pytest.raises(UntrustedPlan, match=f"it belongs to user {NOBODY}.*chown -R"):
        open_plan(plan_file)
    os.chown(plan_file, 0, 0)
    os.chown(plan_file.parent, NOBODY, NOBODY)
    with pytest.raises(UntrustedPlan, match=f"above it, belongs to user {NOBODY}"):
        open_plan(plan_file)


def test_links_to_a_plan_are_followed_once_and_their_goal_is_asked_about(
    plan_file: Path, plan: Plan, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(plan_file)
    assert open_plan(tmp_path / "link") == plan
    plan_file.chmod(0o666)
    with pytest.raises(UntrustedPlan, match="others may write to it"):
        open_plan(tmp_path / "link")


@pytest.mark.parametrize("how", [os.symlink, shutil.copy])
def test_a_plan_that_is_exchanged_after_it_was_opened_is_refused(
    plan_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: Callable[[Path, Path], object]
) -> None:
    good = shutil.copy(plan_file, tmp_path / "good.json")
    plan_file.chmod(0o666)
    real = planfolder.who_can_change

    def asked(path: Path, seen: dict[str, os.stat_result]) -> str:
        plan_file.rename(tmp_path / "opened")
        how(good, plan_file)
        return real(path, seen)

    monkeypatch.setattr(planfolder, "who_can_change", asked)
    with pytest.raises(UntrustedPlan, match=r"it is a link|it was replaced"):
        open_plan(plan_file)


def test_a_pipe_in_place_of_a_plan_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "plan.json")
    with pytest.raises(PlanError, match="not a plain file"):
        open_plan(tmp_path / "plan.json")


LOOSE: dict[str, Callable[[Path], object]] = {
    "a file": lambda folder: (folder / "model.bin").chmod(0o666),
    "a file, for the group": lambda folder: (folder / "model.bin").chmod(0o664),
    "the folder": lambda folder: folder.chmod(0o777),
    "the folder above": lambda folder: folder.parent.chmod(0o777),
    "the plan's folder": lambda folder: folder.parent.parent.chmod(0o777),
}


@pytest.mark.parametrize("what", LOOSE)
def test_files_that_others_may_change_are_not_used(files: Claim, what: str) -> None:
    LOOSE[what](files.folder)
    with pytest.raises(UntrustedPlan, match=r"may write to.*copy it to a place of your own"):
        checked(files)


@as_root
@pytest.mark.parametrize("name", ["", "model.bin", "..", "../.."])
def test_files_of_somebody_else_are_not_used(files: Claim, name: str) -> None:
    os.chown(files.folder / name, NOBODY, NOBODY)
    with pytest.raises(UntrustedPlan, match=f"belongs to user {NOBODY}"):
        checked(files)


@pytest.mark.parametrize("name", ["model.bin", "more"])
def test_a_link_among_the_files_is_not_followed(files: Claim, tmp_path: Path, name: str) -> None:
    """Whoever can write where it leads could change what is loaded."""
    shutil.copy(files.folder / "model.bin", tmp_path / "elsewhere")
    (files.folder / name).unlink(missing_ok=True)
    (files.folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UntrustedPlan, match=rf"{name} is a link"):
        checked(files)


def test_a_pipe_among_the_files_is_not_opened(files: Claim) -> None:
    (files.folder / "model.bin").unlink()
    os.mkfifo(files.folder / "model.bin")
    with pytest.raises(UntrustedPlan, match=r"model\.bin is not a plain file"):
        checked(files)


def test_a_link_to_the_folder_is_followed_once(files: Claim, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(files.folder)
    assert checked(files._replace(folder=tmp_path / "link")) == files.folder
    files.folder.chmod(0o777)
    with pytest.raises(UntrustedPlan, match="others may write to it"):
        checked(files._replace(folder=tmp_path / "link"))


def test_a_run_is_foreign_if_one_part_of_it_is(files: Claim, tmp_path: Path) -> None:
    run, journal = tmp_path / "run", tmp_path / "run" / "journal.jsonl"
    journal.touch()
    refuse_foreign(run, (journal, files.folder, run / "is not there"))
    (files.folder / "model.bin").chmod(0o666)
    with pytest.raises(UntrustedPlan, match=rf"the run in {run} is not used: .*model\.bin"):
        refuse_foreign(run, (journal, files.folder))


# ---- is it what was measured? ----------------------------------------------------------------------------------------


@settings(max_examples=60, derandomize=True, deadline=None)
@given(name=st.sampled_from(sorted(FILES)), at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_any_flipped_bit_is_found_and_its_file_named(name: str, at: int, bit: int) -> None:
    with tempfile.TemporaryDirectory() as home:
        claim = make_files(Path(home) / "id")
        flip(claim.folder / name, at % len(FILES[name]), bit)
        with pytest.raises(ArtifactError, match=rf"{name} is not the file that was measured.*compilot tune"):
            checked(claim)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(name=st.sampled_from([n for n in sorted(CACHED) if CACHED[n]]), at=st.integers(0, 99), bit=st.integers(0, 7))
def test_any_flipped_bit_in_a_compile_cache_is_found(name: str, at: int, bit: int) -> None:
    with tempfile.TemporaryDirectory() as home:
        claim = make_cache(Path(home) / "id")
        flip(claim.folder / "inductor" / name, at % len(CACHED[name]), bit)
        with pytest.raises(ArtifactError, match=rf"{name} is not the file that was measured"):
            checked(claim)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_damaged_list_is_refused_or_says_the_same(at: int, bit: int) -> None:
    """The list has no digest of its own: either it gives the plan's digest, or it is refused."""
    with tempfile.TemporaryDirectory() as home:
        claim = make_cache(Path(home) / "id")
        path = claim.folder / list_name("inductor/")
        flip(path, at % path.stat().st_size, bit)
        try:
            checked(claim)
        except ArtifactError as refused:
            assert path.name in str(refused)  # noqa: PT017
        else:
            flip(claim.folder / "inductor" / "ab/kernel.so", 1)  # and with such a list damage is found as before
            with pytest.raises(ArtifactError, match=r"kernel\.so"):
                checked(claim)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda path: path.unlink(), "model.bin is missing"),
        (lambda path: path.write_bytes(b""), "model.bin has 0 bytes instead of 768"),
        (lambda path: path.write_bytes(path.read_bytes() + b"\0"), "model.bin has 769 bytes instead of 768"),
        (lambda path: (path.unlink(), path.mkdir()), "model.bin is missing"),
        (lambda path: path.with_name("optimised.onnx").touch(), "optimised.onnx is not among the files"),
    ],
)
def test_missing_cut_and_added_files_are_refused_by_name(
    files: Claim, change: Callable[[Path], object], why: str
) -> None:
    change(files.folder / "model.bin")
    with pytest.raises(ArtifactError, match=why):
        checked(files)


def test_our_own_notes_and_folders_of_the_compiler_do_not_count(files: Claim) -> None:
    (files.folder / "key.json").touch()
    (files.folder / "inductor.files.json").touch()
    (files.folder / "inductor").mkdir()
    (files.folder / "inductor" / "left").touch()
    assert checked(files) == files.folder


def test_a_file_more_is_refused_in_the_folder_of_a_region_whose_engine_adds_none(files: Claim) -> None:
    for folder in ("regions/0/3", "regions/1/0"):
        (files.folder / folder).mkdir(parents=True)
    claim = files._replace(needs=Needs(closed=("regions/0/",)))
    (files.folder / "regions/1/0/added").touch()
    assert checked(claim) == files.folder
    (files.folder / "regions/0/3/model.blob").touch()
    with pytest.raises(ArtifactError, match=r"regions/0/3/model\.blob is not among the files that were measured"):
        checked(claim)


def test_the_folders_of_regions_by_engines_of_files_are_closed() -> None:
    made = [
        Region(selector=str(n), settings=Settings(engine=name)) for n, name in enumerate(("onnxruntime", "inductor"))
    ]
    candidate = Candidate(settings=Settings(), label="", rationale="", regions=tuple(made))
    assert needs_of(candidate) == Needs(cache="inductor", closed=("regions/0/",))


def test_an_engine_that_adds_files_of_its_own_may_do_so(files: Claim) -> None:
    (files.folder / "added").touch()
    assert checked(files._replace(needs=Needs())) == files.folder


def test_a_file_that_is_exchanged_while_it_is_checked_is_refused(files: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    real = planfolder.who_can_change

    def asked(*arguments: object, **named: object) -> str:
        told = real(*arguments, **named)  # type: ignore[arg-type]
        shutil.copy(files.folder / "model.bin", files.folder / "same")
        os.replace(files.folder / "same", files.folder / "model.bin")
        return told

    monkeypatch.setattr(planfolder, "who_can_change", asked)
    with pytest.raises(ArtifactError, match=r"model\.bin was replaced"):
        checked(files)


def test_without_a_folder_the_engine_builds(files: Claim, cache: Claim) -> None:
    assert checked(files._replace(folder=files.folder / "gone")) is None
    shutil.rmtree(cache.folder / "inductor")  # torch compiles anew
    assert checked(cache) == cache.folder


# ---- compile caches grow ---------------------------------------------------------------------------------------------


def test_a_compile_cache_may_grow(cache: Claim) -> None:
    inside = cache.folder / "inductor"
    (inside / "zz").mkdir()
    (inside / "zz" / "more.so").write_bytes(b"added by torch")
    (inside / "locks" / "kernel.lock").write_text("held")
    (inside / "cache" / "times").write_text('{"other": "times"}')
    assert checked(cache) == cache.folder


def test_what_torch_adds_under_a_loose_umask_is_still_the_users_alone(cache: Claim) -> None:
    """Many systems have a umask of 0002; the cache folder lets nobody else in."""
    assert (cache.folder / "inductor").stat().st_mode & 0o777 == 0o700
    (cache.folder / "inductor" / "zz").mkdir()
    (cache.folder / "inductor" / "zz").chmod(0o775)
    added = cache.folder / "inductor" / "zz" / "more.so"
    added.touch()
    added.chmod(0o666)
    assert checked(cache) == cache.folder
    os.link(added, cache.folder.parent / "outside")  # the same file where others get at it
    with pytest.raises(UntrustedPlan, match=r"more\.so: others may write to it"):
        checked(cache)
    (cache.folder.parent / "outside").unlink()
    (cache.folder / "inductor").chmod(0o755)
    with pytest.raises(UntrustedPlan, match=r"zz: others may write to it"):
        checked(cache)


@as_root
@pytest.mark.parametrize("name", ["ab/kernel.so", "locks/kernel.lock"])
def test_a_foreign_file_in_a_cache_is_refused_listed_or_not(cache: Claim, name: str) -> None:
    os.chown(cache.folder / "inductor" / name, NOBODY, NOBODY)
    with pytest.raises(UntrustedPlan, match=f"belongs to user {NOBODY}"):
        checked(cache)


def test_a_link_in_a_cache_is_refused(cache: Claim, tmp_path: Path) -> None:
    (cache.folder / "inductor" / "zz").symlink_to(tmp_path)
    with pytest.raises(UntrustedPlan, match="zz is a link"):
        checked(cache)


def test_files_that_another_process_writes_meanwhile_do_not_disturb(
    cache: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten processes may start from one plan at once; torch writes under a passing name and renames."""
    passing = cache.folder / "inductor" / "ab" / ".1.2.tmp"
    passing.touch()
    real = trust.look

    def look(path: Path) -> dict[str, os.stat_result]:
        seen = real(path)
        passing.unlink(missing_ok=True)
        (cache.folder / "inductor" / "cache" / "next").write_text("{}")
        os.replace(cache.folder / "inductor" / "cache" / "next", cache.folder / "inductor" / "cache" / "times")
        return seen

    monkeypatch.setattr(planfolder, "look", look)
    assert checked(cache) == cache.folder


@pytest.mark.parametrize("change", ["gone", "another's", "none at all", "huge"])
def test_a_cache_without_its_list_is_refused(cache: Claim, tmp_path: Path, change: str) -> None:
    path = cache.folder / list_name("inductor/")
    if change == "gone":
        path.unlink()
    elif change == "another's":
        other = make_cache(tmp_path / "other")
        (other.folder / "inductor" / "ab" / "kernel.so").write_bytes(b"other code")
        write_list(other.folder, "inductor/")
        shutil.copy(other.folder / path.name, path)
    elif change == "huge":
        os.truncate(path, planfolder.LARGEST_LIST + 1)
    else:
        path.write_text("[]")
    with pytest.raises(ArtifactError, match=path.name):
        checked(cache)


def test_an_engine_that_does_not_open_the_cache_does_not_pay_for_it(cache: Claim) -> None:
    flip(cache.folder / "inductor" / "ab/kernel.so", 0)
    assert checked(cache._replace(needs=WHOLE)) == cache.folder
