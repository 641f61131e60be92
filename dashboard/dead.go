package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

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
	found, err := p.outbox.DeadLetters().Groups(ctx, outbox.DeadFilter{})
	if err != nil {
		return err
	}
	return p.show(http.StatusOK, "dead.html", "Dead letters", struct {
		outbox.DeadGroups
		Limit  int
		Recent []shownAction
	}{found, outbox.GroupLimit, p.dashboard.actions.of(p.Name)})
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
		Letters: found.Events, next: found.Next, Partly: found.Next != "" && len(found.Events) < lettersOfPage, Looked: outbox.SearchLimit,
	}, err
}

func (p *page) lettersOfGroup(ctx context.Context, in input) (found letters, err error) {
	filter, err := in.filter()
	if err != nil {
		return found, err
	}
	after, err := in.place()
	if err != nil {
		return found, err
	}
	list, next, err := p.outbox.DeadLetters().QueryAfter(ctx, filter, after, lettersOfPage)
	if err != nil {
		return found, err
	}
	if next.EventID != "" {
		found.Looked, found.Partly, found.next = outbox.GroupLimit, len(list) < lettersOfPage, placeOf(&next)
	}
	for i := range list {
		found.Letters = append(found.Letters, outbox.EventRow{
			Envelope: list[i].Envelope, LastError: list[i].LastError, EndedAt: list[i].DiedAt, Listener: list[i].Listener,
		})
	}
	return found, nil
}

// placeOf returns the place behind a letter, for the field after.
func placeOf(letter *outbox.DeadLetter) string {
	return letter.DiedAt.UTC().Format(time.RFC3339Nano) + "," + letter.EventID
}

func (in input) place() (outbox.DeadLetter, error) {
	text := in.get("after")
	if text == "" {
		return outbox.DeadLetter{}, nil
	}
	died, id, _ := strings.Cut(text, ",")
	at, err := time.Parse(time.RFC3339Nano, died)
	if err != nil || id == "" || at.UTC().Year() < 1000 || at.UTC().Year() > 9999 {
		return outbox.DeadLetter{}, &inputError{"after", "is not the place of a page; start from the first page"}
	}
	return outbox.DeadLetter{Envelope: outbox.Envelope{EventID: id}, DiedAt: at.UTC()}, nil
}
