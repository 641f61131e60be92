// The live overview, ages and times in the browser's zone, menus, and the checkbox for a whole page. Everything
// works without it.
"use strict";

const zoned = (at) => at.toLocaleString(undefined, { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short" });
const clock = (at, options) => at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...options });
const inUTC = (at) => at.toISOString().slice(0, 19).replace("T", " ") + " UTC";

// Ages count by the clock of the server, which made the page.
const made = document.querySelector("footer time");
const ahead = made ? Date.parse(made.dateTime) - Date.now() : 0;
const span = (ms) => {
  const s = Math.floor(ms / 1000);
  if (s < 60) return s + " s";
  if (s < 3600) return Math.floor(s / 60) + " min";
  if (s < 48 * 3600) return Math.floor(s / 3600) + " h " + Math.floor(s / 60) % 60 + " min";
  return Math.floor(s / 86400) + " days " + Math.floor(s / 3600) % 24 + " h";
};
const ago = (at) => {
  const ms = Date.now() + ahead - at;
  if (ms >= 1000) return span(ms) + " ago";
  return ms > -1000 ? "just now" : "in " + span(-ms);
};
const write = (time) => {
  const at = new Date(time.dateTime);
  if (isNaN(at)) return;
  if (time.classList.contains("exact")) {
    if (!time.title) time.title = time.textContent;
    time.textContent = zoned(at);
    return;
  }
  time.title = zoned(at) + " (" + inUTC(at) + ")";
  if (time.classList.contains("clock")) time.textContent = clock(at, { second: "2-digit" });
};
const localize = (root) => {
  root.querySelectorAll("time").forEach(write);
  const zone = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" }).formatToParts(new Date()).find((part) => part.type === "timeZoneName");
  for (const text of root.querySelectorAll("text[data-at]")) text.textContent = clock(new Date(text.dataset.at));
  for (const link of root.querySelectorAll("a[data-at]")) link.title = zoned(new Date(link.dataset.at));
  if (zone) for (const name of root.querySelectorAll(".zone")) name.textContent = zone.value;
};
const grow = () => {
  if (document.hidden) return;
  for (const time of document.querySelectorAll("time.age[datetime]")) {
    const text = ago(Date.parse(time.dateTime));
    if (time.textContent !== text) time.textContent = text;
  }
};
setInterval(grow, 1000);
document.addEventListener("visibilitychange", grow);
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
  let loaded = document.getElementById("history").dataset.at;
  // A part stays as it is while somebody reads its table, selects its text or has the focus there.
  const inUse = (part) => part.contains(document.activeElement) || part.querySelector("details[open]") ||
    getSelection().type === "Range" && getSelection().containsNode(part, true);
  const loadParts = async (latest) => {
    if (loading || document.hidden || loaded === String(latest)) return;
    loading = true;
    try {
      const answer = await fetch("charts" + location.search);
      if (!answer.ok) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      localize(fresh);
      for (const id of ["history", "pauses", "processes"]) {
        const part = document.getElementById(id);
        const other = fresh.getElementById(id);
        if (other && !inUse(part)) part.replaceWith(other);
      }
      loaded = String(latest);
    } catch { // the next sample tries again
    } finally {
      loading = false;
    }
  };
  // A tab in the background says that the outbox is late, or that there is something to look at.
  const title = document.title;
  const showTitle = (level) => {
    document.title = ({ late: "Late · ", attention: "Look · " }[level] ?? "") + title;
  };
  showTitle(document.getElementById("verdict").dataset.level);
  const showVerdict = (verdict) => {
    const place = document.getElementById("verdict");
    showTitle(verdict.level);
    if (place.dataset.summary === verdict.summary) return; // a link may have the focus
    place.dataset.level = verdict.level;
    place.dataset.summary = verdict.summary;
    place.firstElementChild.textContent = verdict.head + ":";
    place.lastElementChild.replaceChildren(...verdict.reasons.map((reason) => {
      const link = document.createElement("a");
      link.href = reason.link;
      link.textContent = reason.text;
      if (reason.at) link.title = zoned(new Date(reason.at));
      const item = document.createElement("li");
      item.append(link);
      return item;
    }));
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
    for (const place of live.querySelectorAll("[data-time]")) {
      place.dateTime = sample.times[place.dataset.time] ?? "";
      place.hidden = !place.dateTime;
      write(place);
    }
    grow();
    showVerdict(sample.verdict);
    live.querySelector("[data-text=dead]").classList.toggle("bad", sample.texts.dead !== "0");
    state.textContent = "Live.";
    loadParts(sample.history);
  };
  source.onerror = () => {
    state.textContent = source.readyState === EventSource.CLOSED ? "Not live; reload to see the latest figures." : "Connecting again …";
  };
}
