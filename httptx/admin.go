package httptx

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/internal/gate"
	"github.com/outboxkit/outbox-go/internal/operjson"
	"github.com/outboxkit/outbox-go/internal/shared"
	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/internal/webaddr"
	"github.com/outboxkit/outbox-go/outbox"
)

// Limits of the listing of dead letters.
const (
	DefaultAdminLimit = 50
	MaxAdminLimit     = 200
)

// Time limits of the statements of a request. The statements also end with the request.
const (
	AdminTimeout = 10 * time.Second
	// AdminBulkTimeout bounds a request that replays, deletes or purges many rows.
	AdminBulkTimeout = 10 * time.Minute
)

// How many requests of an [Admin] use the database at once. Each of them uses one connection of the
// outbox's pool, so the limits keep connections for the service. Other requests wait for half of
// AdminTimeout at most.
const (
	AdminRequests = 2
	// AdminBulkRequests are the requests that replay, delete or purge many rows.
	AdminBulkRequests = 2
)

// Admin returns endpoints for operators. Access says who may see and change what: without
// Access.Authorize every request is refused. A request that the role does not allow is a 403, and
// so is a change that a page of another site sends.
//
//	mux.Handle("/admin/outbox/", http.StripPrefix("/admin/outbox", httptx.Admin(ob, httptx.Access{
//		Authorize: func(r *http.Request) (user string, role httptx.Role) { … },
//	})))
//
// The endpoints answer in JSON:
//
//	GET    /stats                      whether the outbox is well; counts, ages and queues
//	GET    /nodes                      the processes that deliver or write
//	GET    /shares                     the limits of all processes together, and the share of each process
//	GET    /audit                      ?limit= &after=   the changes that operators made, the newest first
//	GET    /events                     ?id_prefix= &status= &event_type= &aggregate_type= &aggregate_id= &tenant_id= &error_text= &deletion_id= &since= &until= &limit= &after=
//	GET    /events/{id}                an event; with ReadPayloads, headers and payload too
//	GET    /dead-letters               ?event_type= &aggregate_type= &aggregate_id= &tenant_id= &group= &since= &until= &limit= &after=
//	GET    /dead-letters/groups        grouped by reason; filters as in the listing
//	GET    /dead-letters/{id}          a letter; with ReadPayloads, headers and payload too
//	POST   /dead-letters/{id}/replay   delivers the letter again
//	POST   /dead-letters/replay        delivers all again; filters as in the listing
//	DELETE /dead-letters/{id}          ?final=   deletes the letter
//	DELETE /dead-letters               ?final=   deletes all; filters as in the listing, at least one
//	POST   /deletions/{id}/restore     undoes a deletion of dead letters
//	GET    /pauses                     the kinds of events that are paused: since and until when, why, by whom
//	POST   /pause                      ?event_type= &aggregate_type= &for= &reason=   pauses a kind, in all processes
//	POST   /resume                     ?event_type= &aggregate_type=   ends the pause of a kind
//	GET    /replays                    the replays of delivered events, and how far they are
//	POST   /replays/start              ?name= &listener= &event_types= &aggregate_type= &aggregate_id= &tenant_id= &since= &until= &rate= &reason=   starts a replay to one listener
//	POST   /replays/stop               ?name=   stops a replay
//	POST   /replays/continue           ?name=   continues a replay that was stopped
//	POST   /purge                      deletes the rows that are old by Config.Purge
//	POST   /wake                       makes the poller read the table now
//
// Without aggregate_type, /pause, /resume and /replays/start mean [outbox.Global]. Several event_types have
// commas between them; since and until of a replay are about the time of delivery. Pausing a kind that is already
// paused, or resuming a kind that is not paused, is no error. Events are listed as
// [outbox.Outbox.FindEvents] says; status is NEW, RETRY, DONE, DEAD or WAITING (NEW and RETRY), or several
// with commas, or one of DUE, DELAYED and LEASED, which are NEW or RETRY. The answer has in "looked_at" how
// many rows the page looked at, and in "missing_index" the index that would have made it quick. A deleted
// dead letter that can be restored is listed with the DONE events, and has the status DELETED.
//
// The answer to a deletion has in "deletion_id" the id for /deletions/{id}/restore. With final=true the
// deletion has no id and cannot be undone, as with [outbox.Final].
//
// Listings of dead letters are in the order of death. Listings contain neither payloads nor
// headers; since is inclusive and until exclusive, in RFC 3339. A parameter that is unknown,
// malformed, empty or given twice is a 400 that names the parameter, so that a typing error does
// not replay everything. An unknown id is a 404. An error of the database is a 500, or a 503 after
// [AdminTimeout] or [AdminBulkTimeout]; the text of the error goes only to the log, with an id that
// the answer names. While [AdminRequests] requests, or [AdminBulkRequests] bulk requests, use the database,
// further requests wait, and after half of [AdminTimeout] get a 503 with Retry-After. Each change is a line in the log (see [AuditEntry]), and each change but a wake is an
// entry of the audit log ([outbox.Outbox.Audit]). If the entry cannot be stored, the answer is a 200 with
// a "warning", because the change is done.
//
// The endpoints do not use the request's transaction: a [Transaction] middleware around the
// endpoints commits before they run. Admin panics when ob is nil.
func Admin(ob *outbox.Outbox, access Access) http.Handler {
	mux := http.NewServeMux()
	for _, route := range AdminRoutes(ob, access) {
		mux.Handle(route.Method+" "+route.Path, route)
	}
	return mux
}

