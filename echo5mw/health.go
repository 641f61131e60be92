package echo5mw

import (
	"github.com/labstack/echo/v5"

	"github.com/outboxkit/outbox-go/httptx"
)

// Defaults of [HealthConfig].
const (
	DefaultHealthTimeout = httptx.DefaultHealthTimeout
	DefaultMaxPollDelay  = httptx.DefaultMaxPollDelay
)

// NoBound turns MaxPollDelay of [HealthConfig] off, as every negative value does.
const NoBound = httptx.NoBound

// HealthConfig configures the readiness check. [Health] is the short form of
// [HealthConfig.ToHandler]. The fields are the same as in [httptx.HealthConfig]; without a Logger,
// an error of the database goes to Echo's log.
type HealthConfig httptx.HealthConfig

// Health returns a readiness check for an orchestrator or a load balancer; see
// [httptx.Health]. It panics when the config is invalid; [HealthConfig.ToHandler]
// returns the error.
func Health(config HealthConfig) echo.HandlerFunc {
	handler, err := config.ToHandler()
	if err != nil {
		panic(err)
	}
	return handler
}

// ToHandler returns the handler. The error joins an [outbox.FieldError] for each field that is
// wrong.
func (config HealthConfig) ToHandler() (echo.HandlerFunc, error) {
	if _, err := httptx.HealthConfig(config).ToHandler(); err != nil {
		return nil, err
	}
	return func(c *echo.Context) error {
		config := httptx.HealthConfig(config)
		if config.Logger == nil {
			config.Logger = c.Logger()
		}
		handler, err := config.ToHandler()
		if err == nil {
			handler.ServeHTTP(c.Response(), c.Request())
		}
		return err
	}, nil
}
