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
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

func TestGroupsAreFilteredAndSorted(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	const warehouse, mail = "warehouse refused order", "mail server"
	for query, first := range map[string]string{"": warehouse, "?sort=latest": mail, "?sort=oldest": warehouse, "?sort=kind": mail} {
		body := s.get("/shop/dead" + query)
		require.Equal(t, first == warehouse, strings.Index(body, warehouse) < strings.Index(body, mail), query)
	}
	for _, filter := range []string{"text=MAIL+server", "kind=orderpaid", "kind=Order+/+OrderPaid&text=mail&sort=kind"} {
		body := s.get("/shop/dead?" + filter)
		require.Contains(t, body, mail, filter)
		require.NotContains(t, body, warehouse, filter)
		require.Contains(t, body, `<p>1 of 2 groups. <a href="dead">Show all groups</a></p>`)
	}
	for _, filter := range []string{"text=orderpaid", "kind=mail", "kind=OrderPlaced&text=mail"} {
		require.Contains(t, s.get("/shop/dead?"+filter), "No group has this in its kind and its reason.", filter)
	}
	body := s.get("/shop/dead?kind=order&sort=latest")
	require.Contains(t, body, `<a href="dead?kind=order&amp;sort=oldest">first died</a>`, "the order keeps the filter")
	require.Contains(t, body, `<a href="dead?kind=order&amp;sort=latest" aria-current="true">last died</a>`)
	require.Contains(t, body, `<input type="hidden" name="sort" value="latest">`, "the filter keeps the order")
	require.Contains(t, body, `<th scope="col" aria-sort="descending">Last died</th>`)
	require.Contains(t, s.get("/shop/dead?sort=size", 400), "&#34;sort&#34; must be latest")
}

func TestAPageHasAHundredGroups(t *testing.T) {
	t.Parallel()
	rows := []dashtest.Row{}
	for i := range 250 {
		rows = append(rows, dashtest.Row{ID: fmt.Sprint("x", i), Type: fmt.Sprintf("T%03d", i), Created: time.Now(), Ended: time.Now(), Status: outbox.StatusDead, Error: "x"})
	}
	s := newSite(t, rows)
	shown := func(body string) int { return strings.Count(body, `<th scope="row"`) }
	first := s.get("/shop/dead?sort=kind&text=x")
	require.Equal(t, 100, shown(first))
	require.Equal(t, 100, strings.Count(first, "<option"), "the filter offers as many kinds")
	require.Contains(t, first, `Groups 1 to 100 of 250. <a href="dead?from=100&amp;sort=kind&amp;text=x" rel="next">Next page</a>`)
	last := s.get("/shop/dead?from=200&sort=kind&text=x")
	require.Equal(t, 50, shown(last))
	require.Contains(t, last, `Groups 201 to 250 of 250. <a href="dead?sort=kind&amp;text=x">First page</a>`)
	require.Contains(t, last, "T249")
	require.NotContains(t, last, "T199</td>")
	require.Contains(t, s.get("/shop/dead?from=900"), "Groups 201 to 250 of 250.", "the list has become shorter")
	require.Contains(t, s.get("/shop/dead?from=-1", 400), "is not a number")
}

func TestAGroupHasAnExampleOneButtonAndAMenu(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	body := s.get("/shop/dead")
	require.Contains(t, body, `<a href="event?id=refused-2">refused-2</a>`)
	require.Regexp(t, `title="20[^"]* UTC">30 min ago</time>`, body)
	outside := regexp.MustCompile(`(?s)<details.*?</details>`).ReplaceAllString(body, "")
	require.Equal(t, 2, strings.Count(outside, "Replay …"))
	require.NotContains(t, outside, "Delete …")
	require.NotContains(t, outside, "Pause this kind …")
}

func TestTheQuestionBeforeADeletionShowsWhatIsDeleted(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	form := with(s.form(s.get("/shop/dead"), "Delete the group warehouse"), "action", "delete")
	asked := s.send(http.MethodPost, "/shop/confirm", form).body
	for _, want := range []string{
		"<dd>Order / OrderPlaced</dd>", "<dd>warehouse refused order #: no such item</dd>", "30 min ago",
		`<a href="event?id=refused-0">refused-0</a>`, "warehouse refused order 1001: no such item", "refused-2", "Yes, delete 3",
	} {
		require.Contains(t, asked, want)
	}
	require.NotContains(t, asked, `name="typed"`, "a few letters need no number")
	form.Set("action", "replay")
	require.Contains(t, s.send(http.MethodPost, "/shop/confirm", form).body, "refused-0")
}

