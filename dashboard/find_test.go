package dashboard_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/dashtest"
	"github.com/outboxkit/outbox-go/outbox"
)

// ids are the ids that a page lists.
func ids(body string) (list []string) {
	for _, match := range regexp.MustCompile(`<th scope="row" class="text"><a href="event[^"]*">([^<]*)</a>`).FindAllStringSubmatch(body, -1) {
		list = append(list, match[1])
	}
	return list
}

func TestAnIDLeadsToItsEventAndItsBeginningToAList(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(-time.Minute)
	s := newSite(t, []dashtest.Row{
		{ID: "a%1", Type: "T", Created: at}, {ID: "c/d", Type: "T", Created: at}, {ID: "a%12", Type: "T", Created: at, Status: outbox.StatusRetry, Attempts: 2, Error: "x"}, {ID: "a_1", Type: "T", Created: at}, {ID: `a\1<b>`, Type: "U", Created: at},
	})
	whole := s.send(http.MethodGet, "/shop/events?id="+escape("a%1"), nil)
	require.Equal(t, http.StatusFound, whole.StatusCode)
	require.Equal(t, "event?id=a%251", whole.Header.Get("Location"))
	require.Equal(t, "event?id=c%2Fd", s.send(http.MethodGet, "/shop/events?id=c/d", nil).Header.Get("Location"))
	for _, test := range []struct {
		query string
		want  []string
	}{
		{"id=" + escape("a%"), []string{"a%12", "a%1"}},
		{"id=" + escape("a%1") + "&status=WAITING", []string{"a%12", "a%1"}},
		{"id=" + escape("a%1") + "&status=RETRY", []string{"a%12"}},
		{"id=" + escape("a_"), []string{"a_1"}},
		{"id=" + escape(`a\`), []string{`a\1&lt;b&gt;`}},
		{"id=a&event_type=U", []string{`a\1&lt;b&gt;`}},
		{"id=+a_+", []string{"a_1"}},
	} {
		require.Equal(t, test.want, ids(s.get("/shop/events?"+test.query)), test.query)
	}
	require.Contains(t, s.get("/shop/events?id=none"), "There is no such event.")
	require.Contains(t, s.get("/shop/events?id="+escape(`"><script>`)), `value="&#34;&gt;&lt;script&gt;"`)
}

func TestPagesOfASearchKeepTheSearch(t *testing.T) {
	t.Parallel()
	var rows []dashtest.Row
	for i := range outbox.DefaultFindLimit + 5 {
		rows = append(rows, dashtest.Row{ID: fmt.Sprintf("a&%%%03d", i), Type: "T", Created: time.Now(), Status: outbox.StatusRetry, Error: "50% <b>&"})
		rows = append(rows, dashtest.Row{ID: fmt.Sprintf("b%03d", i), Type: "T", Created: time.Now(), Status: outbox.StatusRetry, Error: "50% <b>&"})
	}
	s := newSite(t, rows)
	first := s.get("/shop/events?id=" + escape("a&%") + "&error_text=" + escape("% <B>&") + "&status=RETRY")
	require.Len(t, ids(first), outbox.DefaultFindLimit)
	require.NotContains(t, first, "<b>")
	_, link, _ := strings.Cut(first, `<p><a href="`)
	link, _, _ = strings.Cut(link, `"`)
	second := s.get("/shop/" + strings.ReplaceAll(link, "&amp;", "&"))
	require.Len(t, ids(second), 5)
	require.Contains(t, second, `name="id" maxlength="36" value="a&amp;%"`)
	require.Contains(t, second, `name="error_text" maxlength="200" value="% &lt;B&gt;&amp;"`)
}

func TestAListShowsErrorsAndLeases(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(-time.Minute)
	s := newSite(t, []dashtest.Row{
		{ID: "failed", Type: "T", Created: at, Available: at.Add(time.Hour), Status: outbox.StatusRetry, Attempts: 3, Error: "refused <i>" + strings.Repeat("x", 400)},
		{ID: "leased", Type: "T", Created: at, Lease: "node-<1>/7", Leased: at},
		{ID: "plain", Type: "T", Created: at},
	})
	cell := func(body, label string) string {
		_, cell, _ := strings.Cut(body, `data-label="`+label+`">`)
		cell, _, _ = strings.Cut(cell, "</td>")
		return cell
	}
	failed := s.get("/shop/events?error_text=REFUSED")
	require.Equal(t, []string{"failed"}, ids(failed))
	require.Equal(t, "refused &lt;i&gt;"+strings.Repeat("x", 289), cell(failed, "Last error"))
	require.Equal(t, "3", cell(failed, "Failed attempts"))
	require.Regexp(t, `in \d+ min<`, cell(failed, "Due"))
	require.NotContains(t, failed, "Leased by")
	leased := s.get("/shop/events?status=LEASED")
	require.Equal(t, []string{"leased"}, ids(leased))
	require.Regexp(t, `^node-&lt;1&gt;/7, <time .*\d+ min ago</time>$`, cell(leased, "Leased by"))
	require.NotContains(t, leased, "Last error</th>")
	for _, body := range []string{s.get("/shop/events"), s.get("/shop/events?status=WAITING")} {
		require.Equal(t, 3, strings.Count(body, `data-label="Last error"`), "each row has the column")
		require.Equal(t, 3, strings.Count(body, `data-label="Leased by"`))
	}
}

func TestASearchNamesTheIndexThatWouldMakeItQuick(t *testing.T) {
	t.Parallel()
	rows := []dashtest.Row{}
	for i := range outbox.SearchLimit + 10 {
		rows = append(rows, dashtest.Row{ID: fmt.Sprintf("x%05d", i), Type: "T", Created: time.Now(), Ended: time.Now(), Status: outbox.StatusDone})
	}
	s := newSite(t, rows)
	body := s.get("/shop/events?aggregate_id=none")
	require.Contains(t, body, "Nothing among these 2\u202f000 rows; there are more to search.")
	require.Contains(t, body, `An index would find an aggregate id without reading other rows: <code>CREATE INDEX IF NOT EXISTS &#34;idx_outbox_event_search&#34;`)
	require.Contains(t, body, `the option <code>sqlstore.WithSearchIndex()</code>`)
	require.NotContains(t, s.get("/shop/events?tenant_id=none"), "An index")
	require.NotContains(t, s.get("/shop/events?aggregate_id=none&id=y"), "An index")
}

// A wrong time is asked for again, with the rest of the search; people write a time with a space.
func TestAWrongTimeKeepsTheForm(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	for path, text := range map[string]string{"/shop/events?since=yesterday&tenant_id=acme": "yesterday", "/shop/letters?until=soon&tenant_id=acme": "soon"} {
		page := s.get(path, http.StatusBadRequest)
		require.Contains(t, page, "is not a time; write it like 2006-01-02T15:04", path)
		require.Contains(t, page, `value="`+text+`"`, path)
		require.Contains(t, page, `name="tenant_id" maxlength="64" value="acme"`, path)
		require.NotContains(t, page, "There is no such", path)
	}
	for _, until := range []string{"2026-01-01 11:00", "2026-01-01 11:00:30"} {
		require.Contains(t, s.get("/shop/events?until="+escape(until)), "There is no such event.", until)
	}
}

func TestALongListLinksToTheNextPageAboveToo(t *testing.T) {
	t.Parallel()
	var rows []dashtest.Row
	for i := range 2*outbox.DefaultFindLimit + 20 {
		row := dashtest.Row{ID: fmt.Sprintf("x%03d", i), Type: "T", Created: time.Now()}
		if i >= outbox.DefaultFindLimit+10 {
			row.Status, row.Ended, row.Error = outbox.StatusDead, time.Now(), "x"
		}
		rows = append(rows, row)
	}
	s := newSite(t, rows)
	for _, path := range []string{"/shop/events?status=WAITING", "/shop/letters"} {
		page := s.get(path)
		require.Equal(t, 2, strings.Count(page, ">Next page</a>"), path)
		require.Less(t, strings.Index(page, ">Next page</a>"), strings.Index(page, "<table"), path)
	}
	require.Contains(t, s.get("/shop/events"), `<th scope="col">Ended / due</th>`)
}

func TestAnEventLinksToTheEventsOfItsAggregate(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newSite(t, []dashtest.Row{
		{ID: "a", Type: "Placed", Aggregate: "Order", AggregateID: "7&8", Created: now},
		{ID: "b", Type: "Paid", Aggregate: "Order", AggregateID: "7&8", Created: now},
		{ID: "c", Type: "Placed", Aggregate: "Cart", AggregateID: "7&8", Created: now},
		{ID: "d", Type: "Placed", Aggregate: "Order", Created: now},
	})
	require.Contains(t, s.get("/shop/event?id=a"), `<a href="events?aggregate_id=7%268&amp;aggregate_type=Order">all events of this aggregate</a>`)
	require.ElementsMatch(t, []string{"a", "b"}, ids(s.get("/shop/events?aggregate_id=7%268&aggregate_type=Order")))
	require.NotContains(t, s.get("/shop/event?id=d"), "all events of this aggregate")
}
