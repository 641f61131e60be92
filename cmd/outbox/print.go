package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/outboxkit/outbox-go/internal/jsontext"
)

// maxCell is the longest text in a table, in characters.
const maxCell = 60

// maxColumn is the widest column of a table except the last column, in characters. The column has
// room for each text that the library writes.
const maxColumn = 256

// print writes an answer: as JSON, or as the text that the function text makes.
func (a *app) print(answer any, text func(t *table)) error {
	if a.json {
		return a.printJSON(answer, true)
	}
	t := &table{w: tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)}
	text(t)
	return t.w.Flush()
}

// maxPretty is the longest JSON that is indented, in bytes. Indentation would make a deeply nested
// payload thousands of times longer.
const maxPretty = 16 << 20

// printJSON writes JSON, on a single line unless pretty is set.
func (a *app) printJSON(answer any, pretty bool) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(answer); err != nil {
		return err
	}
	text := b.Bytes()
	if pretty {
		if indented, whole := jsontext.Indent(text, maxPretty); whole {
			text = append(indented, '\n')
		}
	}
	_, err := a.out.Write(printableJSON(text))
	return err
}

// table aligns columns of text.
type table struct{ w *tabwriter.Writer }

// row writes a line. Texts that come from the database are made printable. A cell makes the other
// cells of the column as wide as itself, so only the last cell may be long.
func (t *table) row(cells ...any) {
	for i, cell := range cells {
		text := printable(cellText(cell))
		if i > 0 {
			_, _ = io.WriteString(t.w, "\t")
		}
		if i < len(cells)-1 {
			text = cut(text, maxColumn)
		}
		_, _ = io.WriteString(t.w, text)
	}
	_, _ = io.WriteString(t.w, "\n")
}

// field writes a line of a description, unless the value is empty.
func (t *table) field(name string, value any) {
	if text := cellText(value); text != "-" {
		_, _ = fmt.Fprintf(t.w, "%s:\t%s\n", cut(name, maxColumn), printable(text))
	}
}

// cellText returns a value as a table shows it.
func cellText(v any) string {
	switch v := v.(type) {
	case time.Time:
		if v.IsZero() {
			return "-"
		}
		return v.UTC().Format(time.RFC3339)
	case time.Duration:
		return v.Round(max(time.Millisecond, v.Truncate(time.Second)/1000)).String()
	case bool:
		if v {
			return "yes"
		}
		return "no"
	default:
		if text := fmt.Sprint(v); text != "" {
			return text
		}
		return "-"
	}
}

// short cuts a text to the width of a cell.
func short(text string) string { return cut(text, maxCell) }

// cut shortens a text to limit characters.
func cut(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	runes := []rune(text)
	return string(runes[:limit-1]) + "…"
}

// printable escapes characters that could steer a terminal, or change how a line reads: control
// characters, including the characters that begin an escape sequence, and marks of direction.
func printable(text string) string {
	if strings.IndexFunc(text, isHidden) < 0 && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			_, _ = fmt.Fprintf(&b, `\x%02x`, text[0])
		case isHidden(r):
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
		text = text[size:]
	}
	return b.String()
}

func isHidden(r rune) bool { return !unicode.IsPrint(r) }

// printableLines is printable for a text of several lines.
func printableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = printable(line)
	}
	return strings.Join(lines, "\n")
}

// printableJSON escapes characters that JSON leaves as they are, and that a terminal could take for
// an instruction.
func printableJSON(text []byte) []byte {
	hidden := func(r rune) bool { return r != '\n' && isHidden(r) }
	if bytes.IndexFunc(text, hidden) < 0 {
		return text
	}
	b := make([]byte, 0, len(text)+64)
	for _, r := range string(text) {
		if !hidden(r) {
			b = utf8.AppendRune(b, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			b = fmt.Appendf(b, `\u%04x`, unit)
		}
	}
	return b
}
