"""A check as JUnit XML: one case per metric. In: a report. Out: text. Inconclusive and not measured are skipped."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from compilot.gate.report_records import CheckReport, GateVerdict, MetricResult

NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: CheckReport) -> str:
    """The document; a check that measured nothing is an error of its suite."""
    cases = report.metrics
    skipped = [one for one in cases if one.verdict in (GateVerdict.INCONCLUSIVE, GateVerdict.NOT_MEASURED)]
    nothing = report.verdict is GateVerdict.NOT_MEASURED
    counts = {
        "tests": str(len(cases) + nothing),
        "failures": str(sum(one.verdict.is_red for one in cases)),
        "errors": str(int(nothing)),
        "skipped": str(len(skipped)),
        "time": f"{report.wall_s:.3f}",
    }
    root = ET.Element("testsuites", counts)
    suite = ET.SubElement(root, "testsuite", {"name": "compilot check", "timestamp": report.created, **counts})
    for one in cases:
        _case(suite, report, one)
    if nothing:
        case = ET.SubElement(suite, "testcase", {"classname": _clean(report.target), "name": "check", "time": "0"})
        ET.SubElement(case, "error", {"message": _clean(report.because), "type": "not-measured"})
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, report: CheckReport, one: MetricResult) -> None:
    name = {"classname": _clean(report.target), "name": _clean(f"{one.metric} ({one.arm})"), "time": "0"}
    case = ET.SubElement(suite, "testcase", name)
    because = {"message": _clean(one.because)}
    if one.verdict.is_red:
        ET.SubElement(case, "failure", {**because, "type": str(one.verdict)})
    elif one.verdict is not GateVerdict.PASS:
        ET.SubElement(case, "skipped", because)
    else:
        ET.SubElement(case, "system-out").text = _clean(one.because)


def _clean(text: str) -> str:
    """Without characters that XML cannot hold: a compiler's message may have colours."""
    return NOT_XML.sub("", text)
