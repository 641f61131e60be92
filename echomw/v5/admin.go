package echomw

import (
	"strings"

	"github.com/labstack/echo/v5"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
)

// Limits of the listing of dead letters.
const (
	DefaultAdminLimit = httptx.DefaultAdminLimit
	MaxAdminLimit     = httptx.MaxAdminLimit
)

// AdminOption changes what [Admin] shows.
type AdminOption = httptx.AdminOption

// WithoutPayloads leaves payloads and headers out of every answer, for operators
// who may replay events but not read them. The errors of listeners are still
// shown.
func WithoutPayloads() AdminOption { return httptx.WithoutPayloads() }

// Admin adds the endpoints of [httptx.Admin] to the group. Anybody who reaches them
// can read, replay and delete events: mount them behind your own authentication,
// and protect them from cross-site requests.
//
//	g := e.Group("/admin/outbox", middleware.BasicAuth(check))
//	echomw.Admin(g, ob)
//
// Admin panics when an argument is nil.
func Admin(group *echo.Group, ob *outbox.Outbox, opts ...AdminOption) {
	if group == nil {
		panic(&outbox.FieldError{Field: "Admin group", Problem: "is nil"})
	}
	for _, route := range httptx.AdminRoutes(ob, opts...) {
		group.Add(route.Method, strings.ReplaceAll(route.Path, "{id}", ":id"), echo.WrapHandler(route))
	}
}
