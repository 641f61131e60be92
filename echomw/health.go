package echomw

import (
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

// NoBound turns a check of [HealthConfig] off.
const NoBound time.Duration = -1

// HealthConfig makes the handler that [Health] is the short form of. Zero means
// the default.
type HealthConfig struct {
	// Outbox is what is asked. Required.
	Outbox *outbox.Outbox
	// Timeout is how long the database may take to answer. Defaults to 2 s.
	Timeout time.Duration
	// MaxPollDelay is how much later than its interval says the poller of this
	// node may read the table. A mode without a poller is not asked. Defaults to
	// 30 s; [NoBound] asks for nothing, also before Start.
	MaxPollDelay time.Duration
	// MaxDueAge is how long the oldest due event may have been due. It is one of
	// the whole table, so that a listener that hangs can make every node of a
	// service unready at once: choose [NoBound] where that would take the service
	// away from its users, and watch the age in the metrics instead. Defaults to
	// 5 min.
	MaxDueAge time.Duration
}

// Health is a readiness check for an orchestrator or a load balancer. It
// answers 200 when the database answers in time, the poller of this node gets
// through and the oldest due event is not too old, else 503, in JSON:
//
//	{"status": "ready",
//	 "database": {"ok": true},
//	 "poller":   {"ok": true, "last_poll_age_seconds": 1.2},
//	 "backlog":  {"ok": true, "oldest_due_seconds": 0, "due": 0, "dead": 0}}
//
// A check that failed has a "problem". What the database said goes to the
// application's log and not into the answer, which may be public. It panics when
// the config is wrong; [HealthConfig.ToHandler] returns the error.
func Health(config HealthConfig) echo.HandlerFunc {
	handler, err := config.ToHandler()
	if err != nil {
		panic(err)
	}
	return handler
}

// ToHandler makes the handler and reports everything that is wrong with the
// config at once, each as an [outbox.FieldError].
func (config HealthConfig) ToHandler() (echo.HandlerFunc, error) {
	var problems []error
	if config.Outbox == nil {
		problems = append(problems, &outbox.FieldError{Field: "HealthConfig.Outbox", Problem: "is required"})
	}
	if config.Timeout < 0 {
		problems = append(problems, &outbox.FieldError{Field: "HealthConfig.Timeout", Problem: fmt.Sprintf("is %s; it must be positive, or zero for %s", config.Timeout, DefaultHealthTimeout)})
	}
	for name, bound := range map[string]time.Duration{"MaxPollDelay": config.MaxPollDelay, "MaxDueAge": config.MaxDueAge} {
		if bound < 0 && bound != NoBound {
			problems = append(problems, &outbox.FieldError{Field: "HealthConfig." + name, Problem: fmt.Sprintf("is %s; it must be positive, zero for the default, or echomw.NoBound", bound)})
		}
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	for _, field := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&config.Timeout, DefaultHealthTimeout}, {&config.MaxPollDelay, DefaultMaxPollDelay}, {&config.MaxDueAge, DefaultMaxDueAge},
	} {
		if *field.value == 0 {
			*field.value = field.standard
		}
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
	// LastPollAge is nil when it has not polled yet.
	LastPollAge *float64 `json:"last_poll_age_seconds"`
}

type backlogCheck struct {
	healthCheck
	OldestDue float64 `json:"oldest_due_seconds"`
	Due       int64   `json:"due"`
	Dead      int64   `json:"dead"`
}

func (config *HealthConfig) serve(c echo.Context) error {
	if err := leave(c); err != nil { // it would hold a connection while we wait for another
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
		c.Logger().Warnf("echomw: the health check could not ask the database: %v", err)
		problem := "the database does not answer as it should"
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
	check := &pollerCheck{healthCheck: healthCheck{OK: true}}
	if stats.LastPoll.IsZero() {
		if config.MaxPollDelay != NoBound {
			check.healthCheck = healthCheck{Problem: "the poller has not read the table yet"}
		}
		return check
	}
	age := max(time.Since(stats.LastPoll), 0)
	seconds := age.Seconds()
	check.LastPollAge = &seconds
	if bound := stats.PollInterval + config.MaxPollDelay; config.MaxPollDelay != NoBound && age > bound {
		check.healthCheck = healthCheck{Problem: fmt.Sprintf("the poller has not read the table for more than %s", bound)}
	}
	return check
}

func (config *HealthConfig) backlog(stats *outbox.Stats) *backlogCheck {
	check := &backlogCheck{healthCheck: healthCheck{OK: true}, OldestDue: stats.OldestDueAge.Seconds(), Due: stats.Due, Dead: stats.Dead}
	if config.MaxDueAge != NoBound && stats.OldestDueAge > config.MaxDueAge {
		check.healthCheck = healthCheck{Problem: fmt.Sprintf("the oldest due event has been due for more than %s", config.MaxDueAge)}
	}
	return check
}
