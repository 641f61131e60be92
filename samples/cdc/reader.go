package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outboxkit/outbox-go/outbox"
)

const (
	batchSize = 500
	// gather is how long a batch waits for more events.
	gather = 10 * time.Millisecond
	// longestRetry is the longest time between two attempts to publish an event that the broker
	// refuses. The first wait is a second, and each later wait is twice the wait before.
	longestRetry = 30 * time.Second
)

// Reader publishes the rows that are inserted into an outbox's table, in the order in which their
// transactions committed. It follows a slot of logical decoding, in which the server keeps the
// position up to which everything is published. A reader that begins again publishes the rows after
// this position, some of them a second time.
type Reader struct {
	DSN, Table, Slot string // Slot also names the publication
	// Publish publishes events in order, such as [relay.Relay.Publish].
	Publish func(ctx context.Context, batch []outbox.Envelope) []error
	// Keepalive is how often the server hears from the reader at least. It must be shorter
	// than the server's wal_sender_timeout, a minute by default. Defaults to 10 s.
	Keepalive time.Duration

	conn    *pgconn.PgConn
	decoder decoder
	batch   []outbox.Envelope // not published yet
	// done is the position up to which everything is published; next is the value of done once the
	// batch is published.
	done, next uint64
}

// ErrNoSlot means that the server has no slot of the reader's name. The reader does not create a
// slot: a new slot begins at the current position, and rows that were committed since the old slot
// was read would never be published.
var ErrNoSlot = errors.New("the slot does not exist; create it once with -create-slot, and read \"The slot is gone\" in docs/how-to/change-data-capture.md if it existed before")

// Run follows the slot until ctx ends or something fails. Without the slot, Run returns
// [ErrNoSlot].
func (r *Reader) Run(ctx context.Context) error {
	r.decoder, r.batch, r.done, r.next = decoder{}, nil, 0, 0
	r.Keepalive = cmp.Or(r.Keepalive, 10*time.Second)
	var err error
	if r.conn, err = r.connect(ctx); err != nil {
		return err
	}
	defer func() { _ = r.conn.Close(context.WithoutCancel(ctx)) }()
	if err := r.start(ctx); err != nil {
		return fmt.Errorf("cdc: starting at slot %q: %w", r.Slot, err)
	}
	for {
		if err := r.step(ctx); err != nil {
			return fmt.Errorf("cdc: %w", err)
		}
	}
}

// start begins to stream.
func (r *Reader) start(ctx context.Context) error {
	name := pgx.Identifier{r.Slot}.Sanitize()
	// From 0/0 means from the slot's own position.
	r.conn.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION SLOT " + name +
		" LOGICAL 0/0 (proto_version '1', publication_names '" + strings.ReplaceAll(name, "'", "''") + "')"})
	if err := r.conn.Frontend().Flush(); err != nil {
		return err
	}
	for {
		msg, err := r.conn.ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		switch msg := msg.(type) {
		case *pgproto3.CopyBothResponse:
			return nil
		case *pgproto3.ErrorResponse:
			if msg.Code == undefinedObject {
				return ErrNoSlot
			}
			return pgconn.ErrorResponseToPgError(msg)
		}
	}
}