// AdminRoute is an endpoint of [Admin], for a framework that has its own router.
type AdminRoute struct {
	Method string
	Path   string // may contain "{id}"; the handler reads the id from the request's URL
	http.Handler
}

// AdminRoutes returns the endpoints of [Admin]. AdminRoutes panics when ob is nil.
func AdminRoutes(ob *outbox.Outbox, access Access) []AdminRoute {
	if ob == nil {
		panic(&outbox.FieldError{Field: "Admin ob", Problem: "is nil"})
	}
	a := &admin{
		outbox: ob, dead: ob.DeadLetters(), access: access,
		requests: gate.New(AdminRequests, AdminTimeout/2), bulks: gate.New(AdminBulkRequests, AdminTimeout/2),
	}
	listed := append(slices.Clone(filterParameters), "limit", "after")
	return []AdminRoute{
		{http.MethodGet, "/stats", a.show(a.stats)},
		{http.MethodGet, "/nodes", a.show(a.nodes)},
		{http.MethodGet, "/shares", a.show(a.shares)},
		{http.MethodGet, "/audit", a.show(a.audit, "limit", "after")},
		{http.MethodGet, "/events", a.show(a.events, eventParameters...)},
		{http.MethodGet, "/events/{id}", a.show(a.event)},
		{http.MethodGet, "/dead-letters", a.show(a.list, listed...)},
		{http.MethodGet, "/dead-letters/groups", a.show(a.groups, filterParameters...)},
		{http.MethodGet, "/dead-letters/{id}", a.show(a.get)},
		{http.MethodPost, "/dead-letters/{id}/replay", a.change("replay", a.replay)},
		{http.MethodPost, "/dead-letters/replay", a.bulk("replay", a.replayAll, filterParameters...)},
		{http.MethodDelete, "/dead-letters/{id}", a.change("delete", a.remove, "final")},
		{http.MethodDelete, "/dead-letters", a.bulk("delete", a.removeAll, append(slices.Clone(filterParameters), "final")...)},
		{http.MethodPost, "/deletions/{id}/restore", a.bulk("restore", a.restore)},
		{http.MethodGet, "/pauses", a.show(a.paused)},
		{http.MethodPost, "/pause", a.change("pause", a.pause, pauseParameters...)},
		{http.MethodPost, "/resume", a.change("resume", a.resume, resumeParameters...)},
		{http.MethodGet, "/replays", a.show(a.replays)},
		{http.MethodPost, "/replays/start", a.change("start-replay", a.startReplay, replayParameters...)},
		{http.MethodPost, "/replays/stop", a.change("stop-replay", a.stopReplay, "name")},
		{http.MethodPost, "/replays/continue", a.change("continue-replay", a.continueReplay, "name")},
		{http.MethodPost, "/purge", a.bulk("purge", a.purge)},
		{http.MethodPost, "/wake", a.change("wake", a.wake)},
	}
}

