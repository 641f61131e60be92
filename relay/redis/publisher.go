package relayredis

import (
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

// Config configures a [Publisher].
type Config struct {
	// Options are the client's: addresses, credentials, TLS, a cluster's or a sentinel's.
	// Defaults to a server on localhost:6379. The publisher sets MaxRetries to -1 and
	// ContextTimeoutEnabled in any case: the outbox repeats what failed.
	Options *redis.UniversalOptions
	// MaxLen is about how many entries a stream keeps. Redis deletes older ones, also those
	// that no consumer has read. Defaults to 0: all.
	MaxLen int64
	// Exact keeps exactly MaxLen entries, which costs Redis more.
	Exact bool
	// NoMkStream publishes only to streams that are there. An event of another one is a
	// failed delivery. Defaults to false: Redis makes the stream.
	NoMkStream bool
}

// Publisher is a [relay.Publisher] for Redis Streams. It is safe for concurrent use.
type Publisher struct {
	client redis.UniversalClient
	cfg    Config
}

var _ relay.Publisher = (*Publisher)(nil)

// New makes a publisher. It does not connect: while no server answers, events stay in the
// outbox. [Publisher.Ping] says whether one does.
func New(cfg Config) (*Publisher, error) {
	if cfg.MaxLen < 0 {
		return nil, &outbox.FieldError{Field: "relayredis.Config.MaxLen", Problem: fmt.Sprintf("is %d; it must not be negative", cfg.MaxLen)}
	}
	if cfg.Exact && cfg.MaxLen == 0 {
		return nil, &outbox.FieldError{Field: "relayredis.Config.Exact", Problem: "is set without MaxLen"}
	}
	var opts redis.UniversalOptions
	if cfg.Options != nil {
		opts = *cfg.Options
	}
	// A client that repeats a pipeline of its own could add an event after later ones.
	opts.MaxRetries, opts.ContextTimeoutEnabled = -1, true
	return &Publisher{redis.NewUniversalClient(&opts), cfg}, nil
}

// Publish adds the messages to their streams in one pipeline.
func (p *Publisher) Publish(ctx context.Context, messages []relay.Message) []error {
	pipe := p.client.Pipeline()
	added := make([]*redis.StringCmd, len(messages))
	for i, m := range messages {
		added[i] = pipe.XAdd(ctx, &redis.XAddArgs{
			Stream: m.Topic, NoMkStream: p.cfg.NoMkStream, MaxLen: p.cfg.MaxLen, Approx: p.cfg.MaxLen > 0 && !p.cfg.Exact, Values: fields(m),
		})
	}
	_, err := pipe.Exec(ctx)
	if err == nil {
		return nil
	}
	errs := make([]error, len(messages))
	for i, cmd := range added {
		switch {
		case cmd.Err() != nil:
			errs[i] = classify(cmd.Err())
		case cmd.Val() == "": // the client leaves it without an error when it cannot log in
			errs[i] = classify(err)
		}
	}
	return errs
}

// fields are those of a message's entry. A reader that makes a map of them keeps the last of
// two with one name, which is the publisher's own.
func fields(m relay.Message) []any {
	list := m.HeaderList("ce-", FieldContentType)
	values := make([]any, 0, 2*len(list)+4)
	for _, h := range list {
		values = append(values, h.Key, h.Value)
	}
	return append(values, FieldMessageID, m.ID, FieldData, m.Body)
}

// Codes with which an answer of the server begins.
var (
	// away: the server, or the node of a cluster, takes no entry now.
	away = []string{"OOM", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "MISCONF", "NOREPLICAS", "NOAUTH", "WRONGPASS"}
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
	default: // such as NOPERM, which somebody may mend
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