// step handles a message, or publishes the batch when no message comes.
func (r *Reader) step(ctx context.Context) error {
	patience := r.Keepalive
	if len(r.batch) > 0 {
		patience = gather
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	msg, err := r.conn.ReceiveMessage(wait)
	cancel()
	if err != nil {
		if ctx.Err() == nil && pgconn.Timeout(err) {
			return r.flush(ctx)
		}
		return err
	}
	switch msg := msg.(type) {
	case *pgproto3.ErrorResponse:
		return pgconn.ErrorResponseToPgError(msg)
	case *pgproto3.CopyData:
		return r.copied(ctx, msg.Data)
	default:
		return nil
	}
}

// copied handles a message of the replication protocol.
func (r *Reader) copied(ctx context.Context, data []byte) error {
	switch {
	case len(data) > 17 && data[0] == 'k': // keepalive: position, time, whether to answer
		if len(r.batch) == 0 && !r.decoder.open {
			// The log of other tables is behind the reader too.
			r.next = max(r.next, binary.BigEndian.Uint64(data[1:]))
		}
		if data[17] == 1 || r.next > r.done {
			return r.flush(ctx)
		}
	case len(data) > 25 && data[0] == 'w': // positions, time, and a message of pgoutput
		env, commit, err := r.decoder.decode(data[25:])
		if err != nil {
			return err
		}
		r.next = max(r.next, commit)
		if env != nil {
			r.batch = append(r.batch, *env)
		}
		if len(r.batch) >= batchSize {
			return r.flush(ctx)
		}
	}
	return nil
}

// flush publishes the batch, again and again until the broker has all of it, and confirms the
// position. An event that the broker refuses holds up the reader: later events must not overtake
// it.
func (r *Reader) flush(ctx context.Context) error {
	for retry := time.Second; len(r.batch) > 0; retry = min(2*retry, longestRetry) {
		results, err := r.publish(ctx)
		if err != nil {
			return err
		}
		wait := r.keep(results, retry)
		if len(r.batch) == 0 {
			break
		}
		if err := r.sleep(ctx, wait); err != nil {
			return err
		}
	}
	r.done = r.next
	return r.confirm()
}

// publish publishes the batch once. Meanwhile the server hears from the reader.
func (r *Reader) publish(ctx context.Context) ([]error, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	published := make(chan []error, 1)
	go func() { published <- r.call(ctx) }()
	alive := time.NewTicker(r.Keepalive)
	defer alive.Stop()
	for {
		select {
		case errs := <-published:
			return errs, ctx.Err()
		case <-alive.C:
			if err := r.confirm(); err != nil {
				cancel()
				<-published
				return nil, err
			}
		}
	}
}

// call calls Publish. A panic fails the batch, which is published again.
func (r *Reader) call(ctx context.Context) (errs []error) {
	defer func() {
		if v := recover(); v != nil {
			errs = slices.Repeat([]error{fmt.Errorf("publishing panicked: %v", v)}, len(r.batch))
		}
	}()
	return r.Publish(ctx, r.batch)
}

// keep keeps the events that are not published in the batch, and returns how long to wait before
// the next attempt: the longest time that a deferred event asks for, and at least retry if an event
// failed.
func (r *Reader) keep(errs []error, retry time.Duration) (wait time.Duration) {
	var left []outbox.Envelope
	var first error
	failed := 0
	for i, err := range errs {
		if err == nil {
			continue
		}
		left = append(left, r.batch[i])
		var decided *outbox.OutcomeError
		if errors.As(err, &decided) && decided.Outcome == outbox.OutcomeDeferred {
			wait = max(wait, decided.Delay)
			continue
		}
		if failed++; failed == 1 {
			first = err
		}
		wait = max(wait, retry)
	}
	if failed > 0 {
		slog.Error("cdc: events cannot be published, and hold up the reader", "events", failed, "first", first, "again_in", retry)
	}
	r.batch = left
	return wait
}

// sleep waits. Meanwhile the server hears from the reader.
func (r *Reader) sleep(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); ; {
		if err := r.confirm(); err != nil {
			return err
		}
		select {
		case <-time.After(min(time.Until(end), r.Keepalive)):
		case <-ctx.Done():
			return ctx.Err()
		}
		if !time.Now().Before(end) {
			return nil
		}
	}
}

// confirm tells the server the position: written, flushed and applied.
func (r *Reader) confirm() error {
	status := []byte{'r'}
	for range 3 {
		status = binary.BigEndian.AppendUint64(status, r.done)
	}
	status = binary.BigEndian.AppendUint64(status, uint64(time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).Microseconds()))
	r.conn.Frontend().Send(&pgproto3.CopyData{Data: append(status, 0)})
	return r.conn.Frontend().Flush()
}
