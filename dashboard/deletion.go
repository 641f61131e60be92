package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"unicode"

	"github.com/outboxkit/outbox-go/outbox"
)

const (
	// largeDeletion is how many dead letters a deletion has at least when the user types their number.
	largeDeletion = 100
	// examplesOfDeletion is how many dead letters the question before a deletion shows.
	examplesOfDeletion = 3
)

// examples finds the dead letters that died first among the letters of a change.
func (p *page) examples(ctx context.Context, f *outbox.DeadFilter) ([]outbox.DeadLetter, error) {
	found, err := p.outbox.DeadLetters().Find(ctx, outbox.DeadQuery{DeadFilter: *f, Limit: examplesOfDeletion})
	return found.Rows, err
}

// deletionFacts describe the letters of a deletion: kind and reason of a group, when the oldest letter
// died, and some letters.
func deletionFacts(c *confirmation) markup {
	if len(c.Examples) == 0 {
		return ""
	}
	first := &c.Examples[0]
	return tags(`<dl class="facts">
{}<dt>Oldest</dt><dd>died {}</dd>
</dl>
<p>The first that died:</p>
<ul class="examples">{}</ul>
`,
		when(c.filter.Group != "", `<dt>Kind</dt><dd>{}</dd>
<dt>Reason</dt><dd>{}</dd>
`, letterKind(first), cmp.Or(outbox.ReasonOf(first.LastError), "(no reason)")),
		moment(first.DiedAt),
		each(c.Examples, func(l outbox.DeadLetter) markup {
			return tags(`<li class="text"><a href="{}">{}</a> {}, died {}: {}</li>
`, link("event", "id", l.EventID), l.EventID, letterKind(&l), moment(l.DiedAt), cut(cmp.Or(l.LastError, "(no reason)"), 200))
		}))
}

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
		return &inputError{"typed", fmt.Sprintf("must be %s, the number of events to delete; nothing was deleted. Go back, and type it", number)}
	}
	return nil
}
