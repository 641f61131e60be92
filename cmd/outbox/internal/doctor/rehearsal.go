package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
)

// errNoRow is the error of a statement that did not find the row of the rehearsal.
var errNoRow = errors.New("the row that was just written is not there: row level security, a trigger or a view hides or changes it")

// A rehearsal does the work of an outbox with a few rows, and rolls the work back. The rows become
// due in the year 9000, so that no process takes them. The texts of env are as long as the library
// allows. The two events of twins differ only in the case of their ids, and have texts that a
// database may change: numbers, digits and keys that are there twice.
type rehearsal struct {
	p     *patient
	tx    *sql.Tx
	env   outbox.Envelope
	twins []outbox.Envelope
}

// inTx lets a read of the store run in the transaction.
type inTx struct{ *sql.Tx }

func (inTx) BeginTx(context.Context, *sql.TxOptions) (*sql.Tx, error) {
	return nil, errors.New("a transaction has begun")
}

// rehearse writes, claims, marks and deletes rows in a transaction that it rolls back.
func (p *patient) rehearse(ctx context.Context) error {
	if reason, err := p.cannotRollBack(ctx); reason != "" || err != nil {
		if err == nil {
			p.report(Note, "not tried, because "+reason, "see the check storage")
		}
		return err
	}
	conn, err := p.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if p.dialect == "sqlite" { // so that the pages go to the disk, which may be full
		for set, pragma := range []string{"PRAGMA cache_size = 2", "PRAGMA cache_size = -2000"} {
			if set == 1 {
				defer func() { _, _ = conn.ExecContext(context.WithoutCancel(ctx), pragma) }()
				continue
			}
			if _, err := conn.ExecContext(ctx, pragma); err != nil {
				return err
			}
		}
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.failed(ctx, "begin a transaction", err)
		return nil
	}
	r := p.newRehearsal(tx)
	what, err := r.steps(ctx)
	_ = tx.Rollback()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && sqlerr.IsUnreachable(err):
		return err
	case err != nil && what == tomorrow:
		p.report(Warning, fmt.Sprintf("%s: %.300s", tomorrow, oneLine(err)), "create the partitions of the next days, and a default partition")
	case err != nil:
		p.failed(ctx, what, err)
	default:
		p.report(OK, "a row was written, claimed, marked and deleted, and all of it rolled back", "")
	}
	return nil
}

// cannotRollBack says why a rehearsal would leave its rows behind; empty if it would not.
func (p *patient) cannotRollBack(ctx context.Context) (reason string, err error) {
	switch p.dialect {
	case "mysql":
		var engine sql.NullString
		err := p.one(ctx, "SELECT engine FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?",
			[]any{p.table.Schema, p.table.Name}, &engine)
		if err != nil || strings.EqualFold(engine.String, "InnoDB") {
			return "", err
		}
		return engine.String + " has no transactions", nil
	case "sqlite":
		var mode string
		if err := p.one(ctx, "PRAGMA journal_mode", nil, &mode); err != nil || mode != "off" {
			return "", err
		}
		return "a transaction cannot be rolled back without a journal", nil
	default:
		return "", nil
	}
}

const tomorrow = "the outbox will not be able to write an event in 24 hours"

// steps returns the step that failed.
func (r *rehearsal) steps(ctx context.Context) (what string, err error) {
	for _, step := range []struct {
		what string
		run  func(context.Context) error
	}{
		{"write an event", r.insert(r.env)},
		{"read what it wrote", r.readBack(r.env)},
		{"claim it", r.claim},
		{"store that its delivery failed", r.mark(outbox.OutcomeRetry)},
		{"store that it is dead", r.mark(outbox.OutcomeDead)},
		{"delete it", r.remove},
		{"write another event", r.insert(r.short())},
		{"store that it was delivered", r.mark(outbox.OutcomeDone)},
		{"write two events of the same aggregate", r.insert(r.twins...)},
		{"read what it wrote", r.readBack(r.twins...)},
		{"report a process in the control table", r.announce},
		{"commit", r.commit},
		{tomorrow, r.insert(r.later())},
	} {
		if err := step.run(ctx); err != nil {
			return step.what, err
		}
	}
	return "", nil
}

