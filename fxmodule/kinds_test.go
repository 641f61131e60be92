package outboxfx_test

import (
	"testing"

	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/internal/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testdb"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestOutboxesOnDifferentKindsOfDatabasesInOneApp(t *testing.T) {
	t.Parallel()
	box := newInbox()
	opts := []fx.Option{outboxfx.AsListener(func() *inbox { return box }, outboxfx.On("Order", "Placed"), outboxfx.For("postgres", "mysql", "sqlite"))}
	writers := map[testdb.Kind]*outbox.Writer{}
	pools := map[testdb.Kind]*testdb.DB{}
	for _, target := range adaptertest.Main() {
		kind, name := target.Kind, string(target.Kind)
		pools[kind] = testdb.Open(t, target)
		opts = append(
			opts, named(name, pools[kind].DB),
			outboxfx.NewModule(outboxfx.Named(name), outboxfx.WithConfig(outboxfx.Config{Mode: outboxfx.MultiNode, CreateSchema: true})),
			fx.Invoke(fx.Annotate(func(w *outbox.Writer) { writers[kind] = w }, fx.ParamTags(`name:"`+name+`"`))),
		)
	}
	started(t, opts...)
	for kind, w := range writers {
		write(t, pools[kind].DB, w, placed(string(kind)))
	}
	box.awaits(t, "postgres", "mysql", "sqlite")
}

func TestPairsMayHoldAnyCharacter(t *testing.T) {
	t.Parallel()
	db, box := openSQLite(t), newInbox()
	const aggregate, event = "a\"b\\c", "x,y`z €\n"
	var w *outbox.Writer
	started(t, fx.Supply(db), outboxfx.Module, fx.Populate(&w),
		outboxfx.AsListener(func() *inbox { return box }, outboxfx.On(aggregate, event)))
	write(t, db, w, outbox.Envelope{AggregateType: aggregate, EventType: event, AggregateID: "o-1", Payload: outbox.RawJSON(`{}`)})
	box.awaits(t, "o-1")
}
