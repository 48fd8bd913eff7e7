// A run under way: what its journal and progress.json have, as the server sends it. Text only, never HTML.
"use strict";
const live = document.querySelector("[data-events]");
const place = (id) => document.getElementById(id);
const clock = (s) => `${Math.floor(s / 60)}:${String(Math.floor(s % 60)).padStart(2, "0")}`;
let seen = null, heardAt = 0;

function say(id, words) {
  if (place(id).textContent !== words) place(id).textContent = words;
}

function row(trial) {
  const line = document.createElement("tr");
  const cells = [
    trial.label, trial.state, trial.cold_s === null ? "-" : trial.cold_s.toFixed(2),
    trial.ratio === null ? "-" : `~${trial.ratio.toFixed(2)}x`, trial.at_s.toFixed(0),
    trial.state === "ok" ? "" : trial.reason,
  ];
  cells.forEach((words, number) => {
    const cell = document.createElement(number ? "td" : "th");
    if (!number) cell.scope = "row";
    if (number > 1 && number < 5) cell.className = "figure";
    if (number === 5) cell.className = "note";
    cell.textContent = words;
    line.append(cell);
  });
  return line;
}

function spent() {
  if (seen === null) return;
  const s = seen.elapsed_s + (performance.now() - heardAt) / 1000;
  const budget = seen.budget_s;
  say("spent-words", budget === null ? `${clock(s)} spent` : `${clock(s)} of ${clock(budget)} spent`);
  if (budget !== null) { place("spent").max = budget; place("spent").value = Math.min(s, budget); }
}

function show(news) {
  seen = news; heardAt = performance.now();
  say("now", news.problem || (news.doing ? news.doing.what : "working"));
  say("step", news.doing ? [news.doing.step, news.doing.why].filter(Boolean).join("; ") : "");
  if (news.doing && news.doing.best) say("best", news.doing.best);
  place("trials").replaceChildren(...news.trials.map(row).reverse());
  spent();
}

if (live !== null) {
  const stream = new EventSource(live.dataset.events);
  const tick = setInterval(spent, 1000);
  stream.addEventListener("news", (event) => {
    const news = JSON.parse(event.data);
    show(news);
    if (!news.live) {
      stream.close(); clearInterval(tick);
      say("now", news.verdict ? "decided" : "the run has ended");
      location.reload();
    }
  });
  stream.addEventListener("error", () => say("now", "no connection to the server; trying again"));
}