func (p *patient) newRehearsal(tx *sql.Tx) *rehearsal {
	long := func(n int) string { return strings.Repeat("x", n) }
	now := p.Now().UTC().Truncate(time.Microsecond)
	env := outbox.Envelope{
		EventID: fmt.Sprintf("doctor-%029d", now.UnixNano()), EventType: outbox.EventType(long(outbox.MaxEventTypeLength)),
		AggregateType: outbox.AggregateType(long(outbox.MaxAggregateTypeLength)), AggregateID: long(outbox.MaxAggregateIDLength),
		TenantID: long(outbox.MaxTenantIDLength), Headers: map[string]string{"key": long(60_000)},
		Payload:    outbox.JSON("😀" + long(outbox.MaxPayloadBytes-10)),
		OccurredAt: now, AvailableAt: time.Date(9000, 1, 1, 0, 0, 0, 1000, time.UTC),
	}
	twin := env
	twin.EventID = strings.Replace(env.EventID, "doctor", "twin-é", 1)[:36]
	twin.EventType, twin.AggregateType, twin.AggregateID, twin.TenantID = "007", "1e3", "0010", " Ä "
	twin.Headers = map[string]string{"é": "1.10"}
	twin.Payload = outbox.RawJSON(`{"b": 1.10, "a":12345678901234567890123, "b":null}`)
	other := twin
	other.EventID = strings.Replace(twin.EventID, "twin", "TWIN", 1)
	return &rehearsal{p, tx, env, []outbox.Envelope{twin, other}}
}

// short is the event with the long texts again, without its long payload.
func (r *rehearsal) short() outbox.Envelope {
	env := r.env
	env.Payload, env.Headers = r.twins[0].Payload, nil
	return env
}

// later is an event as a process will write it in a day, for which a partition must exist.
func (r *rehearsal) later() outbox.Envelope {
	env := r.twins[0]
	env.EventID = strings.Replace(env.EventID, "twin", "late", 1)
	env.OccurredAt = env.OccurredAt.Add(24 * time.Hour)
	return env
}

func (r *rehearsal) insert(envs ...outbox.Envelope) func(context.Context) error {
	return func(ctx context.Context) error {
		return r.p.Store.Insert(ctx, r.tx, envs, "", envs[0].OccurredAt)
	}
}

// changedError is a row that comes back as another.
type changedError struct{ columns []string }

func (e *changedError) Error() string {
	return strings.Join(e.columns, ", ") + " come back with another value than was written: by a column of another type, a character set or a trigger"
}

// readBack compares rows with the events that were written.
func (r *rehearsal) readBack(envs ...outbox.Envelope) func(context.Context) error {
	return func(ctx context.Context) error {
		for i := range envs {
			row, err := r.p.Store.FindEvent(ctx, inTx{r.tx}, envs[i].EventID)
			if errors.Is(err, outbox.ErrNotFound) {
				return errNoRow
			}
			if err != nil {
				return err
			}
			if columns := differing(&envs[i], &row); len(columns) > 0 {
				return &changedError{columns}
			}
		}
		return nil
	}
}

// differing names the columns of a new row that are not as they were written.
func differing(env *outbox.Envelope, row *outbox.EventRow) (columns []string) {
	for column, same := range map[string]bool{
		"event_id": row.EventID == env.EventID, "event_type": row.EventType == env.EventType,
		"aggregate_type": row.AggregateType == env.AggregateType, "aggregate_id": row.AggregateID == env.AggregateID,
		"tenant_id": row.TenantID == env.TenantID, "headers": maps.Equal(row.Headers, env.Headers),
		"payload": row.Payload.String() == env.Payload.String(), "created_at": row.OccurredAt.Equal(env.OccurredAt),
		"available_at": row.AvailableAt.Equal(env.AvailableAt), "status": row.Status == outbox.StatusNew, "locked_by": row.Lease == "",
	} {
		if !same {
			columns = append(columns, column)
		}
	}
	slices.Sort(columns)
	return columns
}

