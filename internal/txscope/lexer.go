package txscope

import "strings"

// lexer reads words and names off the front of a query. The lexer knows no more of SQL than the
// statements of [Parse] need.
type lexer struct {
	dialect string
	query   string // the whole query
	rest    string
	// unclear: the text means different things to different servers or settings.
	unclear bool
}

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

// skipComment drops a comment and reports whether there was a comment.
func (l *lexer) skipComment() bool {
	length := 0
	switch {
	case l.rest == "":
	case l.rest[0] == '#':
		if l.dialect != Postgres && l.dialect != SQLite {
			length = l.lineLength()
		}
	case strings.HasPrefix(l.rest, "--"):
		// On MySQL a blank has to follow: 2--1 is 3.
		if l.dialect != MySQL || len(l.rest) == 2 || l.rest[2] <= ' ' {
			length = l.lineLength()
		}
	case strings.HasPrefix(l.rest, "/*"):
		length = commentLength(l.rest, l.dialect == Postgres)
		l.unclear = l.unclear || l.executed()
	case strings.HasPrefix(l.rest, byteOrderMark):
		length = len(byteOrderMark)
	}
	l.rest = l.rest[length:]
	return length > 0
}

const byteOrderMark = "\ufeff" // white space to SQLite

// lineLength is the length of the line. On PostgreSQL a carriage return ends a line.
func (l *lexer) lineLength() int {
	end := "\n"
	if l.dialect == Postgres {
		end = "\r\n"
	}
	if i := strings.IndexAny(l.rest, end); i >= 0 {
		return i + 1
	}
	return len(l.rest)
}

// executed reports whether MySQL or MariaDB may run the text of the comment.
func (l *lexer) executed() bool {
	return l.dialect != Postgres && l.dialect != SQLite &&
		(strings.HasPrefix(l.rest, "/*!") || strings.HasPrefix(l.rest, "/*M!"))
}

// commentLength is the length of the comment at the beginning of s. Comments nest only on
// PostgreSQL.
func commentLength(s string, nested bool) int {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch {
		case s[i] == '/' && s[i+1] == '*' && (nested || depth == 0):
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
	return len(s)
}

// next moves to the next statement of the query and reports whether there is a next statement.
// Where the end of a literal depends on the server's settings, or the dialect is not known, the
// query is unclear.
func (l *lexer) next() bool {
	l.unclear = l.unclear || l.dialect == ""
	for !l.unclear {
		i := strings.IndexAny(l.rest, ";'\"`[$-#/")
		if i < 0 {
			return false
		}
		l.rest = l.rest[i:]
		switch c := l.rest[0]; {
		case l.skipComment():
		case c == ';':
			l.skip(between)
			return l.unclear || l.rest != ""
		case c == '\'', c == '"', c == '`' && l.dialect != Postgres:
			l.skipLiteral(l.rest[:1], l.rest[:1])
		case c == '[' && l.dialect == SQLite:
			l.skipLiteral("[", "]")
		case c == '$' && l.dialect == Postgres:
			l.skipDollars()
		default:
			l.rest = l.rest[1:]
		}
	}
	return true
}

// skipLiteral drops a quoted text. A text with a doubled quote counts as two texts. Settings of
// MySQL and PostgreSQL say whether a backslash quotes.
func (l *lexer) skipLiteral(begin, end string) {
	inside, rest, closed := strings.Cut(l.rest[len(begin):], end)
	escapes := len(begin) == 1 && l.dialect != SQLite && strings.Contains(inside, `\`)
	l.unclear = !closed || escapes
	l.rest = rest
}

// skipDollars drops a text in $tag$ of PostgreSQL, or the dollar of a parameter or a
// name.
func (l *lexer) skipDollars() {
	n := 1
	for n < len(l.rest) && inTag(l.rest[n]) {
		n++
	}
	at := len(l.query) - len(l.rest)
	named := at > 0 && (inTag(l.query[at-1]) || l.query[at-1] == '$')
	if named || n == len(l.rest) || l.rest[n] != '$' || n > 1 && l.rest[1] <= '9' {
		l.rest = l.rest[1:]
		return
	}
	l.skipLiteral(l.rest[:n+1], l.rest[:n+1])
}

// inTag reports whether a byte may be in the tag of a text in dollars.
func inTag(c byte) bool { return inWord(c) && c != '$' && c != '@' && c != '.' }

// word reads an unquoted word; "" when there is no word before the end of the statement.
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
	word := ahead.word()
	l.unclear = ahead.unclear
	return word
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

// quoted reads a name up to the closing quote. A doubled quote stands for a quote in the name.
func (l *lexer) quoted(quote byte) (name string) {
	end := string(quote)
	l.rest = l.rest[1:]
	for {
		part, rest, closed := strings.Cut(l.rest, end)
		if !closed { // the database refuses the statement
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

// lower folds only ASCII letters, as the databases do.
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
