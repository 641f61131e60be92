package binlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxkit/outbox-go/internal/logread"
	"github.com/outboxkit/outbox-go/internal/sqlname"
	"github.com/outboxkit/outbox-go/outbox"
)

// Config configures a [Reader]. DSN and Publish are required.
type Config struct {
	// DSN is the address of the database, as github.com/go-sql-driver/mysql reads it, by tcp or a unix
	// socket. The connection must not go through a proxy that shares connections, such as ProxySQL. The
	// user needs REPLICATION SLAVE and REPLICATION CLIENT (on MariaDB BINLOG MONITOR) ON *.*, SELECT on
	// the tables, and SELECT, INSERT, UPDATE and DELETE on the control table; DELETE is for the reader's report.
	DSN string
	// Name is the name of the reader: of its position in the control table, and of the lock that lets a
	// single process read. Name has at most 64 letters, digits, hyphens, dots and underscores. Defaults to "outbox".
	Name string
	// Tables are the outboxes' tables, with a database or in the database of DSN. The position is in the
	// control table of the first. Defaults to outbox_event.
	Tables []string
	// ServerID is the number by which the server knows its replicas, and must be unique among them.
	// Defaults to a random number from 2,147,483,648 to 4,294,967,295, which New chooses.
	ServerID uint32
	// Keepalive is how often the server and the reader hear from each other at least. A server that is
	// silent three times as long counts as dead; a process that is silent three times as long loses the
	// lock. Keepalive is at least a second. Defaults to 10 s.
	Keepalive time.Duration
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

// Defaults of [Config].
const (
	DefaultName        = "outbox"
	DefaultTable       = "outbox_event"
	DefaultKeepalive   = 10 * time.Second
	DefaultMaxAttempts = logread.DefaultMaxAttempts
	DefaultBatchSize   = logread.DefaultBatchSize
	DefaultBatchBytes  = logread.DefaultBatchBytes
	DefaultMaxBackoff  = logread.DefaultMaxBackoff
)

// Bounds of the fields.
const (
	maxName       = 64
	minKeepalive  = time.Second
	firstServerID = 1 << 31
)

// Reader publishes the rows that are inserted into outboxes' tables, in the order in which their
// transactions committed.
type Reader struct {
	cfg    Config // with defaults
	out    logread.Publisher
	whole  logread.Moment // when the whole log was published
	dsn    *mysql.Config
	tables []sqlname.Name
}

// New makes a reader. New does not connect. If fields are invalid, New returns no reader and reports all
// invalid fields together, each as an [outbox.FieldError].
func New(cfg Config) (*Reader, error) {
	cfg.Name = cmp.Or(cfg.Name, DefaultName)
	cfg.Keepalive = cmp.Or(cfg.Keepalive, DefaultKeepalive)
	cfg.Tables = slices.Clone(cfg.Tables)
	if len(cfg.Tables) == 0 {
		cfg.Tables = []string{DefaultTable}
	}
	if cfg.ServerID == 0 {
		cfg.ServerID = anyServerID()
	}
	r := &Reader{cfg: cfg, out: logread.Publisher{
		Publish: cfg.Publish, Dead: cfg.Dead, MaxAttempts: cfg.MaxAttempts, BatchSize: cfg.BatchSize,
		BatchBytes: cfg.BatchBytes, MaxBackoff: cfg.MaxBackoff, Logger: cfg.Logger,
	}.WithDefaults()}
	if err := r.validate(); err != nil {
		return nil, err
	}
	return r, nil
}

func anyServerID() uint32 { return firstServerID + rand.Uint32N(firstServerID) } //nolint:gosec // no secret

// validate checks the fields, and reads the DSN and the tables.
func (r *Reader) validate() error {
	var errs []error
	bad := func(field, problem string, args ...any) {
		errs = append(errs, &outbox.FieldError{Field: "binlog." + field, Problem: fmt.Sprintf(problem, args...)})
	}
	dsn, err := mysql.ParseDSN(r.cfg.DSN)
	switch {
	case err != nil || r.cfg.DSN == "": // err may quote the password
		bad("Config.DSN", "has %d characters and cannot be read; write user:password@tcp(host:3306)/database", len(r.cfg.DSN))
		dsn = &mysql.Config{DBName: "unknown", Net: "tcp"}
	case dsn.Net != "tcp" && dsn.Net != "unix":
		bad("Config.DSN", "has the network %.100q; the log is read by tcp or unix", dsn.Net)
	}
	r.dsn = dsn
	if name := r.cfg.Name; len(name) > maxName || !plain(name) {
		bad("Config.Name", "is %.100q; a name is letters, digits, hyphens, dots and underscores, at most %d of them", name, maxName)
	}
	for i, text := range r.cfg.Tables {
		field := fmt.Sprintf("Config.Tables[%d]", i)
		name, err := sqlname.Parse(text)
		switch {
		case err != nil:
			bad(field, "%v", err)
		case name.Schema == "" && dsn.DBName == "":
			bad(field, "is %q, and DSN names no database; write database.table, or add the database to DSN", text)
		}
		name.Schema = cmp.Or(name.Schema, dsn.DBName)
		r.tables = append(r.tables, name)
	}
	if r.cfg.Keepalive < minKeepalive {
		bad("Config.Keepalive", "is %s; it must be at least %s, or zero for %s", r.cfg.Keepalive, minKeepalive, DefaultKeepalive)
	}
	r.out.Validate("binlog.ToListener", bad)
	return errors.Join(errs...)
}

// plain reports whether a name needs no quotes inside.
func plain(name string) bool {
	for _, c := range name {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.', c == '_':
		default:
			return false
		}
	}
	return true
}

// ToListener is a Publish for [Config] that calls a listener for one event after the other. When the
// listener fails for an event, the later events of its aggregate in the batch wait. An error counts as a
// failure; [outbox.Defer], [outbox.RetryIn] and [outbox.Dead] count as they say.
func ToListener(listener outbox.Listener) func(ctx context.Context, batch []outbox.Envelope) []error {
	return logread.ToListener(listener)
}
