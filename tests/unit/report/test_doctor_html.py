"""The doctor's page: complete, safe against what a model's source may contain, and readable by a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from browsing import open_page
from doctor_fakes import NASTY, full_report
from markupsafe import escape

from compilot.diagnose.report_records import REPORT_SCHEMA, DoctorReport, ModuleNode, Roofline, Span
from compilot.records import Finding
from compilot.report import moduletree
from compilot.report.doctor_html import doctor_page, stage_rows, write_page
from compilot.report.doctor_words import kind_text
from compilot.report.figures import rate_text, share_text, time_text
from compilot.report.icicle import icicle, stage_class
from compilot.report.moduletree import module_tree
from compilot.report.rooflinesvg import roofline_svg

SECTIONS = ("findings", "breaks", "modules", "compile-time", "bound", "roofline", "input-pipeline", "notes")
LIMIT_BYTES = 2 * 2**20


def test_every_part_of_the_report_is_on_the_page() -> None:
    page = doctor_page(full_report())
    for section in SECTIONS:
        assert f'<section id="{section}">' in page
    report = full_report()
    for finding in report.findings:
        assert str(escape(finding.explanation[1:])) in page
        assert f">{kind_text(finding.kind)}</span>" in page
    places = [page.index(f">{kind_text(finding.kind)}</span>") for finding in report.findings]
    assert places == sorted(places)
    assert "about 9.60 s" in page
    assert "encoder.layer.0.attention.self.query" in page


def test_a_report_with_nothing_in_it_has_a_page_too() -> None:
    page = doctor_page(DoctorReport(schema=REPORT_SCHEMA, compilot="0", created="", label="Net"))
    assert "Nothing to fix was found" in page
    assert 'id="roofline"' not in page


def test_what_was_not_looked_at_comes_before_the_findings() -> None:
    empty = DoctorReport(schema=REPORT_SCHEMA, compilot="0", created="", label="Net", unseen=("example 2 <b>failed",))
    page = doctor_page(empty)
    assert page.index("Example 2 &lt;b&gt;failed.") < page.index('id="findings"')
    assert "Nothing to fix was found in what was looked at." in page
    assert 'id="unseen"' not in doctor_page(full_report())


def test_tlparse_pages_are_linked_from_wherever_the_page_is(tmp_path: Path) -> None:
    pages = tmp_path / "a report" / "tlparse"
    for folder, link in (("a report", "tlparse/index.html"), ("pages", "../a%20report/tlparse/index.html")):
        page = tmp_path / folder / "doctor.html"
        page.parent.mkdir()
        write_page(full_report(), page, pages)
        assert f'<a href="{link}">' in page.read_text()


def test_a_plan_in_a_lower_precision_has_no_share_of_the_roof() -> None:
    report = full_report()
    assert report.roofline is not None
    eager, plan = report.roofline.points
    points = (eager, msgspec.structs.replace(plan, label="openvino bf16", roof_share=None))
    lower = msgspec.structs.replace(report, roofline=msgspec.structs.replace(report.roofline, points=points))
    page = doctor_page(lower)
    assert "not compared with the roof (lower precision)" in page
    assert "openvino bf16: 6.10 ms, not compared with the roof" in page  # in the picture


def test_what_the_source_contains_stays_text() -> None:
    page = doctor_page(full_report())
    assert NASTY not in page
    assert "<script" not in page
    assert "<img" not in page


def test_the_page_asks_for_nothing_from_outside() -> None:
    page = doctor_page(full_report())
    assert not re.findall(r'(?:src|href)="(?!data:|#)', page)
    assert "url(" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_a_large_model_stays_small_on_the_page() -> None:
    parts = [ModuleNode(path="", class_name="Big"), ModuleNode(path="layers", class_name="ModuleList")]
    for i in range(200):
        parts.append(ModuleNode(path=f"layers.{i}", class_name="Layer", graphs=(0,)))
        parts += [ModuleNode(path=f"layers.{i}.{j}", class_name=f"Part{i % 2}") for j in range(20)]
    spans = tuple(Span(name="x" * 40, stage="other", start_s=i / 1e3, wall_s=1e-3, depth=1) for i in range(20_000))
    report = full_report()
    report = DoctorReport(
        **{name: getattr(report, name) for name in report.__struct_fields__ if name not in ("modules", "compile_time")},
        modules=tuple(parts),
        compile_time=type(report.compile_time)(total_s=20.0, spans=spans),
    )
    assert len(doctor_page(report).encode()) < LIMIT_BYTES


def test_like_siblings_are_folded_and_breaks_keep_their_branch_open() -> None:
    tree = module_tree(full_report().modules)
    assert tree is not None
    assert tree.open
    encoder, router, _ = tree.children
    assert not encoder.open
    (layers,) = encoder.children
    assert [(branch.name, branch.folded) for branch in layers.children] == [("0", 0), ("…", 7)]
    assert router.breaks == (0, 1)


def test_blocks_with_the_same_break_are_folded_and_one_with_another_is_not() -> None:
    breaks = ((0,), (0,), (0,), (1,))
    blocks = [ModuleNode(path=f"{i}", class_name="Block", breaks=which) for i, which in enumerate(breaks)]
    tree = module_tree([ModuleNode(path="", class_name="Net"), *blocks])
    assert tree is not None
    assert [(branch.name, branch.folded, branch.breaks) for branch in tree.children] == [
        ("0", 0, (0,)),
        ("…", 2, (0,)),
        ("3", 0, (1,)),
    ]


def test_submodules_beyond_what_is_drawn_are_counted() -> None:
    parts = [ModuleNode(path=f"{i}", class_name=f"Block{i}") for i in range(moduletree.MOST)]
    parts.append(ModuleNode(path="late", class_name="Late", breaks=(3,)))
    tree = module_tree([ModuleNode(path="", class_name="Net"), *parts])
    assert tree is not None
    assert (tree.children[-1].class_name, tree.children[-1].breaks) == ("2 more submodules", (3,))


def test_places_are_short_and_whole_paths_are_a_hint() -> None:
    known = Finding(kind="graph-break", where="/home/me/net.py:3", explanation="torch.compile stops", advice="a")
    inside = msgspec.structs.replace(known, where="/x/site-packages/lib/a.py:9")
    report = DoctorReport(
        schema=REPORT_SCHEMA,
        compilot="0",
        created="",
        label="Net",
        target="/home/me/net.py:f",
        findings=(known, inside),
    )
    page = doctor_page(report)
    assert '<code title="/home/me/net.py:3">net.py:3</code>' in page
    assert '<code title="/x/site-packages/lib/a.py:9">lib/a.py:9</code>' in page
    assert "graph break</span>" in page
    assert "<p>torch.compile stops.</p>" in page  # a name in code keeps its spelling


def test_the_icicle_has_a_box_for_each_phase_that_can_be_seen() -> None:
    report = full_report()
    assert report.compile_time is not None
    picture = icicle(report.compile_time.spans, 12.3)
    assert picture.count("<rect") == 1 + len(report.compile_time.spans)
    assert stage_class("C++ compile") == "stage-c-compile"
    assert "async compile.wait: 4.60 s" in picture
    tiny = Span(name="tiny", stage="other", start_s=0, wall_s=1e-6, depth=0)
    assert "tiny" not in icicle([tiny], 12.3)
    assert icicle([], 12.3) == ""


def test_the_roofline_shows_both_ways_to_run() -> None:
    roof = full_report().roofline
    assert roof is not None
    picture = roofline_svg(roof)
    assert "eager: 12.3 ms, 29 % of the roof" in picture
    assert "inductor freezing: 6.10 ms, 58 % of the roof" in picture
    assert roofline_svg(Roofline(peak_flops_per_s=1e9, bandwidth_bytes_per_s=1e9)) == ""


def test_stage_shares_add_up_to_one() -> None:
    assert sum(row.share for row in stage_rows(full_report().stages)) == pytest.approx(1.0)


def test_every_stage_has_a_colour() -> None:
    page = doctor_page(full_report())
    for row in stage_rows(full_report().stages):
        assert f".{row.kind} {{" in page


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (time_text(3.4), "3.40 s"),
        (time_text(0.0123), "12.3 ms"),
        (time_text(9e-6), "9.00 µs"),
        (time_text(None), "n/a"),
        (rate_text(1.48e11, "FLOP/s"), "148 GFLOP/s"),
        (share_text(0.004), "< 1 %"),
        (share_text(0.7), "70 %"),
    ],
)
def test_figures_have_a_unit_and_few_digits(text: str, said: str) -> None:
    assert text == said


def test_a_real_browser_shows_the_page_without_complaint(tmp_path: Path) -> None:
    page = tmp_path / "doctor.html"
    write_page(full_report(), page)
    assert page.stat().st_size < LIMIT_BYTES
    shown = open_page(page, "--dump-dom")
    assert "CONSOLE" not in shown.stderr, shown.stderr
    for words in ("Data loading is 70 % of the step", "models/router.py:41", "What bounds it", "inductor freezing"):
        assert words in shown.stdout
    assert shown.stdout.count("<svg") == 2


def test_the_browser_test_would_see_an_error(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(doctor_page(full_report()).replace("</main>", '<img src="http://example.invalid/x.png"></main>'))
    assert "CONSOLE" in open_page(page, "--dump-dom").stderr
