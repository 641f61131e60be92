package browsertest

import (
	"cmp"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/dashtest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// violations lists the rules of axe that the page breaks, with the first element of each.
const violations = `axe.run().then((r) => r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes[0].html))`

func (v *visit) axe() []string {
	v.t.Helper()
	found, err := chromedp.Run(v.ctx, chromedp.Evaluate[[]string](violations, chromedp.EvalAwaitPromise))
	require.NoError(v.t, err)
	return found
}

// scheme makes the pages light or dark.
func (v *visit) scheme(value string) {
	v.t.Helper()
	command(v, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: value}}})
}

// axe-core checks what a screen reader and the keyboard need.
func TestNoPageHasAViolationOfAxe(t *testing.T) {
	file := cmp.Or(os.Getenv("OUTBOX_TEST_AXE"), "../../.bin/axe.min.js")
	script, err := os.ReadFile(file)
	if os.IsNotExist(err) && os.Getenv("CI") != "true" {
		t.Skip("there is no " + file + ": run make axe, or name the file in OUTBOX_TEST_AXE")
	}
	require.NoError(t, err)
	v := open(t, dashtest.Shop(time.Now())...)
	operator := outbox.WithOperator(t.Context(), outbox.Operator{Name: "ada"})
	require.NoError(t, v.outbox.Pause(operator, outbox.Pause{Kind: outbox.EventKind{EventType: "OrderPaid"}}))
	started, delivered := time.Now(), int64(0)
	report := func() {
		delivered += 100
		kind := outbox.EventKind{AggregateType: "Order", EventType: "OrderPlaced"}
		for _, owner := range []string{"shop-1", "shop-3"} {
			totals := &outbox.Totals{Delivered: delivered, Failed: 4 * delivered, Kinds: []outbox.KindTotals{{Kind: kind, Delivered: delivered, Failed: 3 * delivered}}}
			require.NoError(t, sqlstore.SQLite().Announce(t.Context(), v.db.DB, outbox.Node{Owner: owner, Mode: "multi-node", Version: "v1.2.3", Started: started, Totals: totals}, time.Hour))
		}
	}
	report()
	check := func(where string) {
		v.do(chromedp.Evaluate[chromedp.Void](string(script)))
		require.Empty(t, v.axe(), where)
	}
	for _, scheme := range []string{"light", "dark"} {
		v.scheme(scheme)
		for _, width := range []int64{1200, 800, 390} {
			v.do(chromedp.EmulateViewport(width, 844))
			for _, page := range everyPage {
				v.to(page)
				check(page)
			}
			report()
			v.to("?kind=Order+%2F+OrderPlaced")
			check("the chart of a kind")
			v.to("?node=shop-3")
			require.Equal(t, 1, eval[int](v, `document.querySelectorAll("#history .marks li").length`))
			require.LessOrEqual(t, eval[int64](v, "document.documentElement.scrollWidth"), width)
			eval[bool](v, `document.querySelector("#history details").open = true`)
			check("the charts of a process, and their table")
			require.LessOrEqual(t, eval[int64](v, "document.documentElement.scrollWidth"), width)
			v.to("dead")
			eval[bool](v, `document.querySelector("details.menu").open = true`)
			check("an open menu")
			v.click("Delete …", "Delete 3 dead letters?")
			check("the question before a deletion")
		}
	}
	v.to("")
	require.Regexp(t, "^(Late|Look) · Overview", eval[string](v, "document.title"))
	kinds := func() int {
		return eval[int](v, `document.querySelectorAll("[aria-label='Table of the kinds'] tbody tr").length`)
	}
	require.True(t, v.until(func() bool { report(); return kinds() == 2 }), "the kind, and others")
	check("the table of kinds")
	require.LessOrEqual(t, eval[int64](v, "document.documentElement.scrollWidth"), int64(390))
	eval[bool](v, `document.body.append(document.createElement("button")), true`)
	require.NotEmpty(t, v.axe(), "a button without a name")
}

