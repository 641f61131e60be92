package doctor

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
)

// recorder is a database that records statements, and answers each statement with no rows. With a
// recorder, the doctor sees the statements that the store would send, without changing anything.
type recorder struct {
	mu         sync.Mutex
	statements []statement
}

type statement struct {
	text string
	args []any
}

// record returns the statements of a call of the store.
func record(call func(db *sql.DB) error) ([]statement, error) {
	r := &recorder{}
	db := sql.OpenDB(r)
	defer func() { _ = db.Close() }()
	err := call(db)
	return r.statements, err
}

func (r *recorder) add(text string, args []driver.NamedValue) {
	s := statement{text: text}
	for _, arg := range args {
		s.args = append(s.args, arg.Value)
	}
	r.mu.Lock()
	r.statements = append(r.statements, s)
	r.mu.Unlock()
}

// Connect implements [driver.Connector].
func (r *recorder) Connect(context.Context) (driver.Conn, error) { return recorderConn{r}, nil }

// Driver implements [driver.Connector].
func (r *recorder) Driver() driver.Driver { return nil }

type recorderConn struct{ *recorder }

var (
	_ driver.QueryerContext = recorderConn{}
	_ driver.ExecerContext  = recorderConn{}
	_ driver.ConnBeginTx    = recorderConn{}
)

func (recorderConn) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("the recorder prepares nothing")
}
func (recorderConn) Close() error              { return nil }
func (recorderConn) Begin() (driver.Tx, error) { return recorderConn{}, nil }
func (recorderConn) Commit() error             { return nil }
func (recorderConn) Rollback() error           { return nil }

func (c recorderConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return c, nil }

func (c recorderConn) QueryContext(_ context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	c.add(text, args)
	return noRows{}, nil
}

func (c recorderConn) ExecContext(_ context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	c.add(text, args)
	return driver.RowsAffected(0), nil
}

type noRows struct{}

func (noRows) Columns() []string         { return nil }
func (noRows) Close() error              { return nil }
func (noRows) Next([]driver.Value) error { return io.EOF }