func TestALargeDeletionAsksForItsNumber(t *testing.T) {
	t.Parallel()
	rows := []dashtest.Row{}
	for i := range 100 {
		rows = append(rows, dashtest.Row{ID: fmt.Sprint("x", i), Type: "T", Created: time.Now(), Ended: time.Now(), Status: outbox.StatusDead, Error: "x"})
	}
	s := newSite(t, rows)
	asked := s.send(http.MethodPost, "/shop/confirm", with(s.form(s.get("/shop/dead"), "Delete the group"), "action", "delete")).body
	require.Contains(t, asked, "Type 100 to delete them")
	form := with(s.form(asked, "Yes, delete"), "action", "delete")
	form["action"] = form["action"][:1]
	for _, typed := range []string{"", "10", "1000", "all"} {
		refused := s.send(http.MethodPost, "/shop/act", with(form, "typed", typed))
		require.Equal(t, 400, refused.StatusCode, typed)
		require.Contains(t, refused.body, "must be 100, the number of events to delete; nothing was deleted")
		require.Contains(t, refused.body, "Yes, delete", "the question is asked again")
	}
	require.Equal(t, 100, s.dead())
	require.Contains(t, s.done(with(form, "typed", " 1\u202f00 ")), "Deleted 100 dead letters.")
	require.Zero(t, s.dead())
}

func TestATileLinksToTheEventsThatItCounts(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	overview := s.get("/shop/")
	require.Contains(t, overview, `<a href="events?status=DUE">Due</a></dt><dd data-text="due">1</dd>`)
	require.Contains(t, overview, `<a href="events?status=DELAYED">Delayed</a></dt><dd data-text="delayed">2</dd>`)
	due, delayed := s.get("/shop/events?status=DUE"), s.get("/shop/events?status=DELAYED")
	require.Equal(t, 1, strings.Count(due, `<th scope="row"`))
	require.Contains(t, due, "event?id=waiting")
	require.Equal(t, 2, strings.Count(delayed, `<th scope="row"`))
	require.Contains(t, delayed, `<span class="status retry">RETRY</span>`)
	future := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	require.Equal(t, 1, strings.Count(s.get("/shop/events?status=DELAYED&since="+future), `<th scope="row"`), "a later bound is kept")
}

func TestAnEventSaysWhyItWasNotDelivered(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	require.Contains(t, s.get("/shop/event?id=refused-0"), `<dt>Dead because</dt><dd class="bad">warehouse refused order 1000: no such item</dd>`)
	require.Contains(t, s.get("/shop/event?id=retried"), `<dt>Waits because</dt><dd class="why">3 attempts failed`)
	require.NotContains(t, s.get("/shop/event?id=done-10"), " because</dt>")
}

func TestAPageBelowAListHasBreadcrumbs(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	require.Contains(t, s.get("/shop/event?id=waiting"), `<li><a href="./">Overview</a></li><li><a href="events">Events</a></li><li aria-current="page">Event</li>`)
	require.Contains(t, s.get("/shop/letters"), `<li><a href="dead">Dead letters</a></li><li aria-current="page">All dead letters</li>`)
	require.NotContains(t, s.get("/shop/events"), "Breadcrumbs")
}

func TestAnEventLinksToTheEventOfItsKeyThatComesFirst(t *testing.T) {
	t.Parallel()
	rows := dashtest.Shop(time.Now())
	rows = append(rows, dashtest.Row{ID: "behind", Type: "OrderPaid", Aggregate: "Order", AggregateID: "1007", Created: time.Now().Add(-time.Minute)})
	s := newSite(t, rows)
	require.NoError(t, sqlstore.SQLite().Announce(t.Context(), s.db.DB, outbox.Node{Owner: "shop", Mode: "ordered-by-key", LastPoll: time.Now()}, time.Hour))
	require.Contains(t, s.get("/shop/event?id=behind"), `<dd class="why">event <a href="event?id=retried">retried</a> of its aggregate comes first (3 attempts failed`)
}

func TestTheLettersOfAGroupSayWhichGroup(t *testing.T) {
	t.Parallel()
	s := newSite(t, dashtest.Shop(time.Now()))
	link := regexp.MustCompile(`letters\?group=[a-z0-9]+`).FindString(s.get("/shop/dead"))
	require.Contains(t, s.get("/shop/"+link), `: <strong>warehouse refused order #: no such item</strong>. Listed by the time of death, the earliest first.`)
}