// claim runs the first statement of a claim. On MySQL this statement locks the row.
func (r *rehearsal) claim(ctx context.Context) error {
	s, err := r.statement(func(db *sql.DB) error {
		_, err := r.p.Store.Claim(ctx, db, outbox.ClaimQuery{
			Now: r.env.AvailableAt, Limit: 1, Lease: "doctor/1", LeaseDuration: outbox.DefaultLeaseDuration, EventIDs: []string{r.env.EventID},
		})
		return err
	})
	if err != nil {
		return err
	}
	rows, err := r.tx.QueryContext(ctx, s.text, s.args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	if !rows.Next() && rows.Err() == nil {
		return errNoRow
	}
	return errors.Join(rows.Err(), rows.Close())
}

// commit runs the triggers and constraints that wait for the commit.
func (r *rehearsal) commit(ctx context.Context) error {
	if r.p.dialect != "postgres" {
		return nil
	}
	_, err := r.tx.ExecContext(ctx, "SET CONSTRAINTS ALL IMMEDIATE")
	return err
}

func (r *rehearsal) mark(outcome outbox.Outcome) func(context.Context) error {
	return func(ctx context.Context) error {
		return r.change(ctx, func(db *sql.DB) error {
			_, err := r.p.Store.Mark(ctx, db, outcome, []outbox.Mark{{
				EventID: r.env.EventID, AvailableAt: r.env.AvailableAt, Error: strings.Repeat("😀", outbox.MaxErrorLength), Attempts: 1,
			}})
			return err
		})
	}
}

func (r *rehearsal) remove(ctx context.Context) error {
	return r.change(ctx, func(db *sql.DB) error {
		_, err := r.p.Store.DeleteDead(ctx, db, []string{r.env.EventID}, "", time.Time{})
		return err
	})
}

func (r *rehearsal) announce(ctx context.Context) error {
	if err := r.change(ctx, func(db *sql.DB) error {
		return r.p.Store.Announce(ctx, db, outbox.Node{Owner: r.env.EventID, Mode: "doctor"}, time.Second)
	}); err != nil {
		return err
	}
	return r.change(ctx, func(db *sql.DB) error { return r.p.Store.Withdraw(ctx, db, r.env.EventID) })
}

// change runs the first statement of a call, which must change the row.
func (r *rehearsal) change(ctx context.Context, call func(*sql.DB) error) error {
	s, err := r.statement(call)
	if err != nil {
		return err
	}
	result, err := r.tx.ExecContext(ctx, s.text, s.args...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, errNoRow)
	}
	return nil
}

func (r *rehearsal) statement(call func(*sql.DB) error) (statement, error) {
	list, err := record(call)
	if len(list) > 0 {
		return list[0], nil
	}
	return statement{}, fmt.Errorf("recording a statement: %w", errors.Join(err, errNoRow))
}

// failed reports a step that the outbox could not do.
func (p *patient) failed(ctx context.Context, what string, err error) {
	p.report(Failure, fmt.Sprintf("the outbox cannot %s: %.300s", what, oneLine(err)), p.wayOut(ctx, err))
}

func oneLine(err error) string {
	return strings.TrimPrefix(sqlerr.WithoutAddress(err, "").Error(), "outbox: ")
}

const comparePrint = "compare the table with the output of outbox schema print, and look at the triggers and constraints of your own"

