package txscope

import "strings"

// lexer reads words and names off the front of a query. It knows no more of SQL
// than the statements of [Parse] need.
type lexer struct{ rest string }

// byteOrderMark is white space to SQLite.
const byteOrderMark = "\ufeff"

// skip drops white space, semicolons and comments.
func (l *lexer) skip() {
	for l.rest != "" {
		switch c := l.rest[0]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v' || c == ';':
			l.rest = l.rest[1:]
		case c == byteOrderMark[0] && strings.HasPrefix(l.rest, byteOrderMark):
			l.rest = l.rest[len(byteOrderMark):]
		case !l.skipComment():
			return
		}
	}
}

// skipBlank is skip without semicolons: it stays within the statement.
func (l *lexer) skipBlank() {
	for l.rest != "" {
		switch c := l.rest[0]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
			l.rest = l.rest[1:]
		case !l.skipComment():
			return
		}
	}
}

// skipComment drops one comment and reports whether there was one.
func (l *lexer) skipComment() bool {
	switch {
	case l.rest[0] == '#', strings.HasPrefix(l.rest, "--"):
		if i := strings.IndexByte(l.rest, '\n'); i >= 0 {
			l.rest = l.rest[i+1:]
		} else {
			l.rest = ""
		}
	case strings.HasPrefix(l.rest, "/*"):
		l.rest = l.rest[commentLength(l.rest):]
	default:
		return false
	}
	return true
}

// commentLength is the length of the comment that s begins with. Comments nest
// on PostgreSQL alone: one that never ends when nested ends at the first end.
func commentLength(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch {
		case s[i] == '/' && s[i+1] == '*':
			depth++
			i++
		case s[i] == '*' && s[i+1] == '/':
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	if i := strings.Index(s[2:], "*/"); i >= 0 {
		return i + 4
	}
	return len(s)
}

// word reads an unquoted word; "" when there is none before the end of the
// statement.
func (l *lexer) word() string {
	l.skipBlank()
	n := 0
	for n < len(l.rest) && inWord(l.rest[n]) {
		n++
	}
	word := l.rest[:n]
	l.rest = l.rest[n:]
	return word
}

// peek is the next word, which stays.
func (l *lexer) peek() string {
	ahead := *l
	return ahead.word()
}

func inWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '_' || c == '$' || c == '@' || c == '.' || c >= 0x80
}

// savepointName reads [SAVEPOINT] name. A savepoint may be called savepoint.
func (l *lexer) savepointName() string {
	if ahead := *l; is(ahead.word(), "SAVEPOINT") {
		if name := ahead.name(); name != "" {
			*l = ahead
			return name
		}
	}
	return l.name()
}

// name reads a name, quoted or not, in the form of [Statement].
func (l *lexer) name() string {
	l.skipBlank()
	if l.rest == "" {
		return ""
	}
	switch quote := l.rest[0]; quote {
	case '"', '\'':
		return l.quoted(quote)
	case '`':
		return lower(l.quoted(quote))
	case '[':
		return lower(l.quoted(']'))
	default:
		return lower(l.word())
	}
}

// quoted reads a name up to the closing quote, which stands for itself when it
// is doubled.
func (l *lexer) quoted(end byte) string {
	body := l.rest[1:]
	doubled := false
	for i := 0; i < len(body); i++ {
		if body[i] != end {
			continue
		}
		if i+1 < len(body) && body[i+1] == end {
			doubled = true
			i++
			continue
		}
		l.rest = body[i+1:]
		if doubled {
			return strings.ReplaceAll(body[:i], string([]byte{end, end}), string([]byte{end}))
		}
		return body[:i]
	}
	l.rest = ""
	return "" // never closed: the database refuses it
}

// lower folds ASCII letters alone, as the databases do, and allocates only when
// there is an upper-case one.
func lower(s string) string {
	for i := range len(s) {
		if s[i] >= 'A' && s[i] <= 'Z' {
			b := []byte(s)
			for ; i < len(b); i++ {
				if b[i] >= 'A' && b[i] <= 'Z' {
					b[i] |= 0x20
				}
			}
			return string(b)
		}
	}
	return s
}

// is compares a word with a keyword, ignoring the case.
func is(word, keyword string) bool {
	return len(word) == len(keyword) && strings.EqualFold(word, keyword)
}
