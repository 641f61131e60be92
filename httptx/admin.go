package httptx

import (
	"errors"
	"net/http"
	"strings"

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

// Admin returns endpoints for operators. Anybody who reaches them can read, replay
// and delete events, and stop their delivery: mount them behind your own authentication, and protect them
// from cross-site requests.
//
//	mux.Handle("/admin/outbox/", authenticated(http.StripPrefix("/admin/outbox", httptx.Admin(ob))))
//
// The endpoints answer in JSON:
//
//	GET    /stats                      counts, ages and queues
//	GET    /dead-letters               ?event_type= &aggregate_type= &since= &until= &limit= &after=
//	GET    /dead-letters/{id}          one, with headers and payload
//	POST   /dead-letters/{id}/replay   delivers it again
//	POST   /dead-letters/replay        delivers all again; filters as in the listing
//	DELETE /dead-letters/{id}          deletes it
//	GET    /pauses                     the kinds of events that are paused, and since when
//	POST   /pause                      ?event_type= &aggregate_type=   pauses a kind, in all processes
//	POST   /resume                     ?event_type= &aggregate_type=   ends its pause
//
// Without aggregate_type, /pause and /resume mean [outbox.Global]. What is paused
// already, or not paused, is no error.
//
// Listings are in the order of death and contain neither payloads nor headers;
// since is inclusive and until exclusive, in RFC 3339. A parameter that is
// unknown, malformed, empty or given twice is a 400 that names it, so that a
// typing error does not replay everything. An unknown id is a 404. An error of
// the database is a 500 with its text.
//
// The endpoints do not use the request's transaction: a [Transaction] middleware
// around them commits before they run. Admin panics when ob is nil.
func Admin(ob *outbox.Outbox, opts ...AdminOption) http.Handler {
	mux := http.NewServeMux()
	for _, route := range AdminRoutes(ob, opts...) {
		mux.Handle(route.Method+" "+route.Path, route)
	}
	return mux
}

// AdminRoute is one of the endpoints of [Admin], for a framework with a router of
// its own.
type AdminRoute struct {
	Method string
	Path   string // may contain "{id}"; the handler reads the id from the request's URL
	http.Handler
}

// AdminRoutes returns the endpoints of [Admin]. It panics when ob is nil.
func AdminRoutes(ob *outbox.Outbox, opts ...AdminOption) []AdminRoute {
	if ob == nil {
		panic(&outbox.FieldError{Field: "Admin ob", Problem: "is nil"})
	}
	a := &admin{outbox: ob, dead: ob.DeadLetters()}
	for _, opt := range opts {
		opt(a)
	}
	return []AdminRoute{
		{http.MethodGet, "/stats", a.handle(a.stats)},
		{http.MethodGet, "/dead-letters", a.handle(a.list, append(filterParameters, "limit", "after")...)},
		{http.MethodGet, "/dead-letters/{id}", a.handle(a.get)},
		{http.MethodPost, "/dead-letters/{id}/replay", a.handle(a.replay)},
		{http.MethodPost, "/dead-letters/replay", a.handle(a.replayAll, filterParameters...)},
		{http.MethodDelete, "/dead-letters/{id}", a.handle(a.remove)},
		{http.MethodGet, "/pauses", a.handle(a.paused)},
		{http.MethodPost, "/pause", a.handle(a.pause, kindParameters...)},
		{http.MethodPost, "/resume", a.handle(a.resume, kindParameters...)},
	}
}

type admin struct {
	outbox          *outbox.Outbox
	dead            *outbox.DeadLetters
	withoutPayloads bool
}

// endpoint returns the answer in JSON, nil for none.
type endpoint func(r *http.Request, p parameters) (any, error)

// problem is the answer to a request that failed.
type problem struct {
	Error     string `json:"error"`
	Parameter string `json:"parameter,omitempty"`
	Replayed  int    `json:"replayed,omitempty"` // before the failure
}

// handle serves an endpoint with these parameters. It answers errors in the
// endpoints' own form.
func (a *admin) handle(serve endpoint, known ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := leave(r.Context()); err != nil {
			return
		}
		p, err := parametersOf(r, known)
		var answer any
		if err == nil {
			answer, err = serve(r, p)
		}
		var bad *parameterError
		switch {
		case err == nil && answer == nil:
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusNoContent)
		case err == nil:
			writeJSON(w, r, http.StatusOK, answer)
		case errors.As(err, &bad):
			writeJSON(w, r, http.StatusBadRequest, problem{Error: bad.Error(), Parameter: bad.name})
		case errors.Is(err, outbox.ErrNotFound):
			writeJSON(w, r, http.StatusNotFound, problem{Error: outbox.ErrNotFound.Error()})
		default:
			done, _ := answer.(replayed)
			writeJSON(w, r, http.StatusInternalServerError, problem{Error: err.Error(), Replayed: done.Replayed})
		}
	})
}

func (a *admin) stats(r *http.Request, _ parameters) (any, error) {
	stats, err := a.outbox.Stats(r.Context())
	return statsAnswer(&stats), err
}

func (a *admin) list(r *http.Request, p parameters) (any, error) {
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
	letters, err := a.dead.QueryAfter(r.Context(), filter, after, limit+1)
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

func (a *admin) get(r *http.Request, _ parameters) (any, error) {
	id, err := idOf(r.URL.EscapedPath())
	if err != nil {
		return nil, err
	}
	letter, err := a.dead.Get(r.Context(), id)
	if err != nil {
		return nil, err
	}
	answer := summary(&letter)
	if !a.withoutPayloads {
		answer.disclose(&letter)
	}
	return answer, nil
}

func (a *admin) replay(r *http.Request, _ parameters) (any, error) {
	id, err := idOf(strings.TrimSuffix(r.URL.EscapedPath(), "/replay"))
	if err != nil {
		return nil, err
	}
	if err := a.dead.Replay(r.Context(), id); err != nil {
		return nil, err
	}
	return replayed{1}, nil
}

func (a *admin) replayAll(r *http.Request, p parameters) (any, error) {
	filter, err := p.filter()
	if err != nil {
		return nil, err
	}
	n, err := a.dead.ReplayAll(r.Context(), filter, 0)
	return replayed{n}, err
}

func (a *admin) remove(r *http.Request, _ parameters) (any, error) {
	id, err := idOf(r.URL.EscapedPath())
	if err != nil {
		return nil, err
	}
	return nil, a.dead.Delete(r.Context(), id)
}
