package dashboard_test

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/internal/testing/dashtest"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestTheEventShowsTheFormatOfItsKind(t *testing.T) {
	t.Parallel()
	page := func(file string) string {
		folder := fstest.MapFS{}
		if file != "" {
			folder["Order.OrderPlaced.json"] = &fstest.MapFile{Data: []byte(file)}
		}
		s := newSite(t, dashtest.Shop(time.Now()), func(c *dashboard.Config) { c.Contracts = folder })
		return s.get("/shop/event?id=refused-0")
	}
	const heading = "Format of this kind"
	require.NotContains(t, newSite(t, dashtest.Shop(time.Now())).get("/shop/event?id=refused-0"), heading, "without Config.Contracts")
	require.NotContains(t, page(""), heading, "a kind without a file")
	require.NotContains(t, page("{}"), "An example")

	shown := page(`{"type":"object","title":"<script>alert(1)</script>","examples":[{"id":"<b>"}]}`)
	require.Contains(t, shown, heading)
	require.Contains(t, shown, "&#34;id&#34;: &#34;&lt;b&gt;&#34;")
	require.Contains(t, shown, "&lt;script&gt;")
	require.NotContains(t, shown, "<script>alert")

	large := page(`{"title":"` + strings.Repeat("x", 1<<20) + `"}`)
	require.Contains(t, large, "Not all of it fits on a page.")
	require.Less(t, len(large), 200<<10)
	require.Contains(t, page("no JSON"), heading, "the page does not fail")
}

func TestTheEventShowsTheVersionOfItsPayload(t *testing.T) {
	t.Parallel()
	first := dashtest.Row{ID: "first", Type: "OrderPlaced", Created: time.Now()}
	third := dashtest.Row{ID: "third", Type: "OrderPlaced", Created: time.Now(), Headers: map[string]string{outbox.HeaderVersion: "3"}}
	s := newSite(t, []dashtest.Row{first, third})
	require.NotContains(t, s.get("/shop/event?id=first"), "of the format")
	require.Contains(t, s.get("/shop/event?id=third"), "Version 3 of the format.")
}
