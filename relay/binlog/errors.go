package binlog

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of the server that a reader cannot correct by trying again. [Reader.Run] ends with them.
var (
	// ErrNoPosition: the control table has no position of the reader's name. Setup has not run, or
	// somebody deleted the position, or the database is another database. [Reader.Setup] stores a position
	// and publishes the rows of the table.
	ErrNoPosition = errors.New("the reader has no position")
	// ErrPositionLost: the server does not have the log after the position. The server has purged the log
	// (binlog_expire_logs_seconds), or the server is another server or an older copy. Events of that log
	// are still in the table, unless their rows were deleted. The text has the statement that deletes the
	// position; after that [Reader.Setup] stores a position and publishes the rows of the table.
	ErrPositionLost = errors.New("the server does not have the log after the reader's position")
	// ErrNotSetUp: a setting of the server, a right of the user, or a table is not as the reader needs it.
	// The text says how to correct it.
	ErrNotSetUp = errors.New("the database is not set up for the reader")
)

// errInUse means that another process reads the log.
var errInUse = errors.New("another process reads the log")

// errReadOnly means that the server is a replica. After the failover the server is not.
var errReadOnly = errors.New("the server is read only; the log is read on the server that takes writes")

func notSetUp(problem string, args ...any) error {
	return fmt.Errorf("%w: "+problem, append([]any{ErrNotSetUp}, args...)...)
}

// final reports whether trying again is no use.
func final(err error) bool {
	return errors.Is(err, ErrNoPosition) || errors.Is(err, ErrPositionLost) || errors.Is(err, ErrNotSetUp)
}

// Numbers of errors of the servers.
const (
	denied          = 1227 // a right is missing
	deniedToTable   = 1142
	deniedToUser    = 1045
	deniedDatabase  = 1044
	deniedStatement = 1370
	fatalInLog      = 1236 // the server cannot send the log
)

// lost reports whether the server says that it does not have the log. Other problems, such as a second
// replica with the same number, have the same error number.
func lost(number uint16, text string) bool {
	text = strings.ToLower(text)
	return number == fatalInLog && (strings.Contains(text, "purged") || strings.Contains(text, "gtid"))
}
