package conformance

import (
	"context"
	"slices"

	"github.com/outboxkit/outbox-go/outbox"
)

// exec runs a statement outside of any transaction.
func (s *adapterSuite) exec(query string) {
	s.t.Helper()
	if _, err := s.DB.ExecContext(s.ctx, query); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
}

// begin begins a transaction, which is rolled back when the test ends, and writes
// events in it.
func (s *adapterSuite) begin(ctx context.Context, ids ...string) any {
	s.t.Helper()
	tx, err := s.BeginTx(ctx)
	s.ok("BeginTx", err)
	s.t.Cleanup(func() { _ = s.Rollback(tx) })
	s.write(ctx, tx, ids...)
	return tx
}

// write writes events with these ids.
func (s *adapterSuite) write(ctx context.Context, tx any, ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		got, err := s.Write(ctx, tx, suiteEvent(id))
		s.ok("Write", err)
		if got != id {
			s.t.Errorf("Write returned the id %q; want %q", got, id)
		}
		s.follow(ctx, tx, id)
	}
}

// writing makes a function for RunInTx that writes an event and returns the result.
func (s *adapterSuite) writing(id string, result error) func(ctx context.Context, tx any) error {
	return func(ctx context.Context, tx any) error {
		s.t.Helper()
		s.write(ctx, tx, id)
		return result
	}
}

// writingAmbient makes a function for [outbox.InTx] that writes an event into the transaction in
// ctx and returns the result.
func (s *adapterSuite) writingAmbient(id string, result error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		s.t.Helper()
		_, err := s.writer.Write(ctx, suiteEvent(id))
		s.ok("Write", err)
		return result
	}
}

// suiteEvent is an event; if the id is empty, the writer makes an id.
func suiteEvent(id string) outbox.Envelope {
	return outbox.Envelope{EventID: id, EventType: "SuiteEvent", Payload: outbox.RawJSON("1")}
}

// run runs a raw statement in the transaction.
func (s *adapterSuite) run(tx any, query string) {
	s.t.Helper()
	s.ok(query, s.Exec(s.ctx, tx, query))
}

// duplicate is a statement that fails.
const duplicate = "INSERT INTO suite_row (id, n) VALUES (1, 1)"

// fails runs a raw statement that must fail.
func (s *adapterSuite) fails(tx any, query string) {
	s.t.Helper()
	if err := s.Exec(s.ctx, tx, query); err == nil {
		s.t.Errorf("%s succeeded", query)
	}
}

// refusesWrite checks that Write fails in a transaction that is over on the
// database, where the row would be committed at once.
func (s *adapterSuite) refusesWrite(tx any) {
	s.t.Helper()
	if _, err := s.Write(s.ctx, tx, suiteEvent("")); err == nil {
		s.t.Error("Write succeeded in a transaction that is over")
	}
}

// commitFails checks that Commit of a transaction that was rolled back fails.
func (s *adapterSuite) commitFails(tx any) {
	s.t.Helper()
	if err := s.Commit(tx); err == nil {
		s.t.Error("Commit returned nil for a transaction that was rolled back")
	}
}

// rows checks which events are in the table.
func (s *adapterSuite) rows(want ...string) {
	s.t.Helper()
	got := s.stored()
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		s.t.Errorf("the table has the events %v; want %v", got, want)
	}
}

// stored returns the ids in the table, sorted.
func (s *adapterSuite) stored() []string {
	s.t.Helper()
	rows, err := s.DB.QueryContext(s.ctx, "SELECT id FROM suite_event")
	s.ok("reading the events", err)
	defer func() { _ = rows.Close() }()
	var got []string
	for rows.Next() {
		var id string
		s.ok("reading an event", rows.Scan(&id))
		got = append(got, id)
	}
	s.ok("reading the events", rows.Err())
	slices.Sort(got)
	return got
}

// wantConnectionsFree waits until no connection is in use.
func (s *adapterSuite) wantConnectionsFree() {
	s.t.Helper()
	s.eventually("all connections are free", func() bool { return s.Pool.Stats().InUse == 0 })
}
