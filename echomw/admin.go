package echomw

import (
	"errors"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/outboxkit/outbox-go/outbox"
)

// Limits of the listing of dead letters. A listing reads the payloads too, so
// the largest one bounds the memory that a request takes.
const (
	DefaultAdminLimit = 50
	MaxAdminLimit     = 200
)

// AdminOption changes what [Admin] shows.
type AdminOption func(*admin)

// WithoutPayloads keeps payloads and headers out of every answer, for operators
// who may replay what they may not read. The errors of listeners are shown all
// the same: what a listener puts there is its own care.
func WithoutPayloads() AdminOption { return func(a *admin) { a.withoutPayloads = true } }

// Admin adds endpoints for operators to the group. Anybody who reaches them can
// read events, have them delivered again and delete them: mount it behind your
// own authentication, and out of reach of cross-site requests.
//
//	g := e.Group("/admin/outbox", middleware.BasicAuth(check))
//	echomw.Admin(g, ob)
//
// The endpoints, all of which answer in JSON:
//
//	GET    /stats                      counts, ages and queues
//	GET    /dead-letters               ?event_type= &aggregate_type= &since= &until= &limit= &after=
//	GET    /dead-letters/:id           one, with headers and payload
//	POST   /dead-letters/:id/replay    delivers it again
//	POST   /dead-letters/replay        delivers all again; filters as in the listing
//	DELETE /dead-letters/:id           deletes it for good
//
// Listings are in the order of death, since is inclusive and until exclusive,
// in RFC 3339; they hold neither payloads nor headers. A parameter that is not
// understood, unknown, empty or given twice is a 400 that names it, so that no
// slip of the pen replays everything. An id that is not a dead letter's is 404.
// What the database refuses is 500 with its error.
//
// The endpoints take no part in a [Transaction] of the request: one that is
// there commits before they work. Admin panics when an argument is nil.
func Admin(group *echo.Group, ob *outbox.Outbox, opts ...AdminOption) {
	switch {
	case group == nil:
		panic(&outbox.FieldError{Field: "echomw.Admin group", Problem: "is nil"})
	case ob == nil:
		panic(&outbox.FieldError{Field: "echomw.Admin ob", Problem: "is nil"})
	}
	a := &admin{outbox: ob, dead: ob.DeadLetters()}
	for _, opt := range opts {
		opt(a)
	}
	group.GET("/stats", a.handle(a.stats))
	group.GET("/dead-letters", a.handle(a.list))
	group.GET("/dead-letters/:id", a.handle(a.get))
	group.POST("/dead-letters/:id/replay", a.handle(a.replay))
	group.POST("/dead-letters/replay", a.handle(a.replayAll))
	group.DELETE("/dead-letters/:id", a.handle(a.remove))
}

type admin struct {
	outbox          *outbox.Outbox
	dead            *outbox.DeadLetters
	withoutPayloads bool
}

// problem is the answer of a request that failed.
type problem struct {
	Error     string `json:"error"`
	Parameter string `json:"parameter,omitempty"`
	Replayed  int    `json:"replayed,omitempty"`
}

// handle answers what a handler returned as an error itself: the endpoints
// answer in the same form whatever the application's error handler makes of
// errors.
func (a *admin) handle(handler echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := leave(c); err != nil {
			return err
		}
		c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
		err := handler(c)
		var bad *parameterError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &bad):
			return c.JSON(http.StatusBadRequest, problem{Error: bad.Error(), Parameter: bad.name})
		case errors.Is(err, outbox.ErrNotFound):
			return c.JSON(http.StatusNotFound, problem{Error: outbox.ErrNotFound.Error()})
		default:
			return c.JSON(http.StatusInternalServerError, problem{Error: err.Error()})
		}
	}
}

func (a *admin) stats(c echo.Context) error {
	if _, err := parametersOf(c); err != nil {
		return err
	}
	stats, err := a.outbox.Stats(c.Request().Context())
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, statsAnswer(&stats))
}

func (a *admin) list(c echo.Context) error {
	p, err := parametersOf(c, slices.Concat(filterParameters, []string{"limit", "after"})...)
	if err != nil {
		return err
	}
	limit, err := p.limit()
	if err != nil {
		return err
	}
	filter, err := p.filter()
	if err != nil {
		return err
	}
	after, err := p.after()
	if err != nil {
		return err
	}
	letters, err := a.dead.QueryAfter(c.Request().Context(), filter, after, limit+1)
	if err != nil {
		return err
	}
	more := len(letters) > limit
	if more {
		letters = letters[:limit]
	}
	answer := listing{DeadLetters: make([]deadLetter, len(letters)), More: more}
	for i := range letters {
		answer.DeadLetters[i] = summary(&letters[i])
	}
	if more {
		answer.Next = placeOf(&letters[limit-1])
	}
	return c.JSON(http.StatusOK, answer)
}

func (a *admin) get(c echo.Context) error {
	id, err := idOf(c)
	if err != nil {
		return err
	}
	letter, err := a.dead.Get(c.Request().Context(), id)
	if err != nil {
		return err
	}
	answer := summary(&letter)
	if !a.withoutPayloads {
		answer.disclose(&letter)
	}
	return c.JSON(http.StatusOK, answer)
}

func (a *admin) replay(c echo.Context) error {
	id, err := idOf(c)
	if err != nil {
		return err
	}
	if err := a.dead.Replay(c.Request().Context(), id); err != nil {
		return err
	}
	return c.JSON(http.StatusOK, replayed{1})
}

func (a *admin) replayAll(c echo.Context) error {
	p, err := parametersOf(c, filterParameters...)
	if err != nil {
		return err
	}
	filter, err := p.filter()
	if err != nil {
		return err
	}
	n, err := a.dead.ReplayAll(c.Request().Context(), filter, 0)
	if err != nil { // some may have been replayed all the same
		return c.JSON(http.StatusInternalServerError, problem{Error: err.Error(), Replayed: n})
	}
	return c.JSON(http.StatusOK, replayed{n})
}

func (a *admin) remove(c echo.Context) error {
	id, err := idOf(c)
	if err != nil {
		return err
	}
	if err := a.dead.Delete(c.Request().Context(), id); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
