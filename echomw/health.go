package echomw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/outboxkit/outbox-go/outbox"
)

// Defaults of [HealthConfig].
const (
	DefaultHealthTimeout = 2 * time.Second
	DefaultMaxPollDelay  = 30 * time.Second
	DefaultMaxDueAge     = 5 * time.Minute
)

// NoBound turns a check of [HealthConfig] off, as every negative value does.
const NoBound time.Duration = -1

// HealthConfig configures the readiness check. [Health] is its short form.
type HealthConfig struct {
	// Outbox is the outbox to check. Required.
	Outbox *outbox.Outbox
	// Timeout is how long the database may take to answer. Defaults to 2 s.
	Timeout time.Duration
	// MaxPollDelay is how late, after its interval, this node's poller may read
	// the table. It does not apply to a mode without a poller. Defaults to 30 s;
	// [NoBound] turns the check off, also before Start.
	MaxPollDelay time.Duration
	// MaxDueAge is how long the oldest due event of the table may have been due.
	// All nodes share the table, so one listener that hangs can make every node
	// unready: use [NoBound] where that would take a healthy service offline, and
	// an alert on the metrics instead. Defaults to 5 min.
	MaxDueAge time.Duration
}

// Health returns a readiness check for an orchestrator or a load balancer. It
// answers 200 when the database answers in time, this node's poller reads the
// table and the oldest due event is not too old, and 503 otherwise, in JSON:
//
//	{"status": "ready",
//	 "database": {"ok": true},
//	 "poller":   {"ok": true, "last_poll_age_seconds": 1.2},
//	 "backlog":  {"ok": true, "oldest_due_seconds": 0, "due": 0, "dead": 0}}
//
// A check that failed has a "problem". The answer may be public, so an error of
// the database goes only to Echo's log, at level ERROR. Health panics when the
// config is invalid; [HealthConfig.ToHandler] returns the error.
func Health(config HealthConfig) echo.HandlerFunc {
	handler, err := config.ToHandler()
	if err != nil {
		panic(err)
	}
	return handler
}

// ToHandler returns the handler. Its error joins an [outbox.FieldError] for each
// field that is wrong.
func (config HealthConfig) ToHandler() (echo.HandlerFunc, error) {
	var problems []error
	if config.Outbox == nil {
		problems = append(problems, &outbox.FieldError{Field: "HealthConfig.Outbox", Problem: "is required"})
	}
	if config.Timeout < 0 {
		problems = append(problems, &outbox.FieldError{Field: "HealthConfig.Timeout", Problem: fmt.Sprintf("is %s; it must be positive, or zero for %s", config.Timeout, DefaultHealthTimeout)})
	}
	config.Timeout = cmp.Or(config.Timeout, DefaultHealthTimeout)
	config.MaxPollDelay = cmp.Or(config.MaxPollDelay, DefaultMaxPollDelay)
	config.MaxDueAge = cmp.Or(config.MaxDueAge, DefaultMaxDueAge)
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return config.serve, nil
}

// health is the answer.
type health struct {
	Status   string        `json:"status"` // ready or unready
	Database healthCheck   `json:"database"`
	Poller   *pollerCheck  `json:"poller,omitempty"`
	Backlog  *backlogCheck `json:"backlog,omitempty"`
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

func (config *HealthConfig) serve(c echo.Context) error {
	if err := leave(c); err != nil { // it holds a connection, and the check needs another
		return err
	}
	c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	answer := config.check(c)
	if answer.Status == "ready" {
		return c.JSON(http.StatusOK, answer)
	}
	return c.JSON(http.StatusServiceUnavailable, answer)
}

func (config *HealthConfig) check(c echo.Context) health {
	ctx, cancel := context.WithTimeout(c.Request().Context(), config.Timeout)
	defer cancel()
	stats, err := config.Outbox.Stats(ctx)
	if err != nil {
		c.Logger().Errorf("echomw: the health check could not query the database: %v", err)
		problem := "the database returned an error"
		if ctx.Err() != nil {
			problem = fmt.Sprintf("the database did not answer within %s", config.Timeout)
		}
		return health{Status: "unready", Database: healthCheck{Problem: problem}}
	}
	answer := health{Status: "ready", Database: healthCheck{OK: true}, Poller: config.poller(&stats), Backlog: config.backlog(&stats)}
	if answer.Poller != nil && !answer.Poller.OK || !answer.Backlog.OK {
		answer.Status = "unready"
	}
	return answer
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
	if config.MaxDueAge >= 0 && stats.OldestDueAge > config.MaxDueAge {
		check.Problem = fmt.Sprintf("the oldest due event has been due for more than %s", config.MaxDueAge)
	}
	check.OK = check.Problem == ""
	return check
}