type admin struct {
	outbox *outbox.Outbox
	dead   *outbox.DeadLetters
	access Access
	// requests and bulks bound how many requests use the database.
	requests, bulks *gate.Gate
	facts           shared.Value[verdict.Facts]
}

// statsAge is how old the answer of /stats may be, unless this Admin made a change since.
const statsAge = 2 * time.Second

// call is a request that the role allows.
type call struct {
	*http.Request
	user string
	role Role
	// target and count are the object and the result of a change, for the [AuditEntry].
	target string
	count  int
}

// endpoint returns the answer in JSON, or nil for an answer without a body.
type endpoint func(c *call, p parameters) (any, error)

// problem is the answer to a request that failed.
type problem struct {
	Error     string `json:"error"`
	Parameter string `json:"parameter,omitempty"`
	Replayed  int    `json:"replayed,omitempty"` // before the failure
	Deleted   int    `json:"deleted,omitempty"`
	Restored  int    `json:"restored,omitempty"`
	// DeletionID is the id of the deletion that failed.
	DeletionID string `json:"deletion_id,omitempty"`
}

// show serves an endpoint that changes nothing, with these parameters.
func (a *admin) show(serve endpoint, known ...string) http.Handler {
	return a.handle(View, AdminTimeout, a.requests, serve, known)
}

// change serves an endpoint that changes something, and records the change.
func (a *admin) change(action string, serve endpoint, known ...string) http.Handler {
	return a.handle(Operate, AdminTimeout, a.requests, a.recorded(action, serve), known)
}

// bulk serves an endpoint that changes many rows.
func (a *admin) bulk(action string, serve endpoint, known ...string) http.Handler {
	return a.handle(Operate, AdminBulkTimeout, a.bulks, a.recorded(action, serve), known)
}

func (a *admin) recorded(action string, serve endpoint) endpoint {
	return func(c *call, p parameters) (any, error) {
		answer, err := serve(c, p)
		a.facts.Forget()
		if !refusedInput(err) {
			a.access.Record(c.Context(), AuditEntry{User: c.user, Action: action, Target: c.target, Count: c.count, Err: err})
		}
		return answer, err
	}
}

// refusedInput reports whether a parameter was wrong, so that nothing was tried.
func refusedInput(err error) bool {
	var bad *parameterError
	var field *outbox.FieldError
	return errors.As(err, &bad) || errors.As(err, &field) && parameterOf[field.Field] != ""
}

// handle serves an endpoint for a role. Errors are answered in the form of the endpoints.
func (a *admin) handle(needed Role, timeout time.Duration, places *gate.Gate, serve endpoint, known []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, role, err := a.access.Enter(r)
		switch {
		case errors.Is(err, ErrOtherSite):
			writeJSON(w, r, http.StatusForbidden, problem{Error: err.Error()})
			return
		case err != nil: // the middleware answers
			return
		case !role.May(needed):
			writeJSON(w, r, http.StatusForbidden, problem{Error: a.refused(needed)})
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		leave := places.Enter(ctx)
		if leave == nil {
			w.Header().Set("Retry-After", "5")
			writeJSON(w, r, http.StatusServiceUnavailable, problem{Error: "too many requests of operators use the database; try again in some seconds"})
			return
		}
		defer leave()
		r = r.WithContext(ctx)
		p, err := parametersOf(r, known)
		var answer any
		if err == nil {
			r = r.WithContext(outbox.WithOperator(ctx, outbox.Operator{Name: user, From: webaddr.Client(r)}))
			answer, err = serve(&call{Request: r, user: user, role: role}, p)
		}
		leave()                                    // a slow client keeps no place
		if errors.Is(err, outbox.ErrNotRecorded) { // the change is done; the log has the error
			answer, err = unrecorded(answer), nil
		}
		if err == nil && answer == nil {
			setHeaders(w)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if err != nil {
			status, text := a.problemOf(ctx, err, answer)
			writeJSON(w, r, status, text)
			return
		}
		writeJSON(w, r, http.StatusOK, answer)
	})
}

