package cdc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/logread"
	"github.com/outboxkit/outbox-go/internal/sqlname"
	"github.com/outboxkit/outbox-go/outbox"
)

// Config configures a [Reader]. Source and Publish are required.
type Config struct {
	// Source is the log of the database: [Postgres].
	Source Source
	// Publish publishes events in the order of the batch, such as [relay.Relay.Publish] or [ToListener].
	// Publish returns nil when all events are published, else an error for each event, nil for
	// published events. An event that [outbox.Defer] defers is published again after the delay, and
	// counts no attempt. Publish is called by one goroutine at a time.
	//
	// [relay.Relay.Publish]: https://pkg.go.dev/github.com/outboxkit/outbox-go/relay#Relay.Publish
	Publish func(ctx context.Context, batch []outbox.Envelope) []error
	// Dead takes an event that cannot be published: after MaxAttempts failures, at once when the error
	// is [outbox.Dead], as for a message that the broker refuses, and at once when the row cannot be
	// read. Dead keeps the event, for example in a table or a topic of yours. When Dead returns nil, the
	// reader goes on after the event. Defaults to no function: the event holds up the reader, which
	// logs it and tries again until it is published.
	Dead func(ctx context.Context, env outbox.Envelope, err error) error
	// MaxAttempts is after how many failures an event is given to Dead. Defaults to 10.
	MaxAttempts int
	// BatchSize is how many events a call of Publish gets at most. Memory holds two batches: while a batch
	// is published, the next batch is read. Defaults to 500.
	BatchSize int
	// BatchBytes is how many bytes the payloads and headers of a batch have at most; a larger event is a
	// batch by itself. Defaults to 8 MiB.
	BatchBytes int
	// MaxBackoff caps the waits before the reader connects again and before it publishes an event again.
	// The waits begin with a second and double. Defaults to 30 s.
	MaxBackoff time.Duration
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// Source is the log of a database: [Postgres].
type Source interface {
	withDefaults() Source
	validate(bad func(field, problem string, args ...any))
}

// Postgres is the log of PostgreSQL 13 or newer with wal_level=logical. DSN is required.
type Postgres struct {
	// DSN is the address of the database, as pgx reads it, with a role that has REPLICATION. The
	// connection must not go through a pooler such as PgBouncer.
	DSN string
	// Slot is the name of the slot and of the publication: lower-case letters, digits and
	// underscores. Defaults to "outbox".
	Slot string
	// Tables are the outboxes' tables, with a schema or found by the role's search_path. Defaults to
	// outbox_event.
	Tables []string
	// NoFailover makes [Reader.Setup] leave out FAILOVER, with which PostgreSQL 17 and newer keep the
	// slot on standbys that have sync_replication_slots. Defaults to false.
	NoFailover bool
	// Keepalive is how often the server hears from the reader at least. Keepalive must be shorter than the
	// server's wal_sender_timeout, a minute by default. A server that is silent three times as long counts
	// as dead. Defaults to 10 s.
	Keepalive time.Duration
}

// Defaults of [Config] and [Postgres].
const (
	DefaultMaxAttempts = logread.DefaultMaxAttempts
	DefaultBatchSize   = logread.DefaultBatchSize
	DefaultBatchBytes  = logread.DefaultBatchBytes
	DefaultMaxBackoff  = logread.DefaultMaxBackoff
	DefaultSlot        = "outbox"
	DefaultTable       = "outbox_event"
	DefaultKeepalive   = 10 * time.Second
)

// maxSlot leaves room for the suffix of the slot that Setup uses.
const maxSlot = 63 - len(setupSuffix)

// publisher is the part of the config that knows no database.
func (c *Config) publisher() logread.Publisher {
	return logread.Publisher{
		Publish: c.Publish, Dead: c.Dead, MaxAttempts: c.MaxAttempts, BatchSize: c.BatchSize,
		BatchBytes: c.BatchBytes, MaxBackoff: c.MaxBackoff, Logger: c.Logger,
	}.WithDefaults()
}

func (c *Config) validate(out logread.Publisher) error {
	var errs []error
	bad := func(field, problem string, args ...any) {
		errs = append(errs, &outbox.FieldError{Field: "cdc." + field, Problem: fmt.Sprintf(problem, args...)})
	}
	if c.Source == nil {
		bad("Config.Source", "is nil; set the log of your database, such as cdc.Postgres")
	} else {
		c.Source.validate(bad)
	}
	out.Validate("cdc.ToListener", bad)
	return errors.Join(errs...)
}

func (p Postgres) withDefaults() Source {
	p.Slot = cmp.Or(p.Slot, DefaultSlot)
	p.Keepalive = cmp.Or(p.Keepalive, DefaultKeepalive)
	p.Tables = slices.Clone(p.Tables)
	if len(p.Tables) == 0 {
		p.Tables = []string{DefaultTable}
	}
	return p
}

func (p Postgres) validate(bad func(field, problem string, args ...any)) {
	if _, err := p.connConfig(); err != nil { // err may quote the password
		bad("Postgres.DSN", "has %d characters and cannot be read; write postgres://user:password@host:5432/database", len(p.DSN))
	}
	if len(p.Slot) > maxSlot || strings.Trim(p.Slot, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		bad("Postgres.Slot", "is %.100q; a slot's name is lower-case letters, digits and underscores, at most %d of them", p.Slot, maxSlot)
	}
	for i, table := range p.Tables {
		if _, err := sqlname.Parse(table); err != nil {
			bad(fmt.Sprintf("Postgres.Tables[%d]", i), "%v", err)
		}
	}
	if p.Keepalive < 0 {
		bad("Postgres.Keepalive", "is %s; it must be positive, or zero for %s", p.Keepalive, DefaultKeepalive)
	}
}
