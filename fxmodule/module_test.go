package outboxfx_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
	"github.com/outboxkit/outbox-go/outbox"
)

func TestAnAppThatWritesDelivers(t *testing.T) {
	t.Parallel()
	db, box := openSQLite(t), newInbox()
	var (
		o    *outbox.Outbox
		w    *outbox.Writer
		dead *outbox.DeadLetters
	)
	started(t, fx.Supply(db), outboxfx.Module,
		outboxfx.AsListener(func() *inbox { return box }, outboxfx.On("Order", "Placed")),
		fx.Populate(&o, &w, &dead))
	require.Same(t, o.Writer(), w)
	require.Same(t, o.DeadLetters(), dead)
	write(t, db, w, placed("o-1"))
	box.awaits(t, "o-1")
}

func TestProbeErrors(t *testing.T) {
	db := openSQLite(t)
	show := func(what string, err error) { t.Logf("== %s\n%v", what, err) }
	two := []fx.Option{fx.Supply(db), outboxfx.NewModule(), outboxfx.NewModule()}
	show("two modules", newError(two...))
	show("two modules validate", validateError(two...))
	show("no db", newError(outboxfx.Module))
	show("no db validate", validateError(outboxfx.Module))
	show("no db named validate", validateError(fx.Supply(db), outboxfx.NewModule(outboxfx.Named("orders"))))
	l := outboxfx.AsListener(newInbox, outboxfx.On("Order", "Placed"))
	show("no module", newError(l))
	typo := []fx.Option{fx.Supply(db), outboxfx.Module, outboxfx.AsListener(newInbox, outboxfx.On("Order", "Placed"), outboxfx.For("oders"))}
	show("unknown", newError(typo...))
	show("unknown validate", validateError(typo...))
	show("dup", newError(fx.Supply(db), outboxfx.Module, l, outboxfx.AsListener(newInbox, outboxfx.On("Order", "Placed"))))
	show("ctor err", newError(fx.Supply(db), outboxfx.Module, outboxfx.AsListener(func() (*inbox, error) { return nil, errors.New("smtp down") }, outboxfx.On("Order", "Placed"))))
	show("nil listener", newError(fx.Supply(db), outboxfx.Module, outboxfx.AsListener(func() *inbox { return nil }, outboxfx.On("Order", "Placed"))))
	show("no listener", newError(fx.Supply(db), outboxfx.Module, outboxfx.AsListener(func() *sql.DB { return nil }, outboxfx.On("Order", "Placed"))))
	dep := []fx.Option{fx.Supply(db), outboxfx.Module, outboxfx.AsListener(func(*errors2) *inbox { return nil }, outboxfx.On("Order", "Placed"))}
	show("missing dep", newError(dep...))
	show("missing dep validate", validateError(dep...))
	show("cycle", newError(fx.Supply(db), outboxfx.Module, outboxfx.AsHook(func(*outbox.Writer) outbox.WriterHook { return outbox.WriterHook{} })))
	show("store ctor dep", validateError(fx.Supply(db), outboxfx.NewModule(outboxfx.WithStore(func(*errors2) outbox.Store { return nil }))))
	show("store nil", newError(fx.Supply(db), outboxfx.NewModule(outboxfx.WithStore(func() outbox.Store { return nil }))))
	show("config", newError(fx.Supply(db, outboxfx.Config{Mode: "multinode", Poller: outboxfx.PollerConfig{Interval: -1}}), outboxfx.NewModule()))
}

type errors2 struct{}
