package relaynats

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
)

// Config configures a [Publisher].
type Config struct {
	// URL is the address of a server, or several of them with commas between. Defaults to
	// nats.DefaultURL.
	URL string
	// Options are the client's options. The options come after the publisher's options, with which
	// the client connects in the background, reconnects for ever, even after the server refused the
	// credentials, and pings every 10 s. The publisher sets ReconnectBufSize to -1 in any case, and
	// calls your ErrorHandler and ReconnectErrHandler after its own handlers.
	Options []nats.Option
	// JetStream are the client's options of JetStream, such as
	// jetstream.WithPublishAsyncMaxPending: the most messages without an acknowledgement, 4,000 by
	// default. The publisher waits 30 s for an acknowledgement unless
	// jetstream.WithPublishAsyncTimeout says otherwise.
	JetStream []jetstream.JetStreamOpt
}

// Defaults of a connection.
const (
	pingInterval = 10 * time.Second
	ackTimeout   = 30 * time.Second
)

// Publisher is a [relay.Publisher] for JetStream, and safe for concurrent use.
type Publisher struct {
	conn      *nats.Conn
	js        jetstream.JetStream
	dialError atomic.Pointer[error] // of the last try to connect

	mu    sync.Mutex
	calls map[*call]bool // under way
}

var (
	_ relay.Publisher    = (*Publisher)(nil)
	_ relay.TopicChecker = (*Publisher)(nil)
)

// New makes a publisher and begins to connect. New does not wait for the server: while no server
// answers, events stay in the outbox. [Publisher.Ping] says whether the publisher is connected. New
// returns only errors of the options.
func New(cfg Config) (*Publisher, error) {
	if cfg.URL == "" {
		cfg.URL = nats.DefaultURL
	}
	if err := checkURL(cfg.URL); err != nil {
		return nil, err
	}
	p := &Publisher{calls: map[*call]bool{}}
	conn, err := nats.Connect(cfg.URL, slices.Concat([]nats.Option{
		nats.Name("outbox relay"),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(pingInterval),
	}, cfg.Options, []nats.Option{p.require})...)
	if err != nil {
		return nil, fmt.Errorf("relaynats: the options of the connection: %w", err)
	}
	js, err := jetstream.New(conn, append([]jetstream.JetStreamOpt{jetstream.WithPublishAsyncTimeout(ackTimeout)}, cfg.JetStream...)...)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("relaynats: the options of JetStream: %w", err)
	}
	p.conn, p.js = conn, js
	return p, nil
}

// checkURL refuses URLs that the client would quote in an error, with the password.
func checkURL(servers string) error {
	for server := range strings.SplitSeq(servers, ",") {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		if u, err := url.Parse(server); err != nil || u.Hostname() == "" || !validPort(u.Port()) {
			return &outbox.FieldError{Field: "relaynats.Config.URL", Problem: fmt.Sprintf("has an address of %d characters that is not one; write nats://host:4222", len(server))}
		}
	}
	return nil
}

// validPort reports whether the client can connect to a port. Without a port the client takes 4222.
func validPort(port string) bool {
	_, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil
}

// require sets the options on which the publisher relies. A message that the client kept while it
// was not connected would arrive after the event was deferred.
func (p *Publisher) require(o *nats.Options) error {
	o.ReconnectBufSize = -1
	theirs := o.AsyncErrorCB
	o.AsyncErrorCB = func(conn *nats.Conn, sub *nats.Subscription, err error) {
		p.denied(err)
		if theirs != nil {
			theirs(conn, sub, err)
		}
	}
	tried := o.ReconnectErrCB
	o.ReconnectErrCB = func(conn *nats.Conn, err error) {
		p.dialError.Store(&err)
		if tried != nil {
			tried(conn, err)
		}
	}
	return nil
}

// connected returns nil, or an error with the reason why the client is not connected.
func (p *Publisher) connected() error {
	if p.conn.IsConnected() {
		return nil
	}
	status := strings.ToLower(p.conn.Status().String())
	if err := p.conn.LastError(); err != nil {
		return fmt.Errorf("%w: the connection is %s: %w", relay.ErrUnavailable, status, err)
	}
	if err := p.dialError.Load(); err != nil { // the client does not keep this error
		return fmt.Errorf("%w: the connection is %s: %w", relay.ErrUnavailable, status, *err)
	}
	return fmt.Errorf("%w: the connection is %s", relay.ErrUnavailable, status)
}

// Ping reports whether a server answers.
func (p *Publisher) Ping(ctx context.Context) error {
	if err := p.connected(); err != nil {
		return fmt.Errorf("relaynats: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, pingInterval)
	defer cancel()
	if err := p.conn.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("relaynats: %w: %w", relay.ErrUnavailable, err)
	}
	return nil
}

// Close closes the connection. Events that are being published then fail as during an
// outage, so close the outbox first.
func (p *Publisher) Close(ctx context.Context) error {
	var err error
	if p.conn.IsConnected() {
		within, cancel := context.WithTimeout(ctx, pingInterval)
		defer cancel()
		err = p.conn.FlushWithContext(within)
	}
	p.conn.Close()
	if err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
		return fmt.Errorf("relaynats: closing: %w", err)
	}
	return nil
}

// CheckTopic reports the problem with a subject.
func (*Publisher) CheckTopic(subject string) error {
	for token := range strings.SplitSeq(subject, ".") {
		switch {
		case token == "":
			return errors.New("a subject has no empty part between its dots")
		case token == "*" || token == ">":
			return errors.New("a message's subject has no wildcard")
		case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r == 0x7f }):
			return errors.New("a subject has no space and no control character")
		}
	}
	return nil
}
