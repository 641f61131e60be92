package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/outboxname"
	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/outbox"
)

// Defaults of [Config].
const (
	DefaultInterval   = 2 * time.Second
	DefaultMaxViewers = 50
	DefaultMaxReaders = 2
	DefaultMaxDueAge  = verdict.DefaultMaxDueAge
	DefaultTimeout    = 10 * time.Second
)

// minKey is the shortest CSRFKey, in bytes.
const minKey = 32

// Config configures a [Dashboard]. Outboxes is required; the zero value of every other field means
// the default.
type Config struct {
	// Outboxes are shown by these names, which are part of the addresses: letters, digits, hyphens,
	// underscores and dots, at most 64 characters, beginning with a letter or a digit.
	Outboxes map[string]*outbox.Outbox
	// Running returns further outboxes, which come and go, such as Outboxes of a manager of package tenants. It
	// is called for each page. An outbox whose name is not valid, or is in Outboxes, is not shown. The charts
	// of these outboxes begin when their first page is read. Defaults to nil: there are no further outboxes.
	Running func() map[string]*outbox.Outbox
	// Access says who may see and change what; see [httptx.Access]. Without Access.Authorize every
	// request is refused. Access.Logger gets errors of the database too.
	Access httptx.Access
	// CSRFKey signs the tokens in forms, at least 32 bytes. Give all processes behind the same
	// address the same key. To follow a replay, also route each operator to the same process
	// (sticky sessions). Defaults to a random key.
	CSRFKey []byte
	// Interval is how often the live overview is refreshed, at least 100 ms. Each refresh runs a
	// set of queries for each outbox that has viewers. Defaults to 2 s.
	Interval time.Duration
	// MaxViewers is how many pages may show the live overview at once, at most ten of them for the
	// same user; other pages are not live. A user without a name is known by the address. Defaults
	// to 50.
	MaxViewers int
	// MaxDueAge is how long the oldest due event whose kind is not paused may have been due until the
	// overview calls the outbox late. A kind with a MaxDueAge in its [outbox.Rules] is late by that.
	// Defaults to 5 min.
	MaxDueAge time.Duration
	// Timeout is how long a page, a pause or a resume may take. Defaults to 10 s.
	Timeout time.Duration
	// MaxReaders is how many pages read an outbox's table at once. Each of them uses one connection of the
	// outbox's pool, so MaxReaders keeps connections for the service. Other requests wait for half of
	// Timeout at most, and are then answered with a 503 and Retry-After. Defaults to 2.
	MaxReaders int
	// Contracts is the folder that a test with contracts.Check keeps, such as an [embed.FS] of the folder. The
	// page of an event then shows the JSON Schema and the example of the event's kind, also to users without
	// [httptx.ReadPayloads]. Defaults to nil: the page shows no format.
	Contracts fs.FS
}

// Dashboard is the handler. Make a Dashboard with [New]. It is safe for concurrent use.
type Dashboard struct {
	config  Config
	sites   sites
	viewers viewers
	actions actions
	ending  context.Context // ends with EndStreams
	end     context.CancelFunc
}

// New makes a dashboard, and begins to read a sample of each outbox every ten seconds for the charts of the
// overview. The reads end with [Dashboard.EndStreams], or when the outbox is closed. The error joins an
// [outbox.FieldError] for each field that is wrong.
func New(config Config) (*Dashboard, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config.Outboxes, config.CSRFKey = maps.Clone(config.Outboxes), slices.Clone(config.CSRFKey)
	if config.CSRFKey == nil {
		config.CSRFKey = make([]byte, minKey)
		_, _ = rand.Read(config.CSRFKey) // never fails
	}
	config.Interval = cmp.Or(config.Interval, DefaultInterval)
	config.MaxViewers = cmp.Or(config.MaxViewers, DefaultMaxViewers)
	config.Timeout = cmp.Or(config.Timeout, DefaultTimeout)
	config.MaxReaders = cmp.Or(config.MaxReaders, DefaultMaxReaders)
	if config.Access.Logger == nil {
		config.Access.Logger = slog.Default()
	}
	d := &Dashboard{
		config: config, viewers: viewers{limit: config.MaxViewers, of: map[string]int{}},
	}
	d.ending, d.end = context.WithCancel(context.Background())
	d.sites = sites{fixed: map[string]*site{}, passing: map[string]*site{}}
	for name, ob := range config.Outboxes {
		d.sites.fixed[name] = d.newSite(ob)
	}
	return d, nil
}