// waysOut say how to repair errors, by SQLSTATE, number of MySQL, or text.
var waysOut = []struct {
	states  []string
	numbers []uint16
	text    string
	way     string
}{
	{nil, nil, "row-level security", "give the user a policy for all rows, or BYPASSRLS"},
	{nil, nil, errNoRow.Error(), "give the user a policy for all rows, and look at the triggers of the table"},
	{nil, nil, "come back with another value", "give these columns the types and the character set of outbox schema print, the address the character set utf8mb4 (MySQL), and drop triggers that change rows"},
	{nil, nil, "statement pooling mode", "give the pooler pool_mode = transaction, or session"},
	{[]string{"25006"}, []uint16{1290, 1792, 1836, 1881}, "readonly database", "use the address of the primary, and a session and a file that are not read-only"},
	{[]string{"428C9"}, []uint16{1906, 3105}, "generated column", "make the columns of the schema plain columns, as outbox schema print has them"},
	{[]string{"23502"}, []uint16{1364, 1048}, "NOT NULL constraint", "give the column a DEFAULT, or allow NULL in it"},
	{[]string{"23505"}, []uint16{1062}, "UNIQUE constraint failed", "drop the unique index or constraint of your own: an aggregate has many events; if the name is that of the primary key, give event_id the case-sensitive collation of outbox schema print"},
	{[]string{"23503"}, []uint16{1452}, "FOREIGN KEY constraint failed", "drop the foreign key of your own: events outlive the rows that they are about"},
	{[]string{"42P10"}, nil, "ON CONFLICT clause does not match", "give both tables the primary keys of outbox schema print"},
	{[]string{"55000"}, nil, "", "give the table a replica identity, such as ALTER TABLE … REPLICA IDENTITY DEFAULT, or take it out of the publication"},
	{[]string{"22001"}, []uint16{1406}, "too long", "make the column as wide as outbox schema print has it"},
	{[]string{"22P05"}, []uint16{1366, 3988}, "", "convert the table to utf8mb4 (MySQL), or the database to UTF8 (PostgreSQL)"},
	{nil, []uint16{1153}, "packet for query is too large", "raise max_allowed_packet of the server, and maxAllowedPacket of the driver, to 16 MiB or more"},
	{nil, []uint16{1449}, "", "create the trigger again with a DEFINER that exists"},
	{nil, []uint16{1461}, "", "raise max_prepared_stmt_count of the server, or close the statements of the services; interpolateParams=true in the address needs no prepared statements"},
	{[]string{"53100"}, []uint16{1021, 1114, 1041}, "disk is full", "free space on the disk of the database"},
	{[]string{"54000", "55P04"}, nil, "wraparound", "VACUUM the database as a superuser: it is about to run out of transaction numbers"},
	{nil, []uint16{1034, 1194}, "malformed", "restore the file from a backup, or write its rows to a new file with the command .recover of sqlite3"},
	{nil, nil, "database is locked", "end the transaction of the program that writes to the file, and give every program a busy_timeout of some seconds"},
	{[]string{"57014", "55P03", "25P03", "25P04"}, []uint16{1205, 3024, 1969}, "", "raise the time limits of statements, locks and transactions for the user; see the check timeouts"},
}

func (p *patient) wayOut(ctx context.Context, err error) string {
	for _, w := range waysOut {
		hasState := func(state string) bool { return sqlerr.HasState(err, state) }
		if slices.ContainsFunc(w.states, hasState) || len(w.numbers) > 0 && sqlerr.HasNumber(err, w.numbers...) ||
			w.text != "" && strings.Contains(err.Error(), w.text) {
			return w.way
		}
	}
	if isForbidden(err) {
		return p.grant(ctx)
	}
	return comparePrint
}

// grant returns the statements that give the user of the address all rights that an outbox needs.
func (p *patient) grant(ctx context.Context) string {
	const rights = "GRANT SELECT, INSERT, UPDATE, DELETE ON "
	control, user := p.table.Table("control"), "the user of the address"
	if p.dialect == "mysql" {
		var account string
		if err := p.one(ctx, "SELECT CURRENT_USER()", nil, &account); err == nil {
			name, host, _ := strings.Cut(account, "@")
			user = fmt.Sprintf("'%s'@'%s'", name, host)
		}
		return rights + p.quoted() + " TO " + user + "; " + rights + control.Quoted("`") + " TO " + user
	}
	_ = p.one(ctx, "SELECT quote_ident(current_user)", nil, &user)
	return rights + p.quoted() + ", " + control.Quoted(`"`) + " TO " + user
}
