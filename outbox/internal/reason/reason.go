// Package reason finds the part that error texts have in common.
package reason

import "strings"

// maxBytes is the most bytes of a reason.
const maxBytes = 300

// placeholder stands for a part in which errors differ.
const placeholder = '#'

// Of is the reason of an error's text: see ReasonOf of package outbox.
func Of(text string) string {
	r := scanner{in: strings.ToValidUTF8(text, "\uFFFD"), out: make([]byte, 0, min(len(text), maxBytes)+8)}
	for r.at < len(r.in) && len(r.out) <= maxBytes {
		r.next()
	}
	out := string(r.out)
	if len(out) > maxBytes {
		out = strings.ToValidUTF8(out[:maxBytes], "")
	}
	return strings.TrimSuffix(out, " ")
}

// scanner goes through a text once.
type scanner struct {
	in  string
	at  int
	out []byte
	// unclosed are the quotes that do not occur again.
	unclosed [256]bool
	// noAddress ends a run of hexadecimal digits and colons that is no address.
	noAddress int
}

// next handles the part of the text that begins at the current place.
func (r *scanner) next() {
	c := r.in[r.at]
	begins := len(r.out) == 0 || !isPartOfWord(r.out[len(r.out)-1])
	switch {
	case c == placeholder:
		r.replace(1)
	case isSpace(c):
		if r.at++; len(r.out) > 0 && r.out[len(r.out)-1] != ' ' {
			r.out = append(r.out, ' ')
		}
	case begins && (c == '"' || c == '\'' || c == '`'):
		r.quoted(c)
	case begins && r.code() > 0:
		r.keep(r.code())
	case begins && r.address() > 0:
		r.replace(r.address())
	case begins && duration(r.in[r.at:]) > 0:
		r.replace(duration(r.in[r.at:]))
	case isAlnum(c):
		r.word()
	default:
		r.keep(1)
	}
}

func (r *scanner) keep(n int) {
	r.out = append(r.out, r.in[r.at:r.at+n]...)
	r.at += n
}

// replace writes a placeholder for the next n bytes. A placeholder that follows another
// placeholder, with at most a separator between them, merges with it, as for the parts of a date.
func (r *scanner) replace(n int) {
	r.at += n
	last := len(r.out) - 1
	switch {
	case last >= 0 && r.out[last] == placeholder:
	case last >= 1 && r.out[last-1] == placeholder && strings.IndexByte(".:-/,+_", r.out[last]) >= 0:
		r.out = r.out[:last]
	default:
		r.out = append(r.out, placeholder)
	}
}

// quoted replaces the text between quotes.
func (r *scanner) quoted(quote byte) {
	end := -1
	if !r.unclosed[quote] {
		end = strings.IndexByte(r.in[r.at+1:], quote)
	}
	if end < 0 {
		r.unclosed[quote] = true
		r.keep(1)
		return
	}
	r.out = append(r.out, quote, placeholder, quote)
	r.at += end + 2
}

// address is the length of a UUID, or of an IPv6 address or a time, that begins here; zero
// for anything else.
func (r *scanner) address() int {
	rest := r.in[r.at:]
	if isUUID(rest) {
		return 36
	}
	if r.at < r.noAddress || rest[0] == ':' && !strings.HasPrefix(rest, "::") || rest[0] == '.' {
		return 0
	}
	n, colons, digits := 0, 0, 0
	for ; n < len(rest) && (isHex(rest[n]) || rest[n] == ':' || rest[n] == '.'); n++ {
		if rest[n] == ':' {
			colons++
		} else if isDigit(rest[n]) {
			digits++
		}
	}
	if colons < 2 || digits == 0 || n < len(rest) && isPartOfWord(rest[n]) {
		r.noAddress = r.at + n
		return 0
	}
	for n > 0 && (rest[n-1] == ':' || rest[n-1] == '.') && rest[n-1] != rest[max(n-2, 0)] {
		n-- // the text goes on behind a colon
	}
	return n
}

// word replaces a word that is an id, and otherwise the digits of the word.
func (r *scanner) word() {
	rest := r.in[r.at:]
	n, runs, hex := 0, 0, true
	for ; n < len(rest) && isAlnum(rest[n]); n++ {
		if isDigit(rest[n]) && (n == 0 || !isDigit(rest[n-1])) {
			runs++
		}
		hex = hex && isHex(rest[n])
	}
	switch {
	case runs == 0:
		r.keep(n)
	case runs > 1 || n >= 8 || hex && n >= 4:
		r.replace(n)
	default:
		for end := r.at + n; r.at < end; {
			if isDigit(r.in[r.at]) {
				r.replace(1)
			} else {
				r.keep(1)
			}
		}
	}
}

// code is the length of a code of an error that begins here; zero for anything else.
func (r *scanner) code() int {
	rest := r.in[r.at:]
	n, digits := 0, 0
	for ; n < len(rest) && isAlnum(rest[n]); n++ {
		if isDigit(rest[n]) {
			digits++
		}
	}
	if digits == 0 || n > 5 || n < len(rest) && isPartOfWord(rest[n]) {
		return 0
	}
	if n+1 < len(rest) && strings.IndexByte(".:-/,+_", rest[n]) >= 0 && isAlnum(rest[n+1]) {
		return 0 // a part of something else, such as an address
	}
	before := r.wordBefore()
	switch {
	case n == 5 && before == "sqlstate":
	case n == 4 && digits == 4 && before == "error":
	case n == 3 && digits == 3 && rest[0] >= '1' && rest[0] <= '5' &&
		(before == "http" || strings.HasSuffix(before, "status") || strings.HasSuffix(before, "code")):
	default:
		return 0
	}
	return n
}

// wordBefore is the word that ends before the current place, in lower case.
func (r *scanner) wordBefore() string {
	end := len(r.out)
	for end > 0 && strings.IndexByte(" :=([", r.out[end-1]) >= 0 {
		end--
	}
	begin := end
	for begin > 0 && isAlnum(r.out[begin-1]) {
		begin--
	}
	return strings.ToLower(string(r.out[begin:end]))
}

// duration is the length of a duration, as package time prints it, that a text begins with;
// zero for anything else.
func duration(s string) int {
	n := 0
	for n < len(s) && isDigit(s[n]) {
		digits := n
		for n < len(s) && (isDigit(s[n]) || s[n] == '.' && n > digits) {
			n++
		}
		unit := n
		for _, u := range []string{"ns", "us", "µs", "μs", "ms", "s", "m", "h"} {
			if strings.HasPrefix(s[n:], u) {
				n += len(u)
				break
			}
		}
		if n == unit {
			return 0
		}
	}
	if n < len(s) && isPartOfWord(s[n]) {
		return 0
	}
	return n
}

func isUUID(s string) bool {
	if len(s) < 36 || len(s) > 36 && isPartOfWord(s[36]) {
		return false
	}
	digits := 0
	for i := range 36 {
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if s[i] != '-' {
				return false
			}
		case !isHex(s[i]):
			return false
		case isDigit(s[i]):
			digits++
		}
	}
	return digits > 0
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isHex(c byte) bool   { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
func isAlnum(c byte) bool { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'z' }
func isSpace(c byte) bool { return c <= ' ' || c == 0x7f }

// isPartOfWord is also true of placeholders and of letters that are not ASCII.
func isPartOfWord(c byte) bool { return isAlnum(c) || c == placeholder || c >= 0x80 }
