package cdc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outboxkit/outbox-go/internal/logread"
)

// stream is a connection on which the server sends the log. A single goroutine reads and writes the
// connection. Another goroutine publishes a batch, while the next batch is read.
type stream struct {
	r         *Reader
	conn      net.Conn
	frontend  *pgproto3.Frontend
	decoder   decoder
	keepalive time.Duration

	batch []logread.Event // not being published yet
	bytes int             // of the batch
	// next is the position up to which each event is published, being published, or in the batch.
	next uint64
	// sent is the value of done when the batch that is being published is published.
	sent uint64
	done uint64 // each event before this position is published

	published chan error // how publishing a batch ended; nil while no batch is being published
	// woken means that the read deadline is over because there is something else to do.
	woken atomic.Bool

	confirmed uint64    // the position that the server knows
	told      time.Time // when the server last heard from the reader
	heard     time.Time // when the reader last heard from the server, or began to listen again
	asked     bool      // the server asks for an answer
	expired   bool      // the read deadline is over
}

// stream begins to stream at the position that the server has.
func (r *Reader) stream(ctx context.Context, c *connection, tables map[string]bool) (*stream, error) {
	name := pgx.Identifier{r.pg.Slot}.Sanitize()
	pg := c.conn.PgConn()
	// From 0/0 means from the slot's own position.
	pg.Frontend().SendQuery(&pgproto3.Query{String: "START_REPLICATION SLOT " + name +
		" LOGICAL 0/0 (proto_version '1', publication_names '" + strings.ReplaceAll(name, "'", "''") + "')"})
	if err := pg.Frontend().Flush(); err != nil {
		return nil, fmt.Errorf("cdc: starting at slot %q: %w", r.pg.Slot, err)
	}
	for started := false; !started; {
		msg, err := pg.ReceiveMessage(ctx)
		if err != nil {
			return nil, fmt.Errorf("cdc: starting at slot %q: %w", r.pg.Slot, err)
		}
		switch msg := msg.(type) {
		case *pgproto3.CopyBothResponse:
			started = true
		case *pgproto3.ErrorResponse:
			return nil, fmt.Errorf("cdc: starting at slot %q: %w", r.pg.Slot, serverError(pgconn.ErrorResponseToPgError(msg)))
		}
	}
	// From here on deadlines of the reader's own end a read: a context for each message would cost more than
	// the message.
	hijacked, err := pg.Hijack()
	if err != nil {
		return nil, fmt.Errorf("cdc: starting at slot %q: %w", r.pg.Slot, err)
	}
	c.hijacked = hijacked.Conn
	now := time.Now()
	return &stream{
		r: r, conn: hijacked.Conn, frontend: hijacked.Frontend, decoder: decoder{wanted: tables},
		keepalive: r.pg.Keepalive, told: now, heard: now,
	}, nil
}

// run streams until something fails or ctx ends. When run returns, no batch is being published.
func (s *stream) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.end()
	defer cancel()
	defer context.AfterFunc(ctx, s.wake)()
	for {
		if err := s.advance(ctx); err != nil {
			return err
		}
		if err := s.receive(); err != nil {
			return fmt.Errorf("cdc: following slot %q: %w", s.r.pg.Slot, err)
		}
	}
}

// end waits for the batch that is being published, confirms what is published, and says goodbye.
func (s *stream) end() {
	if s.published != nil && <-s.published == nil {
		s.done = s.sent
	}
	if s.confirm() == nil {
		s.frontend.Send(&pgproto3.Terminate{})
		_ = s.frontend.Flush()
	}
}

// wake ends a read.
func (s *stream) wake() {
	s.woken.Store(true)
	_ = s.conn.SetReadDeadline(time.Unix(1, 0))
}

// advance does what there is to do between two messages: it hands over the batch, and confirms the
// position. While the batch is full and another batch is being published, advance waits, and the server
// keeps the rest of the log.
func (s *stream) advance(ctx context.Context) error {
	for {
		if err := s.collect(ctx); err != nil {
			return err
		}
		full := len(s.batch) >= s.r.out.BatchSize || s.bytes >= s.r.out.BatchBytes
		idle := s.frontend.ReadBufferLen() == 0
		if s.published == nil && len(s.batch) > 0 && (full || idle && !s.decoder.open) {
			s.handOver(ctx)
			full = false
		}
		if s.published == nil && len(s.batch) == 0 {
			s.done = max(s.done, s.next)
			if idle {
				s.r.whole.Now()
			}
		}
		if s.asked || time.Since(s.told) >= s.keepalive || s.done > s.confirmed && (idle || time.Since(s.told) >= time.Second) {
			if err := s.confirm(); err != nil {
				return fmt.Errorf("cdc: following slot %q: %w", s.r.pg.Slot, err)
			}
		}
		if !full {
			return nil
		}
		s.await(ctx)
	}
}

