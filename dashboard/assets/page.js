// The live overview, times in the browser's zone, menus, and the checkbox for a whole page. Everything
// works without it.
"use strict";

for (const time of document.querySelectorAll("time")) {
  const at = new Date(time.dateTime);
  if (isNaN(at)) continue;
  const local = at.toLocaleString(undefined, { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
  if (time.classList.contains("exact")) {
    time.title = time.textContent;
    time.textContent = local;
  } else {
    time.title = local + " (" + time.title + ")";
  }
}

const closeMenus = (except) => {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (menu !== except) menu.open = false;
};
document.addEventListener("click", (event) => closeMenus(event.target.closest("details.menu")));
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && document.activeElement.closest("details.menu[open]");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});

const every = document.getElementById("every");
if (every) {
  every.hidden = false;
  every.addEventListener("change", () => {
    for (const box of document.querySelectorAll("#selection input[name=id]")) box.checked = every.checked;
  });
}

const live = document.getElementById("live");
if (live) {
  const state = document.getElementById("state");
  const chart = document.getElementById("chart");
  const samples = [];
  const draw = () => {
    const most = Math.max(1, ...samples.flatMap((s) => [s.due, s.done]));
    document.getElementById("most").textContent = String(most);
    for (const name of ["due", "done"]) {
      const points = samples.map((s, i) => (i * 600 / Math.max(1, samples.length - 1)).toFixed(1) + "," + (116 - s[name] * 112 / most).toFixed(1));
      chart.querySelector("polyline." + name).setAttribute("points", points.join(" "));
    }
    chart.hidden = samples.length < 2;
  };
  const showVerdict = (verdict) => {
    const place = document.getElementById("verdict");
    if (place.textContent === verdict.summary) return; // a link may have the focus
    place.dataset.level = verdict.level;
    place.replaceChildren(verdict.head + ": ", ...verdict.reasons.flatMap((reason, i) => {
      const link = document.createElement("a");
      link.href = reason.link;
      link.textContent = reason.text;
      return i > 0 ? [", ", link] : [link];
    }), ".");
  };
  const source = new EventSource(live.dataset.live);
  source.onmessage = (event) => {
    const sample = JSON.parse(event.data);
    if (sample.problem) {
      state.textContent = "Live: " + sample.problem + ".";
      return;
    }
    for (const place of live.querySelectorAll("[data-text]")) {
      const text = sample.texts[place.dataset.text];
      if (text !== undefined && place.textContent !== text) place.textContent = text;
    }
    showVerdict(sample.verdict);
    live.querySelector("[data-text=dead]").classList.toggle("bad", sample.texts.dead !== "0");
    state.textContent = "Live.";
    samples.push({ due: sample.due, done: sample.done });
    if (samples.length > 120) samples.shift();
    draw();
  };
  source.onerror = () => {
    state.textContent = source.readyState === EventSource.CLOSED ? "Not live; reload to see the latest figures." : "Connecting again …";
  };
}
