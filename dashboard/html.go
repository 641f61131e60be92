package dashboard

import (
	"fmt"
	"html"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// HTML is written by [tags], and not by html/template. With a template, the linker keeps all exported
// methods of a program's types: 2 to 3 MB of a small service.

// literal is HTML in the source of this package: a constant becomes a literal without a conversion,
// and nothing else does. A test refuses conversions in other files.
type literal string

// markup is HTML that [tags] wrote.
type markup string

// address is a relative address: a constant, or a result of [link].
type address string

// tags writes HTML. Each {} in the text takes the next value, escaped, unless the value is markup.
func tags(text literal, values ...any) markup {
	var b strings.Builder
	end := 0 // of the text that is written
	for i, part := range strings.Split(string(text), "{}") {
		if i > 0 {
			b.WriteString(escaped(string(text[:end]), values[i-1]))
			end += len("{}")
		}
		b.WriteString(part)
		end += len(part)
	}
	return markup(b.String())
}

// escaped returns a value for its place, which is behind this text. Markup is text between tags, or
// whole attributes; any other value in a tag must be in quotes. An href and a src take an address.
func escaped(before string, value any) string {
	written, isMarkup := value.(markup)
	_, isAddress := value.(address)
	tag := before[max(strings.LastIndexAny(before, "<>"), 0):]
	inTag := strings.HasPrefix(tag, "<")
	quoted := inTag && strings.Count(tag, `"`)%2 == 1
	switch {
	case isMarkup && !quoted:
		return string(written)
	case inTag && !quoted:
		return ""
	case !isAddress && (strings.HasSuffix(tag, `href="`) || strings.HasSuffix(tag, `src="`)):
		return "#"
	default:
		return html.EscapeString(fmt.Sprint(value))
	}
}

// when writes HTML if a condition holds.
func when(holds bool, text literal, values ...any) markup {
	if !holds {
		return ""
	}
	return tags(text, values...)
}

// each writes HTML for each element of a list.
func each[T any](list []T, write func(T) markup) markup {
	var b strings.Builder
	for _, element := range list {
		b.WriteString(string(write(element)))
	}
	return markup(b.String())
}

// choose returns one of two texts.
func choose(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

// link returns a relative address with a query of names and values. Empty values are left out.
func link(page literal, pairs ...string) address {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			query.Set(pairs[i], pairs[i+1])
		}
	}
	return linkTo(page, query)
}

func linkTo(page literal, query url.Values) address {
	if len(query) == 0 {
		return address(page)
	}
	return address(page) + "?" + address(query.Encode())
}

// hidden writes the fields of a form that the user does not see, in the order of their names.
func hidden(fields url.Values) markup {
	return each(slices.Sorted(maps.Keys(fields)), func(name string) markup {
		return each(fields[name], func(value string) markup {
			return tags(`<input type="hidden" name="{}" value="{}">`, name, value)
		})
	})
}

// token writes the token of a form of this scope.
func (p *page) token(scope string) markup { return hidden(url.Values{"token": {p.Token(scope)}}) }

// stateText writes the state of an event, and whether it waits for a pause, which is zero if not. Only a
// state that needs a hand has a color.
func stateText(row *outbox.EventRow, pause outbox.Pause) markup {
	class := map[outbox.Status]string{outbox.StatusRetry: " retry", outbox.StatusDead: " dead"}[row.Status]
	return tags(`<span class="status{}">{}{}</span>`, class, row.State(), when(!pause.Since.IsZero(), `, paused`))
}

// kindText is a kind as a text, with its listener.
func kindText(k outbox.EventKind) string {
	text := string(k.EventType)
	if k.AggregateType != outbox.Global {
		text = string(k.AggregateType) + " / " + text
	}
	if k.Listener != "" {
		text += " → " + k.Listener
	}
	return text
}

func rowKind(row *outbox.EventRow) string {
	return kindText(outbox.EventKind{AggregateType: row.AggregateType, EventType: row.EventType, Listener: row.Listener})
}

// cut returns the beginning of a text.
func cut(text string, characters int) string { return fmt.Sprintf("%.*s", characters, text) }
