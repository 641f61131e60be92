package cdc

import (
	"context"
	"errors"
	"log/slog"

	"github.com/outboxkit/outbox-go/internal/logread"
	"github.com/outboxkit/outbox-go/outbox"
)

// Reader publishes the rows that are inserted into outboxes' tables, in the order in which their
// transactions committed.
type Reader struct {
	out   logread.Publisher
	pg    Postgres
	whole logread.Moment // when the whole log was published
}

// New makes a reader. New does not connect. If fields are invalid, New returns no reader and reports all
// invalid fields together, each as an [outbox.FieldError].
func New(cfg Config) (*Reader, error) {
	out := cfg.publisher()
	if cfg.Source != nil {
		cfg.Source = cfg.Source.withDefaults()
	}
	if err := cfg.validate(out); err != nil {
		return nil, err
	}
	return &Reader{out: out, pg: cfg.Source.(Postgres)}, nil
}

// ToListener is a Publish for [Config] that calls a listener for one event after the other. When the
// listener fails for an event, the later events of its aggregate in the batch wait. An error counts as a
// failure; [outbox.Defer], [outbox.RetryIn] and [outbox.Dead] count as they say.
func ToListener(listener outbox.Listener) func(ctx context.Context, batch []outbox.Envelope) []error {
	return logread.ToListener(listener)
}

// silence is after how many keepalives a silent server counts as dead.
const silence = 3

// Run follows the slot and publishes until ctx ends; then Run returns nil. When the connection fails, Run
// connects again. While another process follows the slot, Run waits. Run returns an
// error if trying again is no use: [ErrNoSlot], [ErrSlotLost] and [ErrNotSetUp].
//
// Run calls Publish with a context that ends with ctx. Events that Publish has not published then are
// published by the next reader.
func (r *Reader) Run(ctx context.Context) error {
	return r.out.Run(ctx, logread.Loop{
		Follow: r.follow, Final: final, Name: slog.String("slot", r.pg.Slot),
		InUse: func(err error) bool { return errors.Is(err, errInUse) },
	})
}

// follow connects and follows the slot until something fails.
func (r *Reader) follow(ctx context.Context) error {
	// A server that is silent must not hold up the start, as it must not hold up the stream.
	starting, cancel := context.WithTimeout(ctx, silence*r.pg.Keepalive)
	defer cancel()
	c, err := r.pg.connect(starting)
	if err != nil {
		return err
	}
	defer c.close()
	tables, err := c.check(starting)
	if err != nil {
		return err
	}
	s, err := r.stream(starting, c, tables)
	if err != nil {
		return err
	}
	r.out.Logger.InfoContext(ctx, "cdc: the reader follows the slot", "slot", r.pg.Slot)
	defer r.report(ctx, tables)()
	return s.run(ctx)
}
