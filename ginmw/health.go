package ginmw

import (
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
)

// NoBound turns a check of [HealthConfig] off, as every negative value does.
const NoBound = httptx.NoBound

// HealthConfig configures the readiness check; see [httptx.HealthConfig].
type HealthConfig = httptx.HealthConfig

// Health returns a readiness check for an orchestrator or a load balancer; see
// [httptx.Health]. It panics when the config is invalid; [httptx.HealthConfig.ToHandler]
// returns the error.
func Health(config HealthConfig) gin.HandlerFunc { return gin.WrapH(httptx.Health(config)) }

// AdminOption changes what [Admin] shows.
type AdminOption = httptx.AdminOption

// WithoutPayloads leaves payloads and headers out of every answer, for operators
// who may replay events but not read them. The errors of listeners are still
// shown.
func WithoutPayloads() AdminOption { return httptx.WithoutPayloads() }

// Admin adds the endpoints of [httptx.Admin] to the group. Anybody who reaches them
// can read, replay and delete events: mount them behind your own authentication,
// and protect them from cross-site requests. Event ids that contain a slash need
// gin's UseRawPath or UseEscapedPath.
//
//	ginmw.Admin(r.Group("/admin/outbox", gin.BasicAuth(accounts)), ob)
//
// Admin panics when an argument is nil.
func Admin(group gin.IRoutes, ob *outbox.Outbox, opts ...AdminOption) {
	if group == nil {
		panic(&outbox.FieldError{Field: "Admin group", Problem: "is nil"})
	}
	for _, route := range httptx.AdminRoutes(ob, opts...) {
		group.Handle(route.Method, strings.ReplaceAll(route.Path, "{id}", ":id"), gin.WrapH(route))
	}
}
