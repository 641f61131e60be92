package faultrun

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/proof/checker"
)

// firstProcess is the name of the process that writes; event ids begin with it.
const firstProcess = "a"

// Parts of an event's id that say what the listener does at the first delivery.
const (
	fails  = "fails"
	defers = "defers"
	dies   = "dies"
	blocks = "blocks" // the listener waits until the kind of the next event is paused
)

// crashStep is a transaction of the script.
type crashStep struct {
	name   string
	types  []string
	key    int
	end    string // how the transaction ends, unless with COMMIT
	delay  time.Duration
	paused bool // the kind of the event is paused after the COMMIT
	beside bool // the next step does not wait for the deliveries of this step
}

const (
	rolledBack  = "rolled back"
	inSavepoint = "in a savepoint"
)

var crashSteps = []crashStep{
	{name: "plain", types: []string{Plain}},
	{name: "undone", types: []string{Plain, Ledger}, end: rolledBack},
	{name: "partly", types: []string{Plain}, end: inSavepoint},
	{name: "ledger", types: []string{Ledger}},
	{name: "inbox", types: []string{Inbox}},
	{name: "batch", types: []string{Batch, Batch}},
	{name: fails, types: []string{Plain, Plain}, key: 1},
	{name: defers, types: []string{Plain}, key: 7, beside: true},
	{name: "many-" + fails, types: []string{Many}, key: 2},
	{name: dies, types: []string{Plain}, key: 3, beside: true},
	{name: "delayed", types: []string{Plain}, key: 4, delay: 60 * time.Millisecond, beside: true},
	{name: blocks, types: []string{Plain}, key: 5, beside: true},
	{name: "paused", types: []string{Inbox}, key: 6, paused: true},
	{name: "last", types: []string{Ledger, Plain, Inbox}, key: 1},
}

// stepWait is the longest that the script waits for the deliveries of a step. The deliveries may
// never come when an answer was lost, or another process has the lease.
const stepWait = 4 * time.Second

// script makes the transactions one after the other.
func (n *node) script(ctx context.Context) {
	if n.crash == nil {
		return
	}
	defer n.demand(ctx)
	if n.crash.Follows {
		return
	}
	for _, step := range crashSteps {
		events := n.step(ctx, step)
		if step.paused {
			n.pause(ctx, Kind(step.types[0]))
		}
		if !step.beside {
			n.awaitStep(ctx, events)
		}
	}
}

// crashKey is the key of the requests of a script.
const crashKey = "key"

// demand sends a request with a key until it succeeds, repeats the request, and sends a different
// request with the key. The processes that follow do the same.
func (n *node) demand(ctx context.Context) {
	if n.orders == nil {
		return
	}
	ctx = context.WithValue(context.WithoutCancel(ctx), whoseKey{}, "request")
	for range 2 {
		for !n.request(ctx, tea).Succeeded() {
			n.crash.gate()
			pause(ctx, 10*time.Millisecond)
		}
	}
	n.request(ctx, coffee)
}

// request is a request as the process's own client sends it, with the answer.
func (n *node) request(ctx context.Context, asks string) *checker.Request {
	request := checker.Request{Key: crashKey, Asks: asks}
	n.log.Add(checker.Record{Op: checker.OpSent, Request: &request})
	r, w := httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders", strings.NewReader(asks)), httptest.NewRecorder()
	r.Header.Set(httptx.KeyHeader, request.Key)
	n.orders.ServeHTTP(w, r)
	answer := answered(request, w.Result().StatusCode, w.Result().Header, w.Body.Bytes())
	n.log.Add(checker.Record{Op: checker.OpAnswered, Request: &answer})
	return &answer
}

// pause pauses a kind while a listener has the only worker, and resumes it afterwards: the worker
// gives back the queued events of that kind.
func (n *node) pause(ctx context.Context, kind outbox.EventKind) {
	ctx = context.WithValue(ctx, whoseKey{}, "operator")
	n.insist(ctx, func() error { return n.ob.Pause(ctx, outbox.Pause{Kind: kind}) })
	close(n.crash.unblock)
	n.insist(ctx, func() error { return n.ob.Resume(ctx, kind) })
}

// insist repeats a call as an operator would repeat it.
func (n *node) insist(ctx context.Context, do func() error) {
	for do() != nil && ctx.Err() == nil {
		n.crash.gate()
	}
}

func (n *node) awaitStep(ctx context.Context, events []checker.Event) {
	ends := time.After(stepWait)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !n.crash.isSettled(events) {
		select {
		case <-look.C:
		case <-ends:
			return
		case <-ctx.Done():
			return
		}
	}
}

// step makes a transaction, and returns the events that committed.
func (n *node) step(ctx context.Context, step crashStep) []checker.Event {
	id := n.Process + "-" + step.name
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	whose := "write"
	if step.end != "" {
		whose += ", " + step.end
	}
	var events []checker.Event
	err := viaSQL{n}.InTx(context.WithValue(ctx, whoseKey{}, whose), func(ctx context.Context, tx transaction) (err error) {
		if events, err = n.stepOrder(ctx, id, step, tx); err != nil {
			return err
		}
		switch step.end {
		case rolledBack:
			return errRolledBack
		case inSavepoint:
			if err := n.inSavepoint(ctx, id, viaSQL{n}, events[0]); err != nil {
				return err
			}
		}
		n.log.Add(checker.Record{Op: checker.OpCommit, Tx: id})
		return nil
	})
	n.log.Add(ended(id, err))
	if err != nil {
		return nil
	}
	return events
}

func (n *node) stepOrder(ctx context.Context, id string, step crashStep, tx transaction) ([]checker.Event, error) {
	key := keyName(step.key)
	if err := tx.Exec(ctx, quoted("UPDATE fault_keys SET n = n + 1 WHERE id = '%s'", key)); err != nil {
		return nil, err
	}
	number, err := tx.Number(ctx, quoted("SELECT n FROM fault_keys WHERE id = '%s'", key))
	if err != nil {
		return nil, err
	}
	if err := tx.Exec(ctx, quoted("INSERT INTO fault_orders VALUES ('%s')", id)); err != nil {
		return nil, err
	}
	events := make([]checker.Event, len(step.types))
	for i, typ := range step.types {
		events[i] = checker.Event{ID: fmt.Sprintf("%s-%d", id, i), Type: typ, Key: key, Seq: 10*number + i, Delayed: step.delay > 0}
	}
	n.log.Add(checker.Record{Op: checker.OpWrite, Tx: id, Events: events})
	envs := n.envelopes(events)
	for i := range envs {
		envs[i].DeliverAfter = step.delay
	}
	_, err = tx.Write(ctx, envs)
	return events, err
}
