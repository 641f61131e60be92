// The live overview, times in the browser's zone, menus, and the checkbox for a whole page. Everything
// works without it.
"use strict";

const localize = (root) => {
  const zone = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" }).formatToParts(new Date()).find((part) => part.type === "timeZoneName");
  const clock = (at, options) => at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...options });
  for (const time of root.querySelectorAll("time")) {
    const at = new Date(time.dateTime);
    if (isNaN(at)) continue;
    const local = at.toLocaleString(undefined, { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
    if (time.classList.contains("exact")) {
      time.title = time.textContent;
      time.textContent = local;
    } else if (time.classList.contains("clock")) {
      time.textContent = clock(at, { second: "2-digit" });
    } else {
      time.title = local + " (" + time.title + ")";
    }
  }
  for (const text of root.querySelectorAll("text[data-at]")) text.textContent = clock(new Date(text.dataset.at));
  if (zone) for (const name of root.querySelectorAll(".zone")) name.textContent = zone.value;
};
localize(document);

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
  let loading = false;
  // The charts stay as they are while somebody reads their table or has the focus there.
  const loadCharts = async (latest) => {
    const shown = document.getElementById("history");
    if (loading || document.hidden || shown.dataset.at === String(latest) || shown.contains(document.activeElement) || shown.querySelector("details[open]")) return;
    loading = true;
    try {
      const answer = await fetch("charts" + location.search);
      const made = answer.ok && new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("history");
      if (made) {
        localize(made);
        shown.replaceWith(made);
      }
    } catch { // the next sample tries again
    } finally {
      loading = false;
    }
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
    loadCharts(sample.history);
  };
  source.onerror = () => {
    state.textContent = source.readyState === EventSource.CLOSED ? "Not live; reload to see the latest figures." : "Connecting again …";
  };
}