func (c *Config) validate() error {
	var errs []error
	add := func(field, format string, args ...any) {
		errs = append(errs, &outbox.FieldError{Field: "dashboard.Config." + field, Problem: fmt.Sprintf(format, args...)})
	}
	if len(c.Outboxes) == 0 && c.Running == nil {
		add("Outboxes", "is empty; name at least one outbox, or set Running")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Outboxes)) {
		if !outboxname.IsValid(name) {
			add("Outboxes", "has the name %q; %s", name, outboxname.Rule)
		}
		if c.Outboxes[name] == nil {
			add("Outboxes", "has nil for %q", name)
		}
	}
	if c.CSRFKey != nil && len(c.CSRFKey) < minKey {
		add("CSRFKey", "has %d bytes; it must have at least %d, or be nil for a random one", len(c.CSRFKey), minKey)
	}
	if c.Interval < 0 || c.Interval > 0 && c.Interval < 100*time.Millisecond {
		add("Interval", "is %s; it must be at least 100ms, or zero for %s", c.Interval, DefaultInterval)
	}
	if c.MaxViewers < 0 {
		add("MaxViewers", "is %d; it must be positive, or zero for %d", c.MaxViewers, DefaultMaxViewers)
	}
	if c.MaxReaders < 0 {
		add("MaxReaders", "is %d; it must be positive, or zero for %d", c.MaxReaders, DefaultMaxReaders)
	}
	if c.MaxDueAge < 0 {
		add("MaxDueAge", "is %s; it must be positive, or zero for %s", c.MaxDueAge, DefaultMaxDueAge)
	}
	if c.Timeout < 0 || c.Timeout > 0 && c.Timeout < time.Millisecond {
		add("Timeout", "is %s; it must be at least 1ms, or zero for %s", c.Timeout, DefaultTimeout)
	}
	return errors.Join(errs...)
}

// EndStreams ends the live overviews, which would otherwise hold up [http.Server.Shutdown], and the
// samples for the charts: pass EndStreams to [http.Server.RegisterOnShutdown]. Pages are not live
// afterwards.
func (d *Dashboard) EndStreams() { d.end() }

// Wait waits for the replays, deletions and purges that run, or for ctx to end. Call Wait after the
// server's Shutdown and before the outbox closes.
func (d *Dashboard) Wait(ctx context.Context) error {
	if err := d.actions.wait(ctx); err != nil {
		return fmt.Errorf("dashboard: waiting for actions that run: %w", err)
	}
	return nil
}

// policy allows only the page's own files.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// ServeHTTP implements [http.Handler].
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	if asset, is := strings.CutPrefix(r.URL.Path, "/-/"); is {
		p := newPage(d, w, r, "", 0)
		if err := p.asset(asset); err != nil {
			p.fail(err)
		}
		return
	}
	user, role, err := d.config.Access.Enter(r)
	if err != nil && !errors.Is(err, httptx.ErrOtherSite) {
		return // the middleware of the transaction answers
	}
	p := newPage(d, w, r, user, role)
	switch {
	case err != nil:
		err = &problem{http.StatusForbidden, "Refused", "A page of another site sent this. Open the page here and try again."}
	case !role.May(httptx.View):
		err = &problem{http.StatusForbidden, "No access", "You may not see this outbox. Ask those who run the service for a role: its Access.Authorize returned none, or is not set."}
	default:
		err = p.route()
	}
	if err != nil {
		p.fail(err)
	}
}
