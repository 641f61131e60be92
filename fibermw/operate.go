package fibermw

import (
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/nilness"
	"github.com/outboxkit/outbox-go/outbox"
)

// NoBound turns MaxPollDelay of [HealthConfig] off, as every negative value does.
const NoBound = httptx.NoBound

// HealthConfig configures the readiness check; see [httptx.HealthConfig].
type HealthConfig = httptx.HealthConfig

// Health returns a readiness check for an orchestrator or a load balancer; see
// [httptx.Health]. It panics when the config is invalid; [httptx.HealthConfig.ToHandler]
// returns the error.
func Health(config HealthConfig) fiber.Handler { return handler(httptx.Health(config)) }

// Access says who may see and change an outbox; see [httptx.Access].
type Access = httptx.Access

// Role is the set of things that a user may do; see [httptx.Role].
type Role = httptx.Role

// The roles; ReadPayloads and Operate include View.
const (
	View         = httptx.View
	ReadPayloads = httptx.ReadPayloads
	Operate      = httptx.Operate
)

// Admin adds the endpoints of [httptx.Admin] to the group. Without Access.Authorize, every request
// is refused, even if the group has an authentication. The functions of Access get a copy of the
// request, whose context is c.Context(); they do not see c.Locals.
//
//	fibermw.Admin(app.Group("/admin/outbox", basicauth.New(config)), ob, fibermw.Access{Authorize: roleOf})
//
// Admin panics when an argument is nil.
func Admin(group fiber.Router, ob *outbox.Outbox, access Access) {
	if nilness.IsNil(group) {
		panic(&outbox.FieldError{Field: "Admin group", Problem: "is nil"})
	}
	for _, route := range httptx.AdminRoutes(ob, access) {
		group.Add([]string{route.Method}, strings.ReplaceAll(route.Path, "{id}", ":id"), handler(route))
	}
}
