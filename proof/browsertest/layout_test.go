package browsertest

import (
	"cmp"
	"os"
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
	v := open(t, sqlite(), dashtest.Shop(time.Now())...)
	operator := outbox.WithOperator(t.Context(), outbox.Operator{Name: "ada"})
	require.NoError(t, v.outbox.Pause(operator, outbox.Pause{Kind: outbox.EventKind{EventType: "OrderPaid"}}))
	for _, owner := range []string{"shop-1", "shop-3"} {
		require.NoError(t, sqlstore.SQLite().Announce(t.Context(), v.db.DB, outbox.Node{Owner: owner, Mode: "multi-node", Started: time.Now(), Totals: &outbox.Totals{}}, time.Hour))
	}
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
	eval[bool](v, `document.body.append(document.createElement("button")), true`)
	require.NotEmpty(t, v.axe(), "a button without a name")
}

// A phone shows the count and the button of a group at once.
func TestAGroupFitsAPhone(t *testing.T) {
	v := open(t, sqlite(), dashtest.Shop(time.Now())...)
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
	v := open(t, sqlite(), dashtest.Row{ID: "a", Type: "T", Created: at, Ended: at, Status: outbox.StatusDead, Error: "x"})
	command(v, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Tokyo"})
	v.to("event?id=a")
	time := func(of string) string { return eval[string](v, `document.querySelector("main time.exact").`+of) }
	require.Contains(t, time("textContent"), "Mar 2, 2026")
	require.Contains(t, time("textContent"), "GMT+9")
	require.Equal(t, "2026-03-01 23:30:00.000 UTC", time("title"))
	v.to("events")
	require.Contains(t, eval[string](v, `document.querySelector("main time.age").textContent`), " ago")
	require.Regexp(t, `Mar 2, 2026.*GMT\+9 \(2026-03-01 23:30:00 UTC\)`, eval[string](v, `document.querySelector("main time.age").title`))
}
