package httptx

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/outboxkit/outbox-go/internal/jsontext"
	"github.com/outboxkit/outbox-go/internal/shared"
	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/outbox"
)

// Defaults of [HealthConfig].
const (
	DefaultHealthTimeout = 2 * time.Second
	DefaultMaxPollDelay  = 30 * time.Second
)

// NoBound turns MaxPollDelay of [HealthConfig] off, as every negative value does.
const NoBound time.Duration = -1

// HealthConfig configures the readiness check. [Health] is its short form.
type HealthConfig struct {
	// Outbox is the outbox to check. Required.
	Outbox *outbox.Outbox
	// Timeout is how long the database may take to answer. Defaults to 2 s.
	Timeout time.Duration
	// MaxPollDelay is how late, after the poll interval, this node's poller may read the table. It
	// does not apply to a mode without a poller. Defaults to 30 s; [NoBound] turns the check off,
	// also before Start.
	MaxPollDelay time.Duration
	// MaxDueAge is how long the oldest due event of the table whose kind is not paused may have
	// been due. All nodes share the table: with a bound, a single listener that hangs, or a broker
	// that is away, makes every node unready, although each node could serve. Prefer an alert on
	// the metrics. A kind with a MaxDueAge in its [outbox.Rules] has that bound instead. Defaults to
	// no bound, for all kinds.
	MaxDueAge time.Duration
	// Logger gets an error of the database, at level ERROR. Defaults to
	// [slog.Default].
	Logger *slog.Logger
}

// Health returns a readiness check for an orchestrator or a load balancer. The check answers 200
// when the database answers in time and takes this node's writes, and the node's poller reads the
// table; otherwise it answers 503. The answer is JSON:
//
//	{"status": "ready",
//	 "database": {"ok": true},
//	 "poller":   {"ok": true, "last_poll_age_seconds": 1.2},
//	 "backlog":  {"ok": true, "oldest_due_seconds": 0, "due": 0, "dead": 0}}
//
// With the parameter verbose, as in /healthz?verbose, the answer also has a "verdict" on the whole
// table: a sentence that says whether events are delivered in time, and if not, why. A verdict does not
// change the status.
//
// A check that failed has a "problem". The answer may be public, so an error of the database goes
// only to the log. Health panics when the config is invalid; [HealthConfig.ToHandler] returns the
// error.
//
// The check does not use the request's transaction: a [Transaction] middleware around the check
// commits before the check runs.
func Health(config HealthConfig) http.Handler {
	handler, err := config.ToHandler()
	if err != nil {
		panic(err)
	}
	return handler
}

// ToHandler returns the handler. The error joins an [outbox.FieldError] for each field that is
// wrong.
func (config HealthConfig) ToHandler() (http.Handler, error) {
	var problems []error
	if config.Outbox == nil {
		problems = append(problems, &outbox.FieldError{Field: "HealthConfig.Outbox", Problem: "is required"})
	}
	if config.Timeout < 0 {
		problems = append(problems, &outbox.FieldError{Field: "HealthConfig.Timeout", Problem: fmt.Sprintf("is %s; it must be positive, or zero for %s", config.Timeout, DefaultHealthTimeout)})
	}
	config.Timeout = cmp.Or(config.Timeout, DefaultHealthTimeout)
	config.MaxPollDelay = cmp.Or(config.MaxPollDelay, DefaultMaxPollDelay)
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	return http.HandlerFunc((&checker{HealthConfig: config}).serve), nil
}

// checker is the handler. Checks that come at once share one read.
type checker struct {
	HealthConfig
	stats, verbose shared.Value[verdict.Facts]
}

// health is the answer.
type health struct {
	Status   string        `json:"status"` // ready or unready
	Database healthCheck   `json:"database"`
	Poller   *pollerCheck  `json:"poller,omitempty"`
	Backlog  *backlogCheck `json:"backlog,omitempty"`
	// Verdict is about all processes; see ?verbose.
	Verdict *verdict.Verdict `json:"verdict,omitempty"`
}

type healthCheck struct {
	OK      bool   `json:"ok"`
	Problem string `json:"problem,omitempty"`
}

type pollerCheck struct {
	healthCheck
	// LastPollAge is nil before the first poll.
	LastPollAge *float64 `json:"last_poll_age_seconds"`
}

type backlogCheck struct {
	healthCheck
	OldestDue float64 `json:"oldest_due_seconds"`
	Due       int64   `json:"due"`
	Dead      int64   `json:"dead"`
}

