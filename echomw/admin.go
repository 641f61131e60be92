package echomw

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/outboxkit/outbox-go/outbox"
)

// Limits of the listing of dead letters. A listing reads the payloads too, so
// the limit bounds the memory of a request.
const (
	DefaultAdminLimit = 50
	MaxAdminLimit     = 200
)

// AdminOption changes what [Admin] shows.
type AdminOption func(*admin)

// WithoutPayloads leaves payloads and headers out of every answer, for operators
// who may replay events but not read them. The errors of listeners are still
// shown.
func WithoutPayloads() AdminOption { return func(a *admin) { a.withoutPayloads = true } }

// Admin adds endpoints for operators to the group. Anybody who reaches them can
// read, replay and delete events: mount them behind your own authentication, and
// protect them from cross-site requests.
//
//	g := e.Group("/admin/outbox", middleware.BasicAuth(check))
//	echomw.Admin(g, ob)
//
// The endpoints answer in JSON:
//
//	GET    /stats                      counts, ages and queues
//	GET    /dead-letters               ?event_type= &aggregate_type= &since= &until= &limit= &after=
//	GET    /dead-letters/:id           one, with headers and payload
//	POST   /dead-letters/:id/replay    delivers it again
//	POST   /dead-letters/replay        delivers all again; filters as in the listing
//	DELETE /dead-letters/:id           deletes it
//
// Listings are in the order of death and contain neither payloads nor headers;
// since is inclusive and until exclusive, in RFC 3339. A parameter that is
// unknown, malformed, empty or given twice is a 400 that names it, so that a
// typing error does not replay everything. An unknown id is a 404. An error of
// the database is a 500 with its text.
//
// The endpoints do not use the request's transaction: a [Transaction] middleware
// around them commits before they run. Admin panics when an argument is nil.
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
	group.GET("/dead-letters", a.handle(a.list, append(filterParameters, "limit", "after")...))
	group.GET("/dead-letters/:id", a.handle(a.get))
	group.POST("/dead-letters/:id/replay", a.handle(a.replay))
	group.POST("/dead-letters/replay", a.handle(a.replayAll, filterParameters...))
	group.DELETE("/dead-letters/:id", a.handle(a.remove))
}

type admin struct {
	outbox          *outbox.Outbox
	dead            *outbox.DeadLetters
	withoutPayloads bool
}

// endpoint returns the answer in JSON, nil for none.
type endpoint func(c echo.Context, p parameters) (any, error)

// problem is the answer to a request that failed.
type problem struct {
	Error     string `json:"error"`
	Parameter string `json:"parameter,omitempty"`
	Replayed  int    `json:"replayed,omitempty"` // before the failure
}

// handle serves an endpoint with these parameters. It answers errors in the
// endpoints' own form, whatever the application's error handler does.
func (a *admin) handle(serve endpoint, known ...string) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := leave(c); err != nil {
			return err
		}
		c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
		p, err := parametersOf(c, known)
		var answer any
		if err == nil {
			answer, err = serve(c, p)
		}
		var bad *parameterError
		switch {
		case err == nil && answer == nil:
			return c.NoContent(http.StatusNoContent)
		case err == nil:
			return c.JSON(http.StatusOK, answer)
		case errors.As(err, &bad):
			return c.JSON(http.StatusBadRequest, problem{Error: bad.Error(), Parameter: bad.name})
		case errors.Is(err, outbox.ErrNotFound):
			return c.JSON(http.StatusNotFound, problem{Error: outbox.ErrNotFound.Error()})
		default:
			done, _ := answer.(replayed)
			return c.JSON(http.StatusInternalServerError, problem{Error: err.Error(), Replayed: done.Replayed})
		}
	}
}

func (a *admin) stats(c echo.Context, _ parameters) (any, error) {
	stats, err := a.outbox.Stats(c.Request().Context())
	return statsAnswer(&stats), err
}

func (a *admin) list(c echo.Context, p parameters) (any, error) {
	limit, err := p.limit()
	if err != nil {
		return nil, err
	}
	filter, err := p.filter()
	if err != nil {
		return nil, err
	}
	after, err := p.after()
	if err != nil {
		return nil, err
	}
	letters, err := a.dead.QueryAfter(c.Request().Context(), filter, after, limit+1)
	if err != nil {
		return nil, err
	}
	answer := listing{DeadLetters: []deadLetter{}, More: len(letters) > limit}
	if answer.More {
		letters = letters[:limit]
		answer.Next = placeOf(&letters[limit-1])
	}
	for i := range letters {
		answer.DeadLetters = append(answer.DeadLetters, summary(&letters[i]))
	}
	return answer, nil
}

func (a *admin) get(c echo.Context, _ parameters) (any, error) {
	id, err := idOf(c)
	if err != nil {
		return nil, err
	}
	letter, err := a.dead.Get(c.Request().Context(), id)
	if err != nil {
		return nil, err
	}
	answer := summary(&letter)
	if !a.withoutPayloads {
		answer.disclose(&letter)
	}
	return answer, nil
}

func (a *admin) replay(c echo.Context, _ parameters) (any, error) {
	id, err := idOf(c)
	if err != nil {
		return nil, err
	}
	if err := a.dead.Replay(c.Request().Context(), id); err != nil {
		return nil, err
	}
	return replayed{1}, nil
}

func (a *admin) replayAll(c echo.Context, p parameters) (any, error) {
	filter, err := p.filter()
	if err != nil {
		return nil, err
	}
	n, err := a.dead.ReplayAll(c.Request().Context(), filter, 0)
	return replayed{n}, err
}

func (a *admin) remove(c echo.Context, _ parameters) (any, error) {
	id, err := idOf(c)
	if err != nil {
		return nil, err
	}
	return nil, a.dead.Delete(c.Request().Context(), id)
}
