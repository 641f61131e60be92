package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/internal/webaddr"
	"github.com/outboxkit/outbox-go/outbox"
)

const (
	keptActions    = 100
	runningActions = 10 // of a single outbox
	// patience is how long a form waits for the action to end, so that a short action shows its
	// result at once.
	patience = 500 * time.Millisecond
)

// actions are the changes that this process made lately, and the changes that run.
type actions struct {
	mu      sync.Mutex
	list    []*shownAction // the latest first
	running int
	idle    chan struct{} // closed when no action runs; nil until the first action runs
}

// shownAction is the state of a change.
type shownAction struct {
	ID, User, Outbox, Action, Target string
	Done, Of                         int // Of is the number that the confirmation said; 0: unknown
	Started, Ended                   time.Time
	Problem                          string
	Unrecorded                       bool // done, but not in the audit log
	DeletionID                       string
	Kind, Letter                     string // the kind or key of a pause; the only dead letter that was chosen
	Until                            time.Time
}

// start runs a change in the background, and returns the id of its action.
func (a *actions) start(p *page, c *change, of int) (id string, err error) {
	a.mu.Lock()
	if c.Action != "wake" && a.runningOf(p.Name) >= runningActions { // a wake only shares the reads of the pages
		a.mu.Unlock()
		return "", &problem{http.StatusServiceUnavailable, "Busy", fmt.Sprintf("%d actions of this outbox run already. Wait until one has ended.", runningActions)}
	}
	shown := &shownAction{ID: rand.Text()[:10], User: p.User, Outbox: p.Name, Action: c.Action, Target: c.Target, Of: of, Started: time.Now().UTC(), Kind: pauseText(outbox.Pause{Kind: c.Kind, AggregateID: c.AggregateID})}
	if len(c.filter.EventIDs) == 1 {
		shown.Letter = c.filter.EventIDs[0]
	}
	a.list = slices.Insert(a.list, 0, shown)
	a.forget()
	if a.running++; a.running == 1 {
		a.idle = make(chan struct{})
	}
	a.mu.Unlock()
	ended := make(chan struct{})
	ctx := outbox.WithOperator(context.WithoutCancel(p.r.Context()), outbox.Operator{Name: p.User, From: webaddr.Client(p.r)})
	go func() {
		defer close(ended)
		a.run(ctx, p.dashboard, c, shown)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
	}
	return shown.ID, nil
}

// runningOf counts the actions of an outbox that run.
func (a *actions) runningOf(outbox string) (n int) {
	for _, shown := range a.list {
		if shown.Outbox == outbox && shown.Ended.IsZero() {
			n++
		}
	}
	return n
}

// forget drops the oldest action that has ended, when there are many.
func (a *actions) forget() {
	for i := len(a.list) - 1; i >= 0 && len(a.list) > keptActions; i-- {
		if !a.list[i].Ended.IsZero() {
			a.list = slices.Delete(a.list, i, i+1)
		}
	}
}

func (a *actions) run(ctx context.Context, d *Dashboard, c *change, shown *shownAction) {
	n, err := c.try(ctx, d, c.site.outbox, func(done int) {
		a.mu.Lock()
		shown.Done = done
		a.mu.Unlock()
	})
	c.site.sampler.forget()
	a.mu.Lock()
	shown.Done, shown.Ended, shown.DeletionID, shown.Until = n, time.Now().UTC(), c.DeletionID, c.Until
	if shown.Unrecorded = errors.Is(err, outbox.ErrNotRecorded); err != nil && !shown.Unrecorded {
		shown.Problem = actionProblem(err)
	}
	a.mu.Unlock()
	defer func() { // after Audit
		if r := recover(); r != nil {
			d.config.Access.Logger.ErrorContext(ctx, "outbox: Access.Audit panicked", "error", fmt.Sprint(r), "stack", string(debug.Stack()))
		}
		a.mu.Lock()
		if a.running--; a.running == 0 {
			close(a.idle)
		}
		a.mu.Unlock()
	}()
	d.config.Access.Record(ctx, httptx.AuditEntry{User: shown.User, Action: c.Action, Outbox: shown.Outbox, Target: c.Target, Count: n, Err: err})
}

// try makes a change. A panic, of a store for example, is an error: no handler would recover
// it in this goroutine.
func (c *change) try(ctx context.Context, d *Dashboard, ob *outbox.Outbox, progress func(int)) (n int, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &outbox.PanicError{Value: r, Stack: debug.Stack()}
		}
	}()
	return c.carryOut(ctx, d, ob, progress)
}

// wait waits until no action runs.
func (a *actions) wait(ctx context.Context) error {
	a.mu.Lock()
	idle := a.idle
	a.mu.Unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// of returns the latest actions of an outbox.
func (a *actions) of(name string) (list []shownAction) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, shown := range a.list {
		if shown.Outbox == name && len(list) < 20 {
			list = append(list, *shown)
		}
	}
	return list
}

// action shows how far a change is, or how it ended. Behind a load balancer the request may reach
// another process than the process that carries the change out.
func (p *page) action() error {
	in, err := p.query("id")
	if err != nil {
		return err
	}
	if in.get("id") == "" {
		return &inputError{"id", "is missing; give the id of an action"}
	}
	p.dashboard.actions.mu.Lock()
	var found *shownAction
	for _, shown := range p.dashboard.actions.list {
		if shown.ID == in.get("id") && shown.Outbox == p.Name {
			copied := *shown
			found = &copied
		}
	}
	p.dashboard.actions.mu.Unlock()
	if found == nil {
		return p.show(http.StatusOK, "Action", elsewhereBody(in.get("id")))
	}
	p.Refresh = found.Ended.IsZero()
	return p.show(http.StatusOK, "Action", found.body()+p.undoAction(found))
}