func (config *checker) serve(w http.ResponseWriter, r *http.Request) {
	if err := leave(r.Context()); err != nil { // the check needs a separate connection
		return
	}
	answer, status := config.check(r.Context(), r.URL.Query().Has("verbose")), http.StatusOK
	if answer.Status != "ready" {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, r, status, answer)
}

func (config *checker) check(ctx context.Context, verbose bool) health {
	ctx, cancel := context.WithTimeout(ctx, config.Timeout)
	defer cancel()
	facts, err := config.facts(ctx, verbose)
	stats := &facts.Stats
	if err != nil {
		config.Logger.ErrorContext(ctx, "the health check could not query the database", "error", err)
		problem := "the database returned an error"
		if ctx.Err() != nil {
			problem = fmt.Sprintf("the database did not answer within %s", config.Timeout)
		}
		return health{Status: "unready", Database: healthCheck{Problem: problem}}
	}
	answer := health{Status: "ready", Database: config.database(stats), Poller: config.poller(stats), Backlog: config.backlog(stats)}
	if !answer.Database.OK || answer.Poller != nil && !answer.Poller.OK || !answer.Backlog.OK {
		answer.Status = "unready"
	}
	if verbose {
		v := facts.Verdict()
		answer.Verdict = &v
	}
	return answer
}

// facts reads what the answer is about.
func (config *checker) facts(ctx context.Context, verbose bool) (verdict.Facts, error) {
	if verbose {
		return config.verbose.Get(ctx, 0, func(ctx context.Context) (verdict.Facts, error) {
			return verdict.Read(ctx, config.Outbox, config.MaxDueAge)
		})
	}
	return config.stats.Get(ctx, 0, func(ctx context.Context) (verdict.Facts, error) {
		stats, err := config.Outbox.Stats(ctx)
		return verdict.Facts{Stats: stats}, err
	})
}

// maxPretty is the longest answer that is indented, in bytes. Indentation would make a deeply
// nested payload thousands of times longer.
const maxPretty = 4 << 20

// setHeaders keeps an answer out of caches, and keeps browsers from taking it for a page.
func setHeaders(w http.ResponseWriter) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
}

// writeJSON answers in JSON, with the parameter pretty indented. An error means
// that the client has gone.
func writeJSON(w http.ResponseWriter, r *http.Request, status int, body any) {
	setHeaders(w)
	w.Header().Set("Content-Type", "application/json")
	var answer bytes.Buffer
	_ = json.NewEncoder(&answer).Encode(body) // the shapes of this package always encode
	text := answer.Bytes()
	if r.URL.Query().Has("pretty") {
		if indented, whole := jsontext.Indent(text, maxPretty); whole {
			text = append(indented, '\n')
		}
	}
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// maxWriteFailures is how many writes in a row may fail: the first two writes, of the start and the
// first poll, come together, and may have met a restart of the database.
const maxWriteFailures = 2

func (config *HealthConfig) database(stats *outbox.Stats) healthCheck {
	if stats.WriteFailures > maxWriteFailures {
		return healthCheck{Problem: fmt.Sprintf("the database did not take the last %d writes of this process", stats.WriteFailures)}
	}
	return healthCheck{OK: true}
}

func (config *HealthConfig) poller(stats *outbox.Stats) *pollerCheck {
	if stats.PollInterval == 0 {
		return nil
	}
	check, age, bound := &pollerCheck{}, max(time.Since(stats.LastPoll), 0), stats.PollInterval+config.MaxPollDelay
	if !stats.LastPoll.IsZero() {
		seconds := age.Seconds()
		check.LastPollAge = &seconds
	}
	switch {
	case config.MaxPollDelay < 0:
	case check.LastPollAge == nil:
		check.Problem = "the poller has not read the table yet"
	case age > bound:
		check.Problem = fmt.Sprintf("the poller has not read the table for more than %s", bound)
	}
	check.OK = check.Problem == ""
	return check
}

func (config *HealthConfig) backlog(stats *outbox.Stats) *backlogCheck {
	check := &backlogCheck{OldestDue: stats.OldestDueAge.Seconds(), Due: stats.Due, Dead: stats.Dead}
	switch {
	case config.MaxDueAge <= 0:
	case len(stats.Late) > 0:
		late := stats.Late[0]
		check.Problem = fmt.Sprintf("events of %s have been due for more than %s", late.Kind, late.MaxDueAge)
	case stats.OldestDueAge > config.MaxDueAge:
		check.Problem = fmt.Sprintf("the oldest due event has been due for more than %s", config.MaxDueAge)
	}
	check.OK = check.Problem == ""
	return check
}
