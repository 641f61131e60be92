package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/outboxkit/outbox-go/outbox"
)

const (
	// largeDeletion is how many dead letters a deletion has at least when the user types their number.
	largeDeletion = 100
	// shownExamples is how many dead letters the question before a change shows.
	shownExamples = 3
)

// facts describe dead letters, or deleted dead letters, in the question before a change.
type facts struct {
	// Examples are the letters that died first, or some letters if Some is set.
	Examples []outbox.DeadLetter
	Some     bool
	Alike    bool // all letters have the same kind and reason
}

// facts finds the letters that died first among the letters of a change.
func (p *page) facts(ctx context.Context, f *outbox.DeadFilter) (facts, error) {
	found, err := p.outbox.DeadLetters().Find(ctx, outbox.DeadQuery{DeadFilter: *f, Limit: shownExamples})
	return facts{Examples: found.Rows, Alike: f.Group != ""}, err
}

// deletedFacts finds letters of a deletion. Among very many letters it does not know which died first.
func (p *page) deletedFacts(ctx context.Context, deletionID string) (f facts, err error) {
	query := outbox.EventQuery{Limit: outbox.MaxFindLimit}
	query.Statuses, query.DeletionID = []outbox.Status{outbox.StatusDone}, deletionID
	found, err := p.outbox.FindEvents(ctx, query)
	f.Some, f.Alike = found.Next != "", found.Next == ""
	for i := range found.Rows {
		row := &found.Rows[i]
		f.Examples = append(f.Examples, outbox.DeadLetter{Envelope: row.Envelope, LastError: row.LastError, DiedAt: row.DiedAt, Listener: row.Listener})
		first, last := &f.Examples[0], &f.Examples[i]
		f.Alike = f.Alike && letterKind(first) == letterKind(last) && outbox.ReasonOf(first.LastError) == outbox.ReasonOf(last.LastError)
	}
	slices.SortStableFunc(f.Examples, func(a, b outbox.DeadLetter) int { return a.DiedAt.Compare(b.DiedAt) })
	f.Examples = f.Examples[:min(len(f.Examples), shownExamples)]
	return f, err
}

// list writes kind and reason if all letters have the same, when the oldest letter died, and some letters.
func (f *facts) list() markup {
	if len(f.Examples) == 0 {
		return ""
	}
	first := &f.Examples[0]
	return tags(`<dl class="facts">
{}{}</dl>
<p>{}</p>
<ul class="examples">{}</ul>
`,
		when(f.Alike, `<dt>Kind</dt><dd>{}</dd>
<dt>Reason</dt><dd>{}</dd>
`, letterKind(first), cmp.Or(outbox.ReasonOf(first.LastError), "(no reason)")),
		when(!f.Some, `<dt>Oldest</dt><dd>died {}</dd>
`, moment(first.DiedAt)), choose(f.Some, "Some of the letters:", "The first that died:"),
		each(f.Examples, func(l outbox.DeadLetter) markup {
			return tags(`<li class="text"><a href="{}">{}</a> {}, died {}: {}</li>
`, link("event", "id", l.EventID), l.EventID, letterKind(&l), moment(l.DiedAt), cut(cmp.Or(l.LastError, "(no reason)"), 200))
		}))
}

// byKey reports whether a process of the outbox delivers in the order of keys.
func (s *sample) byKey() bool {
	return s != nil && slices.ContainsFunc(s.Nodes, func(n outbox.Node) bool { return n.Mode == "ordered-by-key" })
}

// A deletion lets keys go on. Processes do not report whether they skip dead letters.
var (
	deletedByKey = tags(`<p class="note">A process delivers in the order of keys. The events behind these letters in their keys are delivered at once after the deletion, unless OnDead is SkipDead and they were delivered already. An undo does not take back events that were delivered.</p>
`)
	undoneByKey = tags(`<p class="note">A process delivers in the order of keys. Since the deletion, these letters do not hold back the events behind them in their keys. An undo does not take back events that were delivered.</p>
`)
)

func letterKind(l *outbox.DeadLetter) string {
	return kindText(outbox.EventKind{AggregateType: l.AggregateType, EventType: l.EventType, Listener: l.Listener})
}

// typeNumber asks for the number of a large deletion.
func (c *confirmation) typeNumber() markup {
	return when(c.Action == "delete" && c.Count >= largeDeletion, `<input type="hidden" name="number" value="{}">
<label>Type {} to delete them <input name="typed" maxlength="20" inputmode="numeric" autocomplete="off" required></label>`, c.Count, c.Count)
}

// typed refuses a deletion whose number was asked for and typed wrongly.
func (in input) typed() error {
	digits := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || r == ',' || r == '.' {
			return -1
		}
		return r
	}, in.get("typed"))
	switch number := in.get("number"); {
	case number == "" && digits != "":
		return &inputError{"typed", "does not belong to this action; leave it out"}
	case digits != number:
		return &inputError{"typed", fmt.Sprintf("must be %s, the number of events to delete; nothing was deleted", number)}
	}
	return nil
}
