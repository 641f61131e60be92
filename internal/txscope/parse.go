package txscope

import (
	"slices"
	"strings"
)

// Op is the effect of a statement on the transaction in which the statement runs.
type Op uint8

// The kinds of statements.
const (
	None           Op = iota // nothing: any other statement
	Savepoint                // SAVEPOINT name
	RollbackTo               // ROLLBACK TO name
	Release                  // RELEASE name
	Commit                   // COMMIT, END, PREPARE TRANSACTION
	Rollback                 // ROLLBACK, ABORT
	Begin                    // BEGIN, START TRANSACTION
	ImplicitCommit           // a statement that commits on MySQL, such as CREATE TABLE
	Unclear                  // the text does not say: several statements, CALL
)

// Statement is a statement that [Parse] recognised.
type Statement struct {
	Op Op
	// Name is the savepoint's name: as written in double quotes, in lower case otherwise.
	Name string
}

// Parse recognises a statement by the leading words, behind comments and white space. Parse does
// not allocate unless a name has to be rewritten, and gives up on an ordinary statement at the
// first letters.
//
// A query is [Unclear] when the text does not show the effect on the transaction: several
// statements that are not all `None`, and on MySQL and MariaDB a comment that the server
// may run, a statement that runs other statements, or an unknown statement. On PostgreSQL and
// SQLite the statements that control a transaction are few and known. Within a transaction, only
// EXECUTE runs such statements.
func Parse(dialect, query string) Statement {
	if isOrdinary(query) && !hasSeveral(query) {
		return Statement{} // nearly every query
	}
	l := lexer{dialect: dialect, query: query, rest: query}
	l.skip(between)
	several := hasSeveral(l.rest)
	s := l.statement()
	for several && s.Op != Unclear && l.next() {
		if s.Op != None || l.statement().Op != None {
			s = Statement{Op: Unclear}
		}
	}
	return s
}

// hasSeveral reports whether anything follows a semicolon. The rest may be a comment, or the
// semicolon may be in a literal: see lexer.next.
func hasSeveral(query string) bool {
	i := strings.IndexByte(query, ';')
	return i >= 0 && strings.TrimLeft(query[i:], between) != ""
}

// statement recognises the statement at the place of the lexer.
func (l lexer) statement() Statement {
	if l.unclear {
		return Statement{Op: Unclear}
	}
	if l.rest == "" || isOrdinary(l.rest) {
		return Statement{}
	}
	s := l.control()
	switch {
	case l.unclear:
		return Statement{Op: Unclear}
	case s.Op == ImplicitCommit && l.dialect != MySQL:
		return Statement{}
	}
	return s
}

// control recognises the statement by the words.
func (l *lexer) control() Statement {
	s := Statement{}
	switch word := l.word(); {
	case is(word, "SAVEPOINT"):
		s = savepoint(Savepoint, l.name())
	case is(word, "RELEASE"):
		s = savepoint(Release, l.savepointName())
	case is(word, "ROLLBACK"), is(word, "ABORT"):
		s = l.rollback()
	case is(word, "COMMIT"), is(word, "END"):
		s.Op = Commit
		if is(l.peek(), "PREPARED") { // of another transaction
			s.Op = None
		}
	case is(word, "PREPARE"):
		s.Op = l.prepare()
	case is(word, "BEGIN"):
		s.Op = Begin
	case is(word, "START"):
		s.Op = ImplicitCommit // START REPLICA and similar statements
		if is(l.peek(), "TRANSACTION") {
			s.Op = Begin
		}
	default:
		s.Op = l.implicit(word)
	}
	return s
}

// isOrdinary tells the four statements that make up nearly all queries from the statements of Parse
// with the same first letter: INSERT from INSTALL, SELECT from SET, UPDATE from UNLOCK, DELETE from
// DROP.
func isOrdinary(query string) bool {
	if len(query) < 4 {
		return false
	}
	switch query[0] | 0x20 {
	case 'i':
		return query[3]|0x20 == 'e'
	case 's':
		return query[2]|0x20 == 'l'
	case 'u':
		return query[1]|0x20 == 'p'
	case 'd':
		return query[1]|0x20 == 'e'
	default:
		return false
	}
}