// undo is a form that undoes a deletion, or asks before.
func (p *page) undo(to, deletionID, text string) markup {
	return tags(`<form method="post" action="{}" class="buttons">{}<input type="hidden" name="deletion" value="{}"><button name="action" value="restore">{}</button></form>
`, to, p.token(to), deletionID, text)
}

// undoAction offers to undo a deletion that has ended.
func (p *page) undoAction(a *shownAction) markup {
	if a.Action != "delete" || a.DeletionID == "" || a.Ended.IsZero() || !p.Operates() {
		return ""
	}
	return p.undo("act", a.DeletionID, "Undo") + tags(`<p>The letters can be restored {}. The audit log offers that too.</p>
{}`, verdict.Restorable(p.outbox), when(p.site.sampler.lastRead().byKey(), `{}`, undoneByKey))
}

func elsewhereBody(id string) markup {
	return tags(`<p class="question" role="status">Another process of the service runs this action, or ran it.</p>
<p>Each process lists the latest actions that it started itself, and loses the list when it restarts. If there is a load balancer, <a href="{}">load this page again</a>: the request may reach the process that has this action.</p>
<p>To see what the action did, look at the <a href="dead">dead letters</a>, the <a href="events">events</a> or <a href="steering">what is paused</a>. The log of the service has a line “outbox: an operator's change” for each action that has ended.</p>
`, link("action", "id", id))
}

func (a *shownAction) body() markup {
	return tags(`<p class="question" role="status">{}</p>
{}
{}
<dl class="facts">
<dt>Target</dt><dd>{}</dd>
<dt>User</dt><dd>{}</dd>
<dt>Started</dt><dd>{}</dd>
<dt>Ended</dt><dd>{}</dd>
</dl>
{}
<p>{}<a href="dead">Dead letters</a> · <a href="steering">Steering and recent actions</a></p>
`,
		a.state(),
		when(a.Of > 0, `<progress max="{}" value="{}" aria-label="Progress">{} of {}</progress>`, a.Of, a.Done, a.Done, a.Of),
		when(a.Problem != "", `<p>{}</p>`, a.Problem)+when(a.Unrecorded, `<p class="note">The change is done, but it is not recorded in the audit log. Do not repeat it. The log of this service has the reason.</p>`),
		cut(a.Target, 1000), cmp.Or(a.User, "–"), instant(a.Started), instant(a.Ended),
		when(a.Ended.IsZero(), `<p>This page reloads itself every two seconds. You may leave it: the action goes on.</p>`),
		when(a.Letter != "", `<a href="{}">The event {}</a> · `, link("event", "id", a.Letter), a.Letter))
}

// state says how far the action is, or how it ended.
func (a *shownAction) state() markup {
	switch {
	case a.Ended.IsZero():
		return tags(`{} runs: {}{} so far`, a.Action, count(a.Done), when(a.Of > 0, ` of {}`, count(a.Of)))
	case a.Problem != "":
		return tags(`<span class="bad">{} failed{}</span>`, a.Action, when(a.Done > 0, ` after {}`, count(a.Done)))
	default:
		return a.result()
	}
}

// result describes the outcome of an action that ended without a problem.
func (a *shownAction) result() markup {
	letters := tags(`{} dead {}`, count(a.Done), plural("letter", a.Done))
	switch a.Action {
	case "replay":
		return when(a.Done == 0, `Nothing was replayed: no dead letter matches. It may be replayed already.`) +
			when(a.Done > 0, `Replayed {}: {} due now, and {} delivered again.`, letters, choose(a.Done == 1, "it is", "they are"), choose(a.Done == 1, "is", "are"))
	case "delete":
		return when(a.Done == 0, `Nothing was deleted: no dead letter matches.`) + when(a.Done > 0, `Deleted {}.`, letters)
	case "restore":
		return tags(`Restored {}.`, letters)
	case "pause":
		return tags(`{} paused until {}.`, a.Kind, untilOf(a.Until))
	case "resume":
		return tags(`{} resumed: events that waited are delivered again.`, a.Kind)
	case "start-replay", "stop-replay", "continue-replay":
		return replayResult(a.Action, a.Target)
	case "purge":
		return when(a.Done == 0, `Nothing was purged: no event is older than the retention.`) + when(a.Done > 0, `Purged {} {}.`, count(a.Done), plural("event", a.Done))
	default:
		return `The poller of this process was woken: it reads the table now.`
	}
}

// recent lists the latest actions of the outbox.
func (p *page) recent() markup {
	list := tags(`<p class="none">None in this process since it started. The log has the changes of all processes.</p>`)
	if actions := p.dashboard.actions.of(p.Name); len(actions) > 0 {
		list = tags(`<div class="wide"><table>
<thead><tr><th scope="col">Action</th><th scope="col">Target</th><th scope="col">Events</th><th scope="col">User</th><th scope="col">Started</th><th scope="col">Result</th></tr></thead>
<tbody>{}</tbody></table></div>
`, each(actions, func(a shownAction) markup {
			result := tags(`{}`, choose(a.Ended.IsZero(), "runs", "done"))
			if !a.Ended.IsZero() && a.Problem != "" {
				result = `<span class="bad">failed</span>`
			}
			return tags(`<tr><th scope="row"><a href="{}">{}</a></th><td class="text" data-label="Target">{}</td><td class="number" data-label="Events">{}</td><td data-label="User">{}</td><td data-label="Started">{}</td><td data-label="Result">{}</td></tr>
`, link("action", "id", a.ID), a.Action, cut(a.Target, 200), count(a.Done), a.User, moment(a.Started), result)
		}))
	}
	return tags(`<section aria-labelledby="recent"><h2 id="recent">Recent actions</h2>
{}
</section>
`, list)
}
