package outbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

const blank = " \n"

type wordless struct{}

func (wordless) Error() string { return "" }

// The text of last_error is useful without the logs.
func TestLastErrorIsNeverEmptyAndSaysWhere(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer func() error
		text   string
	}{
		"an error without a text": {func() error { return wordless{} }, "an error of type outbox_test.wordless without a text"},
		"a blank error":           {func() error { return errors.New(blank) }, "an error of type *errors.errorString without a text"},
		"dead without a reason":   {func() error { return outbox.Dead(nil) }, "the listener gave no reason"},
		"a panic":                 {func() error { panic("no stock") }, "panic at text_test.go:32: no stock"},
		"a runtime error": {func() error {
			var missing map[string]func()
			missing["x"]()
			return nil
		}, "panic at text_test.go:35: runtime error: invalid memory address or nil pointer dereference"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t, outbox.Config{Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 1}}},
				func(context.Context, outbox.Envelope) error { return tt.answer() })
			e.write(said("failing"))
			require.Equal(t, tt.text, e.await("failing", outbox.StatusDead).LastError)
		})
	}
}

// Texts of errors that a user meets first: what is wrong, and the way out.
func TestErrorsSayTheWayOut(t *testing.T) {
	t.Parallel()
	store := outboxtest.NewStore()
	mode := func(m outbox.Mode) error {
		_, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Mode: m})
		return err
	}
	writer := build(t, outbox.Config{Store: store, Mode: outbox.WriterOnly{}}, nil).Writer()
	for name, tt := range map[string]struct {
		err  error
		text string
	}{
		"an interval without a unit": {
			mode(outbox.SingleNode{Poll: outbox.PollOptions{Interval: 5}}),
			"outbox: Config.Mode.Poll.Interval is 5ns, less than a millisecond; did you mean 5s?",
		},
		"a lease without a unit": {
			mode(outbox.MultiNode{Claim: outbox.ClaimOptions{LeaseDuration: 300}}),
			"outbox: Config.Mode.Claim.LeaseDuration is 300ns, less than a millisecond; did you mean 5m0s?",
		},
		"a drain without a unit": {
			mode(outbox.Ordered{DrainTimeout: 30}),
			"outbox: Config.Mode.DrainTimeout is 30ns, less than a millisecond; did you mean 30s?",
		},
		"a long owner": {
			mode(outbox.MultiNode{Claim: outbox.ClaimOptions{Owner: string(make([]rune, 113))}}),
			"outbox: Config.Mode.Claim.Owner is 113 characters long; the limit is 112",
		},
		"JSON that is none": {
			outbox.Envelope{EventType: "OrderPlaced", Payload: outbox.RawJSON(`{"id": 1,}`)}.Validate(),
			`outbox: Envelope.Payload of event type "OrderPlaced" is not valid JSON (10 bytes; the error is at offset 10)`,
		},
		"JSON that ends": {
			outbox.Envelope{EventType: "OrderPlaced", Payload: outbox.RawJSON(`{"id"`)}.Validate(),
			`outbox: Envelope.Payload of event type "OrderPlaced" is not valid JSON (5 bytes; the error is at offset 5)`,
		},
		"no transaction": {
			write(writer, t.Context()),
			"outbox: no active transaction in the context; begin one with the adapter or a web middleware, or call the adapter's Write with your transaction",
		},
		"a transaction of another source": {
			write(writer, outboxtest.NewScope(outboxtest.NewStore().DB()).Context(t.Context())),
			"outbox: no active transaction of this writer's data source in the context: outbox: the transaction belongs to another data source; " +
				"write with that source's writer, or begin a transaction on this one",
		},
		"a transaction that may not be": {
			write(writer, outbox.ContextWithoutTx(t.Context(), "this request only reads")),
			"outbox: no active transaction in the context: this request only reads",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.EqualError(t, tt.err, tt.text)
		})
	}
}

func write(w *outbox.Writer, ctx context.Context) error { //nolint:revive // the writer is what it is about.
	_, err := w.Write(ctx, said("x"))
	return err
}

// Ordered has the options that any mode needs.
func TestOrderedTakesTheOptionsOfEveryMode(t *testing.T) {
	t.Parallel()
	e := start(t, outbox.Config{Mode: outbox.Ordered{ListenerTimeout: 5 * time.Millisecond, DrainTimeout: time.Second, OnUnroutable: outbox.LeaveUnroutable}},
		func(ctx context.Context, _ outbox.Envelope) error {
			<-ctx.Done()
			return ctx.Err()
		})
	e.write(said("hangs"), outbox.Envelope{EventID: "unroutable", EventType: "Unknown", Payload: outbox.JSON(1)})
	e.Wake()
	require.Contains(t, e.await("hangs", outbox.StatusDead).LastError, "deadline exceeded")
	require.Eventually(t, func() bool {
		row, _ := e.store.Row("unroutable")
		return row.Status == outbox.StatusNew && strings.HasPrefix(row.LastError, "no listener for __GLOBAL__/Unknown in the process that took it; deferred by ")
	}, 20*time.Second, time.Millisecond)
}
