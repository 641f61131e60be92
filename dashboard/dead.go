package dashboard

import (
	"context"
	"net/http"
	"net/url"

	"github.com/outboxkit/outbox-go/outbox"
)

// lettersOfPage is how many dead letters a page lists.
const lettersOfPage = 50

// dead shows the groups of dead letters.
func (p *page) dead() error {
	if _, err := p.query(); err != nil {
		return err
	}
	ctx, cancel := p.context()
	defer cancel()
	groups, more, err := p.outbox.DeadLetters().Groups(ctx, outbox.DeadFilter{})
	if err != nil {
		return err
	}
	return p.show(http.StatusOK, "dead.html", "Dead letters", struct {
		Groups []outbox.DeadGroup
		More   bool
		Limit  int
		Recent []shownAction
	}{groups, more, outbox.GroupLimit, p.dashboard.actions.of(p.Name)})
}

// letters lists dead letters: the matches of a search, latest first, or the letters of a group,
// earliest first.
func (p *page) letters() error {
	in, err := p.query(append([]string{"after"}, filterFields...)...)
	if err != nil {
		return err
	}
	in = in.trimmed()
	ctx, cancel := p.context()
	defer cancel()
	find := p.searchLetters
	if in.get("group") != "" {
		find = p.lettersOfGroup
	}
	found, err := find(ctx, in)
	if err != nil {
		return err
	}
	if found.next != "" {
		next := in.given("after")
		next.Set("after", found.next)
		found.Next = "letters?" + next.Encode()
	}
	found.Form, found.Filter = url.Values(in), in.given("after")
	return p.show(http.StatusOK, "letters.html", "Dead letters", found)
}

// letters is a page of dead letters.
type letters struct {
	Form, Filter url.Values // Filter is Form without the place of the page and empty fields
	Letters      []outbox.EventRow
	Next         string // the address
	next         string // the place
	// Partly says that the page has all the matches among Looked dead letters.
	Partly bool
	Looked int
}

func (p *page) searchLetters(ctx context.Context, in input) (letters, error) {
	query, err := in.events()
	if err != nil {
		return letters{}, err
	}
	query.Statuses, query.Limit = []outbox.Status{outbox.StatusDead}, lettersOfPage
	found, err := p.outbox.FindEvents(ctx, query)
	return letters{
		Letters: found.Rows, next: found.Next, Partly: found.Next != "" && len(found.Rows) < lettersOfPage, Looked: outbox.SearchLimit,
	}, err
}

func (p *page) lettersOfGroup(ctx context.Context, in input) (found letters, err error) {
	filter, err := in.filter()
	if err != nil {
		return found, err
	}
	page, err := p.outbox.DeadLetters().Find(ctx, outbox.DeadQuery{DeadFilter: filter, After: in.get("after"), Limit: lettersOfPage})
	if err != nil {
		return found, err
	}
	found.next, found.Partly, found.Looked = page.Next, page.Next != "" && len(page.Rows) < lettersOfPage, outbox.GroupLimit
	for i := range page.Rows {
		l := &page.Rows[i]
		found.Letters = append(found.Letters, outbox.EventRow{Envelope: l.Envelope, LastError: l.LastError, EndedAt: l.DiedAt, Listener: l.Listener})
	}
	return found, nil
}
