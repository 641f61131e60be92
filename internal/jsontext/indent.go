// Package jsontext indents JSON for people, within a bound. Each level of nesting makes
// every line below it longer: [encoding/json.Indent] makes 4 GB of a text of 1 MB with 4,000
// levels.
package jsontext

import (
	"bytes"
	"unicode/utf8"
)

// Indent is a JSON text with each value in a separate line, two spaces for each level, as
// [encoding/json.Indent] writes it. Indent stops at limit bytes; whole is then false. Indent does
// not check the text: a text that is not JSON comes back with more white space, and no longer than
// limit.
func Indent(text []byte, limit int) (shown []byte, whole bool) {
	out := make([]byte, 0, min(limit, 2*len(text)+64))
	depth := 0
	line := func() {
		out = append(out, '\n')
		out = append(out, bytes.Repeat([]byte("  "), min(depth, (limit-len(out))/2+1))...)
	}
	for i := 0; i < len(text); i++ {
		if len(out) > limit {
			return cut(out, limit), false
		}
		switch c := text[i]; c {
		case '"':
			end := stringEnd(text, i)
			out = append(out, text[i:end]...)
			i = end - 1
		case ' ', '\t', '\r', '\n':
		case '{', '[':
			out = append(out, c)
			if next := skipSpace(text, i+1); next < len(text) && text[next] == c+2 { // in ASCII, a closing bracket is two behind the opening bracket
				out = append(out, c+2)
				i = next
				continue
			}
			depth++
			line()
		case '}', ']':
			depth = max(depth-1, 0)
			line()
			out = append(out, c)
		case ',':
			out = append(out, c)
			line()
		case ':':
			out = append(out, ':', ' ')
		default:
			out = append(out, c)
		}
	}
	if len(out) > limit {
		return cut(out, limit), false
	}
	return out, true
}

// stringEnd is the place behind the string that begins at i.
func stringEnd(text []byte, i int) int {
	for j := i + 1; j < len(text); j++ {
		switch text[j] {
		case '\\':
			j++
		case '"':
			return j + 1
		}
	}
	return len(text)
}

func skipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\t' || text[i] == '\r' || text[i] == '\n') {
		i++
	}
	return i
}

// cut shortens a text to limit bytes, and does not divide a character.
func cut(text []byte, limit int) []byte {
	text = text[:limit]
	for i := 1; i <= utf8.UTFMax && i <= len(text); i++ {
		if b := text[len(text)-i:]; utf8.RuneStart(b[0]) {
			if !utf8.FullRune(b) {
				text = text[:len(text)-i]
			}
			break
		}
	}
	return text
}