// A phone shows the count and the button of a group at once.
func TestAGroupFitsAPhone(t *testing.T) {
	v := open(t, dashtest.Shop(time.Now())...)
	v.do(chromedp.EmulateViewport(390, 844))
	v.to("dead")
	for _, part := range []string{".groups .total", ".groups tbody th", ".groups button", ".groups summary"} {
		box := eval[[]float64](v, `(() => { const b = document.querySelector("`+part+`").getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom, b.width]; })()`)
		require.GreaterOrEqual(t, box[0], 0.0, part)
		require.GreaterOrEqual(t, box[1], 0.0, part)
		require.LessOrEqual(t, box[2], 390.0, part)
		require.LessOrEqual(t, box[3], 844.0, part)
		require.Positive(t, box[4], part)
	}
	v.to("events")
	require.Equal(t, "Kind", eval[string](v, `getComputedStyle(document.querySelector("td.kind"), "::before").content`)[1:5], "a card names its values")
}

// Exact times are in the browser's zone, with UTC for a pointer that rests on them.
func TestTimesAreInTheZoneOfTheBrowser(t *testing.T) {
	at := time.Date(2026, 3, 1, 23, 30, 0, 0, time.UTC)
	v := open(t, dashtest.Row{ID: "a", Type: "T", Created: at, Ended: at, Status: outbox.StatusDead, Error: "x"})
	command(v, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"})
	v.to("event?id=a")
	time := func(of string) string { return eval[string](v, `document.querySelector("main time.exact").`+of) }
	require.Contains(t, time("textContent"), "Mar 2, 2026")
	require.Contains(t, time("textContent"), "GMT+9")
	require.Equal(t, "2026-03-01 23:30:00.000 UTC", time("title"))
	v.to("events")
	require.Regexp(t, `^\d+ days \d+ h ago$`, eval[string](v, `document.querySelector("main time.age").textContent`))
	require.Regexp(t, `Mar 2, 2026.*GMT\+9 \(2026-03-01 23:30:00 UTC\)`, eval[string](v, `document.querySelector("main time.age").title`))
}

// The ages of a page that stays open are true, and the overview's lists are those of now.
func TestAgesStayTrue(t *testing.T) {
	now := time.Now()
	v := open(t, dashtest.Row{ID: "a", Type: "T", Created: now.Add(-125 * time.Second), Available: now.Add(10 * time.Minute)})
	report := func(owner string, seen time.Duration) {
		require.NoError(t, sqlstore.SQLite().Announce(t.Context(), v.db.DB, outbox.Node{Owner: owner, Mode: "multi-node", Started: now.Add(-seen), LastPoll: now, Totals: &outbox.Totals{}}, time.Hour))
	}
	report("shop-1", time.Hour)
	// later makes the browser's clock show a later time.
	const later = `(() => { const now = Date.now; Date.now = () => now() + 3600e3; return true; })()`
	v.to("events")
	ages := func() []string {
		return eval[[]string](v, `[...document.querySelectorAll("main time.age")].map((age) => age.textContent)`)
	}
	require.Equal(t, []string{"2 min ago", "in 9 min"}, ages())
	eval[bool](v, later)
	require.True(t, v.until(func() bool { return strings.HasPrefix(ages()[0], "1 h ") && strings.HasSuffix(ages()[1], " min ago") }), "%q", ages())

	v.to("")
	eval[bool](v, later)
	started := func() string {
		return eval[string](v, `[...document.querySelectorAll("#processes tbody tr")].map((row) => row.querySelector("th").textContent + ": " + row.lastElementChild.textContent).join()`)
	}
	require.True(t, v.until(func() bool { return strings.HasPrefix(started(), "shop-1: 2 h ") }), started())
	report("shop-2", 0)
	require.NoError(t, v.outbox.Pause(t.Context(), outbox.Pause{Kind: outbox.EventKind{EventType: "T"}}))
	require.True(t, v.until(func() bool {
		return regexp.MustCompile(`^shop-1: 2 h \d min ago,shop-2: 1 h \d min ago$`).MatchString(started())
	}), started())
	v.see("T, since ")
	v.clean("ages")

	command(v, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	v.to("events")
	require.Equal(t, "2 min ago", ages()[0], "without a script the ages are those of the page")
}
