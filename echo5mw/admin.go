package echo5mw

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
// is refused, even if the group has its own authentication.
//
//	g := e.Group("/admin/outbox", middleware.BasicAuth(check))
//	echo5mw.Admin(g, ob, echo5mw.Access{Authorize: roleOf})
//
// Admin panics when an argument is nil.
func Admin(group *echo.Group, ob *outbox.Outbox, access Access) {
	if group == nil {
		panic(&outbox.FieldError{Field: "Admin group", Problem: "is nil"})
	}
	for _, route := range httptx.AdminRoutes(ob, access) {
		group.Add(route.Method, strings.ReplaceAll(route.Path, "{id}", ":id"), echo.WrapHandler(route))
	}
}
