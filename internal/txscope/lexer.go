package txscope

import "strings"

// lexer reads words and names off the front of a query. It knows no more of SQL
// than the statements of [Parse] need.
type lexer struct{ rest string }

// blank is white space; between statements there are semicolons too.
const (
	blank   = " \t\n\r\f\v"
	between = blank + ";"
)

// skip drops comments and the characters of cutset.
func (l *lexer) skip(cutset string) {
	for more := true; more; more = l.skipComment() {
		l.rest = strings.TrimLeft(l.rest, cutset)
	}
}

// skipComment drops one comment and reports whether there was one.
func (l *lexer) skipComment() bool {
	switch {
	case strings.HasPrefix(l.rest, "#"), strings.HasPrefix(l.rest, "--"):
		_, l.rest, _ = strings.Cut(l.rest, "\n")
	case strings.HasPrefix(l.rest, "/*"):
		l.rest = l.rest[commentLength(l.rest):]
	case strings.HasPrefix(l.rest, "\ufeff"): // a byte order mark is white space to SQLite
		l.rest = l.rest[len("\ufeff"):]
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
	l.skip(blank)
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
	l.skip(blank)
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
func (l *lexer) quoted(quote byte) (name string) {
	end := string(quote)
	l.rest = l.rest[1:]
	for {
		part, rest, closed := strings.Cut(l.rest, end)
		if !closed { // the database refuses it
			l.rest = ""
			return ""
		}
		name += part
		if l.rest, closed = strings.CutPrefix(rest, end); !closed {
			return name
		}
		name += end
	}
}

// lower folds ASCII letters alone, as the databases do.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r | 0x20
		}
		return r
	}, s)
}

// is compares a word with a keyword, ignoring the case.
func is(word, keyword string) bool {
	return len(word) == len(keyword) && strings.EqualFold(word, keyword)
}