// refused says why a role does not suffice.
func (a *admin) refused(needed Role) string {
	switch {
	case a.access.Authorize == nil:
		return "Access.Authorize is not set, so no user has a role"
	case needed == Operate:
		return "changes need the role Operate, which Access.Authorize did not return"
	}
	return "Access.Authorize returned no role"
}

// parameterOf names the parameter for a field that package outbox refuses.
var parameterOf = map[string]string{
	"EventQuery.After": "after", "AuditQuery.After": "after", "DeadQuery.After": "after", "EventFilter.EventType": "event_type", "EventFilter.AggregateType": "aggregate_type",
	"EventFilter.AggregateID": "aggregate_id", "EventFilter.TenantID": "tenant_id", "EventFilter.IDPrefix": "id_prefix", "EventFilter.ErrorText": "error_text", "EventFilter.DeletionID": "deletion_id", "DeadFilter.EventType": "event_type",
	"DeadFilter.AggregateType": "aggregate_type", "DeadFilter.AggregateID": "aggregate_id", "DeadFilter.TenantID": "tenant_id",
	"Pause.Reason": "reason", "Pause.Until": "for",
	"Replay.Name": "name", "Replay.Listener": "listener", "Replay.EventTypes": "event_types", "Replay.AggregateType": "aggregate_type", "Replay.AggregateID": "aggregate_id",
	"Replay.TenantID": "tenant_id", "Replay.Since": "since", "Replay.Until": "until", "Replay.Rate": "rate", "Replay.Reason": "reason",
}

// problemOf returns the answer to a request that failed. answer may hold the number of rows that
// were changed before. The text of a database error may contain addresses and names, so it goes
// only to the log.
func (a *admin) problemOf(ctx context.Context, err error, answer any) (int, problem) {
	var bad *parameterError
	var field *outbox.FieldError
	var taken *outbox.KeyTakenError
	switch {
	case errors.As(err, &taken):
		return http.StatusConflict, problem{Error: taken.Error()}.after(answer)
	case errors.As(err, &bad):
		return http.StatusBadRequest, problem{Error: bad.Error(), Parameter: bad.name}
	case errors.Is(err, outbox.ErrNotFound):
		return http.StatusNotFound, problem{Error: outbox.ErrNotFound.Error()}
	case errors.As(err, &field) && parameterOf[field.Field] != "":
		bad = &parameterError{parameterOf[field.Field], field.Problem}
		if bad.name == "after" {
			bad.problem = "is no place in this list; it must be the field next of a listing with the same filter"
		}
		return http.StatusBadRequest, problem{Error: bad.Error(), Parameter: bad.name}
	case errors.As(err, &field):
		return http.StatusConflict, problem{Error: field.Error()}
	}
	id, status := rand.Text()[:8], http.StatusInternalServerError
	what := "the database returned an error"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) { // of a read that requests share
		what, status = "the database did not answer in time", http.StatusServiceUnavailable
	}
	a.access.log().ErrorContext(ctx, "outbox: a request of an operator failed", "id", id, "error", err.Error())
	return status, problem{Error: what + "; the log of this service has its text, with the id " + id}.after(answer)
}

// after adds what was done before the failure.
func (p problem) after(answer any) problem {
	switch done := answer.(type) {
	case replayed:
		p.Replayed = done.Replayed
	case deleted:
		p.Deleted, p.DeletionID = done.Deleted, done.DeletionID
	case restored:
		p.Restored = done.Restored
	}
	return p
}

// unrecorded is the answer to a change that is done, and has no entry in the audit log.
func unrecorded(answer any) any {
	done := struct {
		Replayed *int   `json:"replayed,omitempty"`
		Deleted  *int   `json:"deleted,omitempty"`
		Restored *int   `json:"restored,omitempty"`
		ID       string `json:"deletion_id,omitempty"`
		Warning  string `json:"warning"`
	}{Warning: "the change is done, but it is not recorded in the audit log; the log of this service has the reason"}
	switch answer := answer.(type) {
	case replayed:
		done.Replayed = &answer.Replayed
	case deleted:
		done.Deleted, done.ID = &answer.Deleted, answer.DeletionID
	case restored:
		done.Restored = &answer.Restored
	}
	return done
}

