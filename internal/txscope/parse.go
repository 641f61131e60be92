package txscope

import "strings"

// Op is what a statement does to the transaction it runs in.
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
)

// Statement is what [Parse] recognised.
type Statement struct {
	Op Op
	// Name is the savepoint's: as written in double quotes, in lower case
	// otherwise.
	Name string
}

// Parse recognises the first statement of the query by its leading words,
// behind comments and white space. It does not allocate unless a name has to be
// rewritten, and gives up on an ordinary statement at its first letters.
//
// ImplicitCommit is reported for every database: only on MySQL do those
// statements commit.
func Parse(query string) Statement {
	l := lexer{rest: query}
	// Most queries begin with the letter of a statement that is none of ours.
	l.skip(between)
	if l.rest == "" || !leads[l.rest[0]] || isOrdinary(l.rest) {
		return Statement{}
	}
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
		s.Op = ImplicitCommit // START REPLICA and its like
		if is(l.peek(), "TRANSACTION") {
			s.Op = Begin
		}
	default:
		s.Op = l.implicit(word)
	}
	return s
}

// leads are the first letters of the statements we know.
var leads = func() (set [256]bool) {
	for _, c := range "SREACBDTGLFIOPU" {
		set[c], set[c|0x20] = true, true
	}
	return set
}()

// isOrdinary tells the four statements that nearly every query is from ours
// with the same first letter: INSERT from INSTALL, SELECT from SET, UPDATE from
// UNLOCK, DELETE from DROP.
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

// savepoint is a statement about a savepoint; without a name it is none.
func savepoint(op Op, name string) Statement {
	if name == "" {
		return Statement{}
	}
	return Statement{op, name}
}

// prepare reads what follows PREPARE. PREPARE TRANSACTION 'name' takes the
// transaction away: it is for somebody else to commit or roll back, later. A
// prepared statement, too, may be called transaction.
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

// rollback reads what follows ROLLBACK.
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

// implicit recognises the statements before which MySQL commits.
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
	case is(word, "ALTER"), is(word, "TRUNCATE"), is(word, "RENAME"), is(word, "GRANT"), is(word, "REVOKE"),
		is(word, "ANALYZE"), is(word, "CHECK"), is(word, "OPTIMIZE"), is(word, "REPAIR"), is(word, "CACHE"),
		is(word, "FLUSH"), is(word, "RESET"), is(word, "STOP"), is(word, "CHANGE"),
		is(word, "INSTALL"), is(word, "UNINSTALL"):
		return ImplicitCommit
	default:
		return None
	}
}

// set recognises SET PASSWORD, and SET autocommit = 1, which ends the
// transaction.
func (l *lexer) set() Op {
	word := l.peek()
	if is(word, "PASSWORD") {
		return ImplicitCommit
	}
	if is(word, "SESSION") || is(word, "LOCAL") {
		l.word()
		word = l.peek()
	}
	for len(word) > 0 && word[0] == '@' {
		word = word[1:]
	}
	if is(word, "autocommit") || is(word, "session.autocommit") {
		return ImplicitCommit
	}
	return None
}
