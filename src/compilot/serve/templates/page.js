// Keeps the page up to date: once a second, as long as it is looked at.
"use strict";
const ms = (seconds) => (seconds === null ? "" : (seconds * 1e3).toFixed(2) + " ms");
const put = (id, text) => { const one = document.getElementById(id); if (one.textContent !== text) one.textContent = text; };

function cell(text, kind) {
  const one = document.createElement("td");
  one.textContent = text;
  if (kind) one.className = kind;
  return one;
}

function show(status) {
  const stats = status.stats;
  put("state", stats.state);
  document.getElementById("state").dataset.state = stats.state;
  put("plan", stats.plan);
  put("reason", stats.reason);
  for (const step of document.querySelectorAll("#way li")) {
    if (step.dataset.state === stats.state) step.setAttribute("aria-current", "step");
    else step.removeAttribute("aria-current");
  }
  for (const name of ["calls", "fast", "eager", "compared", "mismatches"]) put(name, String(stats[name]));
  put("missed", String(Object.values(stats.fallbacks).reduce((a, b) => a + b, 0)));
  put("speedup", stats.speedup ? stats.speedup.toFixed(2) + "x" : "");
  for (const row of document.querySelectorAll("#latency tr")) {
    const found = status.latency[row.dataset.name];
    ["p50_s", "p95_s", "p99_s"].forEach((name, i) => { row.children[i + 1].textContent = ms(found[name]); });
  }
  const rows = status.events.map((event) => {
    const row = document.createElement("tr");
    const what = (event.kind === "state" ? "" : event.kind + " ") + (event.reason || "");
    row.append(cell(event.at.slice(11, 19), "when"), cell(String(event.call), "n"), cell(event.state), cell(what, "why"));
    return row;
  });
  document.getElementById("events").replaceChildren(...rows);
}

async function look() {
  try {
    if (!document.hidden) show(await (await fetch("/status")).json());
  } catch (problem) {
    put("reason", "the server does not answer");
  }
  setTimeout(look, 1000);
}
setTimeout(look, 1000);
