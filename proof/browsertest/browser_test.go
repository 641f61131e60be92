package browsertest

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/dashtest"
	"github.com/outboxkit/outbox-go/outbox"
)

func contains(body, text string) bool { return strings.Contains(body, text) }

var everyPage = []string{"", "events", "events?status=DEAD", "events?id=re&error_text=r", "event?id=refused-0", "event?id=retried", "dead", "letters", "steering", "event?id=none", "action?id=none"}

// contrast lists the texts whose contrast to what is behind them is below 4.5.
const contrast = `(() => {
	const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
	const light = (c) => c.slice(0, 3).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (el) => { for (; el; el = el.parentElement) { const c = parse(getComputedStyle(el).backgroundColor); if (c[3] === 1) return c; } return [255, 255, 255, 1]; };
	const bad = [];
	const check = (el, color, what) => {
		const [a, b] = [light(parse(color)), light(behind(el))].sort((x, y) => y - x);
		const ratio = (a + 0.05) / (b + 0.05);
		if (ratio < 4.5) bad.push(ratio.toFixed(2) + " " + what);
	};
	let checked = 0;
	for (const el of document.querySelectorAll("body *")) {
		const own = [...el.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
		if (own || el.value) { checked++; check(el, getComputedStyle(el).color, el.tagName + " " + el.textContent.slice(0, 40)); }
		if (el.placeholder) check(el, getComputedStyle(el, "::placeholder").color, "placeholder " + el.placeholder);
	}
	return checked > 5 ? bad : ["only " + checked + " texts were found"];
})()`

// unnamed lists what a screen reader could not name, and missing landmarks.
const unnamed = `[
	...[...document.querySelectorAll("input:not([type=hidden]), select, button, a, progress, :not(svg) > svg")].filter((el) => !(el.labels && el.labels.length) && !el.getAttribute("aria-label") && !el.getAttribute("aria-labelledby") && !el.textContent.trim()).map((el) => el.outerHTML),
	...[...document.querySelectorAll("th:not([scope]), section:not([aria-labelledby]), nav:not([aria-label])")].map((el) => el.outerHTML),
	...["main", "header", "footer", "h1", "html[lang]", "header nav"].filter((s) => document.querySelectorAll(s).length !== 1),
]`

