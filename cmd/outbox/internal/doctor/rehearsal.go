package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/sqlerr"
	"github.com/outboxkit/outbox-go/outbox"
)

// errNoRow is the error of a statement that did not find the row of the rehearsal.
var errNoRow = errors.New("the row that was just written is not there: row level security, a trigger or a view hides or changes it")

// A rehearsal does the work of an outbox with a single row, and rolls the work back. The row
// becomes due in the year 9000, so that no process takes it, and the texts of the row are as long
// as the library allows.
type rehearsal struct {
	p   *patient
	tx  *sql.Tx
	env outbox.Envelope
}

// rehearse writes, claims, marks and deletes a row in a transaction that it rolls back.
func (p *patient) rehearse(ctx context.Context) error {
	if p.dialect == "mysql" {
		var engine sql.NullString
		err := p.one(ctx, "SELECT engine FROM information_schema.tables WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?",
			[]any{p.table.Schema, p.table.Name}, &engine)
		if err != nil || !strings.EqualFold(engine.String, "InnoDB") {
			p.report(Note, "not tried, because "+engine.String+" has no transactions", "see the check storage")
			return err
		}
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
		p.failed("begin a transaction", err)
		return nil
	}
	defer func() { _ = tx.Rollback() }()
	return p.steps(ctx, &rehearsal{p, tx, p.probe()})
}

func (p *patient) steps(ctx context.Context, r *rehearsal) error {
	for _, step := range []struct {
		what string
		run  func(context.Context) error
	}{
		{"write an event", r.insert},
		{"claim it", r.claim},
		{"store that its delivery failed", r.mark(outbox.OutcomeRetry)},
		{"store that it is dead", r.mark(outbox.OutcomeDead)},
		{"delete it", r.remove},
		{"write another event", r.insert},
		{"store that it was delivered", r.mark(outbox.OutcomeDone)},
		{"report a process in the control table", r.announce},
	} {
		if err := step.run(ctx); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p.failed(step.what, err)
			return nil
		}
	}
	p.report(OK, "a row was written, claimed, marked and deleted, and all of it rolled back", "")
	return nil
}

// probe returns an event with the longest texts.
func (p *patient) probe() outbox.Envelope {
	long := func(n int) string { return strings.Repeat("x", n) }
	return outbox.Envelope{
		EventID: fmt.Sprintf("doctor-%029d", p.Now().UnixNano()), EventType: outbox.EventType(long(outbox.MaxEventTypeLength)),
		AggregateType: outbox.AggregateType(long(outbox.MaxAggregateTypeLength)), AggregateID: long(outbox.MaxAggregateIDLength),
		TenantID: long(outbox.MaxTenantIDLength), Headers: map[string]string{"key": long(60_000)},
		Payload:    outbox.JSON("😀" + long(outbox.MaxPayloadBytes-10)),
		OccurredAt: p.Now().UTC().Truncate(time.Microsecond), AvailableAt: time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC),
	}
}

func (r *rehearsal) insert(ctx context.Context) error {
	return r.p.Store.Insert(ctx, r.tx, []outbox.Envelope{r.env}, "", r.env.OccurredAt)
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
		_, err := r.p.Store.DeleteDead(ctx, db, []string{r.env.EventID})
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
func (p *patient) failed(what string, err error) {
	seen := fmt.Sprintf("the outbox cannot %s: %.300s", what, strings.TrimPrefix(sqlerr.WithoutAddress(err, "").Error(), "outbox: "))
	p.report(Failure, seen, wayOut(err))
}

// waysOut say how to repair errors, by SQLSTATE, number of MySQL, or text.
var waysOut = []struct {
	states  []string
	numbers []uint16
	text    string
	way     string
}{
	{nil, nil, "row-level security", "give the user a policy for all rows, or BYPASSRLS"},
	{nil, nil, errNoRow.Error(), "give the user a policy for all rows, and look at the triggers of the table"},
	{[]string{"42501"}, []uint16{1142, 1143}, "", "GRANT SELECT, INSERT, UPDATE, DELETE ON the table and its control table to the user of the address"},
	{[]string{"25006"}, []uint16{1290, 1792, 1836}, "readonly database", "use the address of the primary, and a session and a file that are not read-only"},
	{[]string{"23502"}, []uint16{1364, 1048}, "NOT NULL constraint", "give the column of your own a DEFAULT, or allow NULL in it"},
	{[]string{"22001"}, []uint16{1406}, "too long", "make the column as wide as outbox schema print has it"},
	{[]string{"22P05"}, []uint16{1366, 3988}, "", "convert the table to utf8mb4 (MySQL), or the database to UTF8 (PostgreSQL)"},
	{nil, []uint16{1153}, "max_allowed_packet", "raise max_allowed_packet of the server to 16 MiB or more"},
	{[]string{"53100"}, []uint16{1021, 1114, 1041}, "disk is full", "free space on the disk of the database"},
	{[]string{"57014", "55P03"}, []uint16{1205, 3024, 1969}, "", "raise the time limits of statements and of locks for the user; see the check timeouts"},
}

func wayOut(err error) string {
	for _, w := range waysOut {
		hasState := func(state string) bool { return sqlerr.HasState(err, state) }
		if slices.ContainsFunc(w.states, hasState) || len(w.numbers) > 0 && sqlerr.HasNumber(err, w.numbers...) ||
			w.text != "" && strings.Contains(err.Error(), w.text) {
			return w.way
		}
	}
	return "compare the table with the output of outbox schema print, and look at the triggers and constraints of your own"
}