func (a *admin) stats(c *call, _ parameters) (any, error) {
	facts, err := a.facts.Get(c.Context(), statsAge, func(ctx context.Context) (verdict.Facts, error) {
		return verdict.Read(ctx, a.outbox, 0)
	})
	return statsAnswer(&facts), err
}

func (a *admin) list(c *call, p parameters) (any, error) {
	limit, err := p.limit()
	if err != nil {
		return nil, err
	}
	filter, err := p.filter()
	if err != nil {
		return nil, err
	}
	page, err := a.dead.Find(c.Context(), outbox.DeadQuery{DeadFilter: filter, After: p["after"], Limit: limit})
	if err != nil {
		return nil, err
	}
	answer := listing{DeadLetters: make([]deadLetter, len(page.Rows)), More: page.Next != "", Next: page.Next}
	for i := range page.Rows {
		answer.DeadLetters[i] = summary(&page.Rows[i])
	}
	return answer, nil
}

func (a *admin) get(c *call, _ parameters) (any, error) {
	id, err := idOf(c.URL.EscapedPath())
	if err != nil {
		return nil, err
	}
	letter, err := a.dead.Get(c.Context(), id)
	if err != nil {
		return nil, err
	}
	answer := summary(&letter)
	if c.role.May(ReadPayloads) {
		answer.Disclosed = operjson.Disclose(&letter.Envelope)
	}
	return answer, nil
}

func (a *admin) replay(c *call, _ parameters) (any, error) {
	id, err := c.id("/replay")
	if err != nil {
		return nil, err
	}
	err = a.dead.Replay(c.Context(), id)
	if err != nil && !errors.Is(err, outbox.ErrNotRecorded) {
		return nil, err
	}
	c.count = 1
	return replayed{1}, err
}

func (a *admin) replayAll(c *call, p parameters) (any, error) {
	filter, err := p.filter()
	if err != nil {
		return nil, err
	}
	c.target = p.target()
	c.count, err = a.dead.ReplayAll(c.Context(), filter, 0)
	return replayed{c.count}, err
}

func (a *admin) remove(c *call, p parameters) (any, error) {
	id, err := c.id("")
	if err != nil {
		return nil, err
	}
	opts, err := p.final()
	if err != nil {
		return nil, err
	}
	var d outbox.Deletion
	if opts == nil {
		d, err = a.dead.Delete(c.Context(), id)
	} else if d, err = a.dead.DeleteAll(c.Context(), outbox.DeadFilter{EventIDs: []string{id}}, 0, opts...); err == nil && d.Count == 0 {
		err = outbox.ErrNotFound
	}
	c.count = d.Count
	return deleted{d.Count, d.ID}, err
}

// final reads whether a deletion is final.
func (p parameters) final() ([]outbox.BulkOption, error) {
	switch final, given := p["final"]; {
	case final == "true":
		return []outbox.BulkOption{outbox.Final()}, nil
	case given && final != "false":
		return nil, &parameterError{"final", "must be true or false"}
	}
	return nil, nil
}

// restore undoes a deletion.
func (a *admin) restore(c *call, _ parameters) (any, error) {
	id, err := idOf(strings.TrimSuffix(c.URL.EscapedPath(), "/restore"))
	c.target = "deletion=" + id
	if err != nil {
		return nil, err
	}
	c.count, err = a.dead.Restore(c.Context(), id)
	return restored{c.count}, err
}

func (a *admin) removeAll(c *call, p parameters) (any, error) {
	filter, err := p.filter()
	if err != nil {
		return nil, err
	}
	if !p.filters() {
		return nil, &parameterError{"event_type", "or another filter is required, because all dead letters would be deleted; until= with a time in the future means all"}
	}
	opts, err := p.final()
	if err != nil {
		return nil, err
	}
	c.target = p.target()
	d, err := a.dead.DeleteAll(c.Context(), filter, 0, opts...)
	c.count = d.Count
	return deleted{d.Count, d.ID}, err
}

// id returns the event id in the path, before this ending. The id also becomes the target of a
// change.
func (c *call) id(ending string) (string, error) {
	id, err := idOf(strings.TrimSuffix(c.URL.EscapedPath(), ending))
	c.target = "event_id=" + id
	return id, err
}