// collect takes the result of the batch that is being published, if there is one.
func (s *stream) collect(ctx context.Context) error {
	select {
	case err := <-s.published:
		s.published = nil
		if err != nil {
			return err
		}
		s.done = s.sent
	default:
	}
	return ctx.Err()
}

// await waits until the batch that is being published has a result, at most for a keepalive.
func (s *stream) await(ctx context.Context) {
	timer := time.NewTimer(s.keepalive)
	defer timer.Stop()
	select {
	case err := <-s.published:
		s.published <- err // for collect
	case <-ctx.Done():
	case <-timer.C:
	}
	s.heard = time.Now() // the server was not listened to
}

// handOver begins to publish the batch.
func (s *stream) handOver(ctx context.Context) {
	batch, result := s.batch, make(chan error, 1)
	s.batch, s.bytes, s.sent, s.published = make([]logread.Event, 0, min(len(batch), s.r.out.BatchSize)), 0, s.next, result
	go func() {
		result <- s.r.out.All(ctx, batch)
		s.wake()
	}()
}

// receive handles a message, or returns when there is something else to do.
func (s *stream) receive() error {
	if s.expired || s.frontend.ReadBufferLen() == 0 {
		s.expired = false
		if err := s.conn.SetReadDeadline(time.Now().Add(s.keepalive)); err != nil {
			return err
		}
		if s.woken.Swap(false) {
			return nil
		}
	}
	msg, err := s.frontend.Receive()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		s.expired = true
		if silent := time.Since(s.heard); silent > silence*s.keepalive {
			return fmt.Errorf("the server was silent for %s", silent.Round(time.Second))
		}
		return nil
	}
	if err != nil {
		return err
	}
	s.heard = time.Now()
	switch msg := msg.(type) {
	case *pgproto3.ErrorResponse:
		return serverError(pgconn.ErrorResponseToPgError(msg))
	case *pgproto3.CopyData:
		return s.copied(msg.Data)
	case *pgproto3.CopyDone:
		return errors.New("the server ended the stream")
	default:
		return nil
	}
}

// copied handles a message of the replication protocol.
func (s *stream) copied(data []byte) error {
	switch {
	case len(data) > 17 && data[0] == 'k': // keepalive: position, time, whether to answer
		if !s.decoder.open {
			// The server has sent each transaction that committed before the position. The log of other
			// tables and databases is behind the reader too; without this the server would keep it.
			s.next = max(s.next, binary.BigEndian.Uint64(data[1:]))
		}
		s.asked = s.asked || data[17] == 1
	case len(data) > 25 && data[0] == 'w': // positions, time, and a message of pgoutput
		event, end, err := s.decoder.decode(data[25:])
		if err != nil {
			return fmt.Errorf("at %s: %w", position(binary.BigEndian.Uint64(data[1:])), err)
		}
		s.next = max(s.next, end)
		if event != nil {
			s.batch = append(s.batch, *event)
			s.bytes += event.Size()
		}
	}
	return nil
}

// confirm tells the server the position, written, flushed and applied, and asks for an answer.
func (s *stream) confirm() error {
	status := make([]byte, 0, 34)
	status = append(status, 'r')
	for range 3 {
		status = binary.BigEndian.AppendUint64(status, s.done)
	}
	status = binary.BigEndian.AppendUint64(status, uint64(time.Since(epoch).Microseconds()))
	answer := byte(0)
	if time.Since(s.heard) >= s.keepalive {
		answer = 1
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(silence * s.keepalive)); err != nil {
		return err
	}
	s.frontend.Send(&pgproto3.CopyData{Data: append(status, answer)})
	s.confirmed, s.told, s.asked = s.done, time.Now(), false
	return s.frontend.Flush()
}

// epoch is when the clock of the protocol begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// serverError gives an error of the server the sentinel of this package.
func serverError(err error) error {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Code == "42704" && strings.Contains(e.Message, "replication slot"): // undefined_object
		return fmt.Errorf("%w: %w", ErrNoSlot, err)
	case e.Code == "55006": // object_in_use
		return fmt.Errorf("%w: %w", errInUse, err)
	}
	return err
}
