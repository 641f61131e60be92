package relayredis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
)

// Fields of an entry.
const (
	FieldMessageID   = "message-id"
	FieldContentType = "content-type"
	FieldData        = "data"
)

// maxBulk is the server's default of proto-max-bulk-len.
const maxBulk = 512 << 20

// Config configures a [Publisher].
type Config struct {
	// Options are the client's options: addresses, credentials, TLS, options of a cluster or a
	// sentinel. Defaults to a server on localhost:6379. The publisher sets MaxRetries to -1 and
	// ContextTimeoutEnabled in any case: the outbox repeats failed messages.
	Options *redis.UniversalOptions
	// MaxLen is about how many entries a stream keeps. Redis deletes older entries, even entries
	// that no consumer has read. Defaults to 0: all entries are kept.
	MaxLen int64
	// MaxBytes is the most bytes of a payload or a header. A larger message is refused: Redis would
	// close the connection, and no message of the batch would be published. Defaults to 512 MB, as
	// proto-max-bulk-len of the server. Set both to the same value.
	MaxBytes int
	// NoMkStream publishes only to streams that exist. An event for another stream is a failed
	// delivery. Defaults to false: Redis makes the stream.
	NoMkStream bool
}

// Publisher is a [relay.Publisher] for Redis Streams, and safe for concurrent use.
type Publisher struct {
	client redis.UniversalClient
	cfg    Config
}

var _ relay.Publisher = (*Publisher)(nil)

// New makes a publisher and does not connect: while no server answers, events stay in the outbox.
// [Publisher.Ping] says whether a server answers.
func New(cfg Config) (*Publisher, error) {
	if cfg.MaxLen < 0 {
		return nil, &outbox.FieldError{Field: "relayredis.Config.MaxLen", Problem: fmt.Sprintf("is %d; it must not be negative", cfg.MaxLen)}
	}
	if cfg.MaxBytes < 0 {
		return nil, &outbox.FieldError{Field: "relayredis.Config.MaxBytes", Problem: fmt.Sprintf("is %d; it must not be negative", cfg.MaxBytes)}
	}
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, maxBulk)
	var opts redis.UniversalOptions
	if cfg.Options != nil {
		opts = *cfg.Options
	}
	// A client that repeats a pipeline by itself could add an event after later events.
	opts.Addrs = slices.Clone(opts.Addrs)
	opts.MaxRetries, opts.ContextTimeoutEnabled = -1, true
	return &Publisher{redis.NewUniversalClient(&opts), cfg}, nil
}

// Publish adds the messages to their streams in a single pipeline.
func (p *Publisher) Publish(ctx context.Context, messages []relay.Message) []error {
	pipe := p.client.Pipeline()
	added, errs := make([]*redis.StringCmd, len(messages)), make([]error, len(messages))
	for i, m := range messages {
		values := fields(m)
		if errs[i] = p.checkSize(values); errs[i] != nil {
			continue
		}
		added[i] = pipe.XAdd(ctx, &redis.XAddArgs{
			Stream: m.Topic, NoMkStream: p.cfg.NoMkStream, MaxLen: p.cfg.MaxLen, Approx: p.cfg.MaxLen > 0, Values: values,
		})
	}
	_, err := pipe.Exec(ctx)
	failed := err != nil
	for i, cmd := range added {
		switch {
		case cmd == nil:
			failed = true
		case cmd.Err() != nil:
			errs[i] = classify(cmd.Err())
		case cmd.Val() == "": // the client could not set up the connection
			errs[i] = setup(err)
		}
	}
	if !failed {
		return nil
	}
	return errs
}

// checkSize refuses a value for which the server would close the connection.
func (p *Publisher) checkSize(values []any) error {
	for i := 1; i < len(values); i += 2 {
		var size int
		switch v := values[i].(type) {
		case string:
			size = len(v)
		case []byte:
			size = len(v)
		}
		if size > p.cfg.MaxBytes {
			return fmt.Errorf("%w: the field %q has %d bytes; relayredis.Config.MaxBytes allows %d", relay.ErrRefused, values[i-1], size, p.cfg.MaxBytes)
		}
	}
	return nil
}

// setup is the error of a connection that could not be set up, such as a connection to a database
// number that the server does not have. No event is to blame for this error.
func setup(err error) error {
	known := classify(err)
	if errors.Is(known, relay.ErrUnavailable) || errors.Is(known, context.DeadlineExceeded) || errors.Is(known, context.Canceled) {
		return known
	}
	return fmt.Errorf("%w: opening a connection: %w", relay.ErrUnavailable, known)
}

// fields are the fields of a message's entry. A reader that makes a map of the fields keeps the
// last of two fields with the same name, which is the publisher's own field.
func fields(m relay.Message) []any {
	list := m.HeaderList("ce-", FieldContentType)
	values := make([]any, 0, 2*len(list)+4)
	for _, h := range list {
		values = append(values, h.Key, h.Value)
	}
	return append(values, FieldMessageID, m.ID, FieldData, m.Body)
}

// Codes at the beginning of an answer of the server.
var (
	// away: at present the server, or the node of a cluster, takes no entry.
	away = []string{"OOM", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "MOVED", "TRYAGAIN", "BUSY", "MISCONF", "NOREPLICAS", "NOAUTH", "WRONGPASS"}
	// unroutable: the stream's name belongs to something else.
	unroutable = []string{"WRONGTYPE"}
)

// classify says which kind of failure an error is.
func classify(err error) error {
	var answer redis.Error
	switch {
	case err == nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, redis.Nil):
		return fmt.Errorf("%w: there is no stream of that name", relay.ErrUnroutable)
	case !errors.As(err, &answer): // the connection's
		return fmt.Errorf("%w: %w", relay.ErrUnavailable, err)
	}
	code, text, _ := strings.Cut(answer.Error(), " ")
	switch {
	case slices.Contains(away, code), code == "ERR" && strings.HasPrefix(text, "max number of clients"):
		return fmt.Errorf("%w: %w", relay.ErrUnavailable, err)
	case slices.Contains(unroutable, code):
		return fmt.Errorf("%w: %w", relay.ErrUnroutable, err)
	case strings.Contains(text, ", with args"): // the arguments follow: headers and the payload
		known, _, _ := strings.Cut(answer.Error(), ", with args")
		return errors.New(known)
	default: // such as NOPERM, which an operator may fix
		return err
	}
}

// Ping reports whether the server answers.
func (p *Publisher) Ping(ctx context.Context) error {
	if err := classify(p.client.Ping(ctx).Err()); err != nil {
		return fmt.Errorf("relayredis: %w", err)
	}
	return nil
}

// Close closes the connections. Events that are being published then fail as during an
// outage, so close the outbox first.
func (p *Publisher) Close(context.Context) error {
	if err := p.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("relayredis: closing: %w", err)
	}
	return nil
}