// savepoint is a statement about a savepoint; without a name it is the zero Statement.
func savepoint(op Op, name string) Statement {
	if name == "" {
		return Statement{}
	}
	return Statement{op, name}
}

// prepare reads the words after PREPARE. PREPARE TRANSACTION 'name' detaches the transaction, which
// is then committed or rolled back by name, later. A prepared statement, too, may be called
// transaction.
func (l *lexer) prepare() Op {
	if !is(l.word(), "TRANSACTION") {
		return None
	}
	l.skip(blank)
	if next := l.peek(); is(next, "AS") || is(next, "FROM") || strings.HasPrefix(l.rest, "(") {
		return None
	}
	return Commit
}

// rollback reads the words after ROLLBACK.
func (l *lexer) rollback() Statement {
	word := l.peek()
	if is(word, "WORK") || is(word, "TRANSACTION") {
		l.word()
		word = l.peek()
	}
	switch {
	case is(word, "TO"):
		l.word()
		return savepoint(RollbackTo, l.savepointName())
	case is(word, "PREPARED"): // another transaction
		return Statement{}
	default:
		return Statement{Op: Rollback}
	}
}

// implicit recognises the statements before which MySQL commits, and the statements of MySQL and
// MariaDB that may run other statements, such as CALL, EXECUTE, and IF outside of a procedure.
func (l *lexer) implicit(word string) Op {
	switch {
	case is(word, "CREATE"), is(word, "DROP"):
		second := l.peek()
		if is(second, "OR") { // CREATE OR REPLACE TEMPORARY TABLE
			l.word()
			l.word()
			second = l.peek()
		}
		if is(second, "TEMPORARY") {
			return None
		}
		return ImplicitCommit
	case is(word, "SET"):
		return l.set()
	case is(word, "LOCK"), is(word, "UNLOCK"):
		if second := l.peek(); !is(second, "TABLES") && !is(second, "TABLE") {
			return None
		}
		return ImplicitCommit
	case isOneOf(word, implicitCommits):
		return ImplicitCommit
	case is(word, "EXECUTE"): // on PostgreSQL, too, of a statement that the driver has prepared
		return Unclear
	case l.dialect == Postgres, l.dialect == SQLite, isOneOf(word, harmless), word == "" && strings.HasPrefix(l.rest, "("):
		return None
	default:
		return Unclear
	}
}

var (
	implicitCommits = []string{
		"ALTER", "TRUNCATE", "RENAME", "GRANT", "REVOKE", "ANALYZE", "CHECK", "OPTIMIZE", "REPAIR", "CACHE",
		"FLUSH", "RESET", "STOP", "CHANGE", "INSTALL", "UNINSTALL", "BACKUP",
	}
	// harmless are, besides the ordinary statements, the usual statements of MySQL and MariaDB that
	// leave the transaction as it is. XA is refused within a transaction, and functions that a
	// statement calls cannot commit.
	harmless = []string{"REPLACE", "WITH", "VALUES", "TABLE", "SHOW", "EXPLAIN", "USE", "DO", "XA"}
)

func isOneOf(word string, keywords []string) bool {
	return slices.ContainsFunc(keywords, func(keyword string) bool { return is(word, keyword) })
}

// set recognises SET PASSWORD, SET DEFAULT ROLE, and a change of autocommit at any place among the
// assignments. On MariaDB, SET STATEMENT … FOR runs a statement.
func (l *lexer) set() Op {
	switch word := l.peek(); {
	case l.dialect == Postgres, l.dialect == SQLite:
		return None
	case is(word, "STATEMENT"):
		return Unclear
	case is(word, "PASSWORD"), is(word, "DEFAULT"), strings.Contains(lower(l.rest), "autocommit"):
		return ImplicitCommit
	}
	return None
}
