package outboxfx_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// newPool stands for the database of a store in memory, which does not use it.
func newPool() *sql.DB { return new(sql.DB) }

// inMemory is the option of a store in memory.
func inMemory() outboxfx.Option { return outboxfx.WithStore(outboxtest.NewStore()) }

// named supplies a pool as a named data source.
func named(name string, db *sql.DB) fx.Option {
	return fx.Supply(fx.Annotate(db, fx.ResultTags(`name:"`+name+`"`)))
}

// write commits an event.
func write(t *testing.T, db *sql.DB, w *outbox.Writer, env outbox.Envelope) {
	t.Helper()
	scope := outboxtest.NewScope(db)
	_, err := w.Write(scope.Context(t.Context()), env)
	require.NoError(t, err)
	require.NoError(t, scope.Commit())
}

func placed(id string) outbox.Envelope {
	return outbox.Envelope{EventType: "Placed", AggregateType: "Order", AggregateID: id, Payload: outbox.RawJSON(`{}`)}
}

// inbox is a listener that keeps the ids of the aggregates that it gets.
type inbox struct {
	mu  sync.Mutex
	ids []string
}

func newInbox() *inbox { return &inbox{} }

func (i *inbox) OnEvent(_ context.Context, env outbox.Envelope) error {
	i.note(env.AggregateID)
	return nil
}

func (i *inbox) note(id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ids = append(i.ids, id)
}

func (i *inbox) notes() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]string{}, i.ids...)
}

// awaits waits until the inbox holds these ids.
func (i *inbox) awaits(t *testing.T, ids ...string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.ElementsMatch(c, ids, i.notes()) }, 20*time.Second, 2*time.Millisecond)
}

// listens is the option of a listener that is there already.
func (i *inbox) listens(opts ...outboxfx.ListenerOption) fx.Option {
	return outboxfx.AsListener(func() outbox.Listener { return i }, append(opts, outboxfx.On("Order", "Placed"))...)
}

// started starts an app and stops it with the test.
func started(t *testing.T, opts ...fx.Option) {
	t.Helper()
	app := fxtest.New(t, append(opts, fx.NopLogger)...)
	app.RequireStart()
	t.Cleanup(func() { app.RequireStop() })
}

// newError is what fx.New says.
func newError(opts ...fx.Option) error { return fx.New(append(opts, fx.NopLogger)...).Err() }

var errSMTP = errors.New("smtp down")
