package txscope

import "strings"

// mayHide reports whether a query that begins with an ordinary statement may end
// the transaction or undo some of it all the same: several statements in one
// string, comments that MySQL and MariaDB execute or that not every database
// ends at the same place, EXECUTE IMMEDIATE and SET STATEMENT … FOR. It may be
// wrong about a text that only speaks of such things, never the other way round.
func mayHide(query string) bool {
	return isCompound(query) && (containsWord(query, "rollback") || containsWord(query, "commit") || containsWord(query, "abort") ||
		containsWord(query, "prepare") && containsWord(query, "transaction"))
}

func isCompound(query string) bool {
	if i := strings.IndexByte(query, ';'); i >= 0 && strings.TrimLeft(query[i:], "; \t\r\n") != "" {
		return true
	}
	if i := strings.Index(query, "/*"); i >= 0 {
		rest := query[i+2:]
		if strings.HasPrefix(rest, "!") || strings.HasPrefix(rest, "M!") || strings.Contains(rest, "/*") {
			return true
		}
	}
	l := lexer{rest: query}
	l.skip()
	if l.rest == "" || l.rest[0]|0x20 != 'e' && l.rest[0]|0x20 != 's' {
		return false
	}
	word := l.word()
	return is(word, "EXECUTE") || is(word, "SET") && is(l.peek(), "STATEMENT")
}

// containsWord looks for a word of lower-case letters, whatever its case.
func containsWord(text, word string) bool {
	for len(text) >= len(word) {
		i := strings.IndexAny(text, word[:1]+strings.ToUpper(word[:1]))
		if i < 0 || i+len(word) > len(text) {
			return false
		}
		if strings.EqualFold(text[i:i+len(word)], word) {
			return true
		}
		text = text[i+1:]
	}
	return false
}