func TestEachPageIsReadable(t *testing.T) {
	rows := dashtest.Shop(time.Now())
	v := open(t, rows...)
	require.NoError(t, v.outbox.Pause(t.Context(), outbox.Pause{Kind: outbox.EventKind{EventType: "OrderPaid"}}))
	for _, scheme := range []string{"light", "dark"} {
		command(v, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		for _, width := range []int64{1200, 360} {
			v.do(chromedp.EmulateViewport(width, 800))
			for _, page := range everyPage {
				v.to(page)
				require.Equal(t, scheme == "dark", eval[bool](v, `matchMedia("(prefers-color-scheme: dark)").matches`))
				require.Empty(t, eval[[]string](v, contrast), "%s in %s", page, scheme)
				require.Empty(t, eval[[]string](v, unnamed), page)
				require.LessOrEqual(t, eval[int64](v, "document.documentElement.scrollWidth"), width, "%s scrolls sideways at %d px", page, width)
			}
		}
	}
	for _, p := range v.problems { // the two pages that are not found
		require.Contains(t, p, "404")
	}
}

func TestAGroupIsReplayedByMouse(t *testing.T) {
	v := open(t, dashtest.Shop(time.Now())...)
	v.to("")
	v.click("Dead letters", "Grouped by kind and reason")
	v.click("Replay …", "Replay 3 dead letters?")
	v.click("Yes, replay 3", "Replayed 3 dead letters: they are due now")
	v.click("Dead letters", "ada")
	require.NotContains(t, eval[string](v, "document.body.innerText"), "warehouse refused", "the group is gone")
	v.click("mail server", "unmailed-1")
	v.clean("replay")
}

func TestASelectionIsDeletedByMouse(t *testing.T) {
	v := open(t, dashtest.Shop(time.Now())...)
	v.to("letters?tenant_id=globex")
	v.do(chromedp.Click("#every"))
	require.Equal(t, 2, eval[int](v, `document.querySelectorAll("input[name=id]:checked").length`))
	v.click("Delete selected …", "Delete 2 dead letters?")
	v.click("No, go back", "Grouped by kind and reason")
	v.to("letters")
	v.do(chromedp.Click(`input[value="refused-1"]`))
	v.click("Delete selected …", "Delete 1 dead letter?")
	v.click("Yes, delete 1", "Deleted 1 dead letter.")
	v.to("event?id=refused-0")
	v.see("payload-secret")
	v.click("Replay …", "Replay 1 dead letter?")
	v.click("Yes, replay 1", "Replayed 1 dead letter: it is due now")
	n, err := v.outbox.DeadLetters().Count(t.Context(), outbox.DeadFilter{})
	require.NoError(t, err)
	require.Equal(t, int64(3), n)
	v.clean("delete")
}

func TestSteeringByMouse(t *testing.T) {
	v := open(t, dashtest.Shop(time.Now())...)
	v.to("steering")
	v.do(chromedp.SendKeys("input[name=event_type]", "OrderPlaced"), chromedp.SendKeys("input[name=aggregate_type]", "Order"))
	v.click("Pause …", "Pause Order / OrderPlaced for all its listeners?")
	v.click("Yes, pause", "paused until")
	v.click("Steering", "Resume")
	v.click("Resume …", "Resume Order / OrderPlaced?")
	v.click("Yes, resume", "resumed: events that waited")
	v.click("Steering", "Nothing is paused.")
	v.click("Purge old rows …", "Delete all events that were delivered or died")
	v.click("Yes, purge", "urged")
	v.to("steering")
	v.click("Wake the poller", "This process has no poller to wake")
	v.to("events")
	v.do(chromedp.SetValue("select[name=status]", "RETRY"))
	v.click("Find", "retried")
	v.click("retried", "3 failed attempts")
	v.to("events")
	v.do(chromedp.SendKeys("input[name=id]", "delayed"))
	v.click("Find", "(delayed, deferred or replayed)")
	v.do(chromedp.EmulateViewport(390, 844))
	v.to("audit")
	v.see("Order / OrderPlaced")
	require.LessOrEqual(t, eval[float64](v, "document.documentElement.scrollWidth"), 390.0, "a phone shows the whole of the audit log")
	v.clean("steering")
}

// focused describes the element that has the focus, and whether that is to be seen.
const focused = `(() => { const el = document.activeElement, s = getComputedStyle(el);
	return [(el.getAttribute("aria-label") || el.textContent || el.name).trim(), s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 ? "visible" : "hidden", el.tagName]; })()`

// tabTo presses Tab until an element with this text has the focus.
func (v *visit) tabTo(text string) {
	v.t.Helper()
	var passed []string
	for range 60 {
		v.do(chromedp.KeyEvent(kb.Tab))
		now := eval[[]string](v, focused)
		if now[2] == "BODY" {
			continue
		}
		require.Equal(v.t, "visible", now[1], "the focus on %q", now[0])
		if passed = append(passed, now[0]); strings.Contains(now[0], text) {
			return
		}
	}
	require.Fail(v.t, "not reached", "%q by Tab: %q", text, passed)
}

func TestAGroupIsReplayedByKeyboard(t *testing.T) {
	v := open(t, dashtest.Shop(time.Now())...)
	v.to("")
	v.do(chromedp.KeyEvent(kb.Tab))
	require.Equal(t, "Skip to the content", eval[[]string](v, focused)[0], "the first stop")
	v.do(chromedp.KeyEvent(kb.Enter))
	require.Equal(t, "MAIN", eval[[]string](v, focused)[2])
	v.to("")
	v.tabTo("Dead letters")
	v.do(chromedp.KeyEvent(kb.Enter))
	v.see("Grouped by kind and reason")
	v.tabTo("More for the group")
	v.do(chromedp.KeyEvent(kb.Enter))
	v.tabTo("Pause Order / OrderPlaced")
	v.do(chromedp.KeyEvent(kb.Escape))
	require.Contains(t, eval[[]string](v, focused)[0], "More for the group", "Escape closes the menu")
	require.Zero(t, eval[int](v, `document.querySelectorAll("details[open]").length`))
	v.do(chromedp.KeyEvent(kb.Enter))
	v.tabTo("Delete the group")
	v.do(chromedp.KeyEvent(kb.Enter))
	v.see("Delete 3 dead letters?")
	v.tabTo("No, go back")
	v.do(chromedp.KeyEvent(kb.Enter))
	v.see("Grouped by kind and reason")
	v.tabTo("Replay the group")
	v.do(chromedp.KeyEvent(kb.Enter))
	v.see("Replay 3 dead letters?")
	v.tabTo("Yes, replay 3")
	v.do(chromedp.KeyEvent(kb.Enter))
	v.see("Replayed 3 dead letters: they are due now")
	v.to("letters")
	v.tabTo("Select unmailed-0")
	v.do(chromedp.KeyEvent(" "))
	v.tabTo("Delete selected")
	v.do(chromedp.KeyEvent(kb.Enter))
	v.see("Delete 1 dead letter?")
	v.clean("keyboard")
}

func TestHostileTextsRunNoScript(t *testing.T) {
	rows := dashtest.Hostile(time.Now())
	v := open(t, rows...)
	pages := []string{"", "events", "events?status=DEAD", "events?status=WAITING", "dead", "letters", "steering"}
	for _, row := range rows {
		pages = append(pages, "event?id="+url.QueryEscape(row.ID), "events?event_type="+url.QueryEscape(row.Type))
	}
	v.do(chromedp.EmulateViewport(360, 800))
	for _, page := range pages {
		v.to(page)
		require.False(t, eval[bool](v, "document.documentElement.hasAttribute('"+dashtest.Marker+"')"), page)
		require.Zero(t, eval[int](v, "document.querySelectorAll('main script, main img, main a[href^=javascript]').length"), page)
		require.LessOrEqual(t, eval[int64](v, "document.documentElement.scrollWidth"), int64(360), page)
	}
	v.to("dead")
	v.click("Replay …", "dead letter")
	v.do(chromedp.Click("main form button"))
	v.see("Replayed ")
	require.False(t, eval[bool](v, "document.documentElement.hasAttribute('"+dashtest.Marker+"')"))
	v.clean("hostile texts")

	// The marker works: where scripts may run, it is set.
	require.True(t, eval[bool](v, "document.documentElement.setAttribute('"+dashtest.Marker+"','1'), document.documentElement.hasAttribute('"+dashtest.Marker+"')"))
}

func TestTheOverviewIsLive(t *testing.T) {
	v := open(t)
	v.to("")
	v.see("Live.")
	require.Equal(t, "0", eval[string](v, `document.querySelector("[data-text=dead]").textContent`))
	red := func() bool {
		return eval[bool](v, `document.querySelector("[data-text=dead]").classList.contains("bad")`)
	}
	require.False(t, red())
	require.NoError(t, dashtest.Insert(t.Context(), v.db.DB, v.db.Kind, dashtest.Shop(time.Now())...))
	require.True(t, v.until(func() bool {
		return eval[string](v, `document.querySelector("[data-text=dead]").textContent`) == "5"
	}), "without loading the page again")
	require.True(t, red())
	verdict := func(of string) string { return eval[string](v, `document.getElementById("verdict").`+of) }
	require.Equal(t, "attention", verdict("dataset.level"))
	require.Equal(t, "In time, but look: no process delivers, 5 events are dead.", verdict("dataset.summary"))
	require.Equal(t, "In time, but look: no process delivers5 events are dead", verdict("textContent"), "a list")
	require.Equal(t, "#nodes", verdict(`querySelector("a").getAttribute("href")`))
	sampled := func() string { return eval[string](v, `document.getElementById("history").dataset.at`) }
	before := sampled()
	require.Equal(t, 2, eval[int](v, `document.querySelectorAll("#history polyline").length`), "pending and dead, from the first page on")
	require.True(t, v.until(func() bool { return sampled() != before }), "the charts go on")
	require.Equal(t, 2, eval[int](v, `document.querySelectorAll("#history svg[role=img]").length`))
	require.Empty(t, eval[[]string](v, contrast))
	v.clean("live")
}

func TestEverythingWorksWithoutScripts(t *testing.T) {
	v := open(t, dashtest.Shop(time.Now())...)
	command(v, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	v.to("")
	v.see("Reload")
	v.see("Dead")
	v.to("dead")
	v.click("Replay …", "Replay 3 dead letters?")
	v.click("Yes, replay 3", "Replayed 3 dead letters: they are due now")
	v.to("letters")
	v.do(chromedp.Click(`input[value="unmailed-0"]`))
	v.click("Delete selected …", "Delete 1 dead letter?")
	v.clean("without scripts")
}
