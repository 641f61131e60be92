package main

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
)

// dashboardPath is where the outbox's page is.
const dashboardPath = "/outbox"

// newDashboard makes the outbox's page.
func newDashboard(ob *outbox.Outbox, s Settings) (*dashboard.Dashboard, error) {
	return dashboard.New(dashboard.Config{
		Outboxes: map[string]*outbox.Outbox{"shop": ob},
		Access: httptx.Access{Authorize: func(r *http.Request) (string, httptx.Role) {
			user, password, _ := r.BasicAuth()
			if s.isAdmin(user, password) {
				return adminUser, httptx.ReadPayloads | httptx.Operate
			}
			if local(r) { // a real service has users
				return "somebody on this machine", httptx.ReadPayloads | httptx.Operate
			}
			return "", 0
		}},
	})
}

// local reports whether a request comes from this machine, and was meant for it: a foreign
// site's name may lead here, and a proxy on this machine passes on requests of others.
func local(r *http.Request) bool {
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	host, _, splitErr := net.SplitHostPort(r.Host)
	if splitErr != nil {
		host = strings.Trim(r.Host, "[]")
	}
	ip := net.ParseIP(host)
	return err == nil && client.Addr().Unmap().IsLoopback() && (host == "localhost" || ip != nil && ip.IsLoopback()) && !proxied(r)
}

// proxied reports whether a proxy passed the request on: a proxy says so in a header, or speaks
// HTTP/1.0, as nginx does by default.
func proxied(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded") || strings.HasPrefix(name, "Cf-") ||
			slices.Contains([]string{"Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip"}, name) {
			return true
		}
	}
	return !r.ProtoAtLeast(1, 1)
}

// addPage serves the outbox's page, and a page with buttons that make events for it.
func (s *server) addPage(e *echo.Echo, transaction echo.MiddlewareFunc) {
	handler := echo.WrapHandler(http.StripPrefix(dashboardPath, s.page))
	e.Any(dashboardPath, handler)
	e.Any(dashboardPath+"/*", handler)
	e.GET("/", func(c echo.Context) error { return c.HTML(http.StatusOK, buttons) })
	e.POST("/try", s.try, localOnly, readSimulation, transaction)
	s.RegisterOnShutdown(s.page.EndStreams)
}

// localOnly refuses the buttons, and the simulation that kills the service, to other machines and
// to other sites' pages.
func localOnly(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !local(c.Request()) || http.NewCrossOriginProtection().Check(c.Request()) != nil {
			return echo.NewHTTPError(http.StatusForbidden, "this works on this machine alone, and not from another site's page")
		}
		return next(c)
	}
}

// try places the order of a button.
func (s *server) try(c echo.Context) error {
	placed, err := s.save(c, orderRequest{Customer: "A visitor", Item: "tea", Quantity: 1}, 1)
	if err != nil {
		return err
	}
	switch simulationOf(c.Request().Context()) {
	case simulateKill:
		return c.HTML(http.StatusOK, fmt.Sprintf(killed, placed[0].EventID))
	case simulateListenerDead:
		return c.Redirect(http.StatusSeeOther, dashboardPath+"/shop/dead")
	default:
		return c.Redirect(http.StatusSeeOther, dashboardPath+"/shop/event?id="+placed[0].EventID)
	}
}

const head = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>An order service</title></head>
<body>
`

const buttons = head + `<h1>An order service with an outbox</h1>
<p>Place an order, and see on <a href="/outbox/">the outbox's page</a> what becomes of its event.</p>
<form method="post" action="/try"><p><button>Place an order</button> Its event is delivered at once.</p></form>
<form method="post" action="/try?simulate=listener-dead"><p><button>Place an order that fails</button> The warehouse rejects it, so that its event is dead. Replay it: then it is delivered.</p></form>
<form method="post" action="/try?simulate=kill"><p><button>Place an order and kill the service</button> The process dies while it delivers the event. Start it again, and the event is delivered.</p></form>
</body></html>
`

// killed is the answer to an order that kills the service.
const killed = head + `<h1>The service is being killed</h1>
<p>The order is saved, and so is its event %[1]s. In a second the process dies while it delivers the event.</p>
<p>Start it again as you did before, for example with <code>make serve</code>. Then look at <a href="/outbox/shop/event?id=%[1]s">the event</a>. Within ten seconds of the start it is delivered; reload.</p>
</body></html>
`
