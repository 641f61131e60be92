package outbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

// brokenError is an error with a method that panics.
type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text } // panics for a nil pointer

type brokenIs struct{ error }

func (brokenIs) Is(error) bool { panic("Is broke") }

type brokenAs struct{ error }

func (brokenAs) As(any) bool { panic("As broke") }

type brokenUnwrap struct{ error }

func (brokenUnwrap) Unwrap() error { panic("Unwrap broke") }

// brokenAnswers are listeners' answers with errors whose methods panic, and what
// the table has to say of them.
var brokenAnswers = map[string]struct {
	answer func() error
	text   string
}{
	"nil pointer":         {func() error { var e *brokenError; return e }, "*outbox_test.brokenError, panicked: runtime error"},
	"nil pointer wrapped": {func() error { var e *brokenError; return outbox.Dead(e) }, "panicked: runtime error"},
	"Is":                  {func() error { return brokenIs{errors.New("x")} }, "Is broke"},
	"As":                  {func() error { return brokenAs{errors.New("x")} }, "As broke"},
	"Unwrap": {func() error {
		return fmt.Errorf("so: %w", brokenUnwrap{errors.New("x")})
	}, "Unwrap broke"},
	"a panic's value": {func() error { panic(brokenIs{errors.New("x")}) }, "Is broke"},
}

func TestAnErrorWhoseMethodsPanicIsAFailedDelivery(t *testing.T) {
	t.Parallel()
	for name, tc := range brokenAnswers {
		for attempts, status := range map[int]outbox.Status{1: outbox.StatusDead, 5: outbox.StatusRetry} {
			t.Run(fmt.Sprint(name, ", ", status), func(t *testing.T) {
				t.Parallel()
				book := &logbook{}
				seen := make(chan error, 1)
				e := start(t, outbox.Config{
					Mode:   outbox.SingleNode{Dispatch: outbox.DispatchOptions{Workers: 1, MaxAttempts: attempts}, Poll: outbox.PollOptions{Interval: time.Hour}},
					Logger: slog.New(book), RetryPolicy: outbox.ExponentialBackoff(time.Hour, time.Hour),
					Interceptors: []outbox.Interceptor{outbox.After(func(_ context.Context, env outbox.Envelope, err error) {
						if env.EventID == "broken" {
							seen <- err
						}
					})},
				}, func(_ context.Context, env outbox.Envelope) error {
					if env.EventID == "broken" {
						return tc.answer()
					}
					return nil
				})
				e.write(said("broken"))
				row := e.await("broken", status)
				require.Equal(t, 1, row.Attempts)
				require.Contains(t, row.LastError, tc.text)
				requirePanicError(t, receive(t, seen))
				e.write(said("another")) // the worker goes on
				e.await("another", outbox.StatusDone)
				require.NoError(t, e.Close(t.Context()))
				require.Empty(t, book.about("After interceptor"))
				require.Contains(t, book.problems()[0].attrs["stack"].String(), "outbox")
			})
		}
	}
}

func requirePanicError(t *testing.T, err error) {
	t.Helper()
	var panicked *outbox.PanicError
	require.ErrorAs(t, err, &panicked)
	require.NotErrorIs(t, err, outbox.ErrUnroutable)
	require.Contains(t, err.Error(), "panic at cause_test.go:")
}

func TestErrorsOfInterceptorsMayPanicToo(t *testing.T) {
	t.Parallel()
	var nothing *brokenError
	ok := outbox.ListenerFunc(func(context.Context, outbox.Envelope) error { return nil })
	var outcome outbox.Outcome
	for name, interceptor := range map[string]outbox.Interceptor{
		"before": outbox.Before(func(context.Context, outbox.Envelope) error { return nothing }),
		"raw": func(outbox.Listener) outbox.Listener {
			return outbox.ListenerFunc(func(ctx context.Context, env outbox.Envelope) error {
				outcome = outbox.OutcomeOf(ctx, env, nothing)
				return nothing
			})
		},
	} {
		got := deliver(t, ok, interceptor)
		require.Equal(t, outbox.StatusRetry, got.Status, name)
		requirePanicError(t, got.Err)
	}
	require.Equal(t, outbox.OutcomeRetry, outcome)
	require.Equal(t, outbox.OutcomeRetry, outbox.OutcomeOf(t.Context(), said("e"), nothing), "without a dispatcher")
}

func TestErrorsOfWriterHooksMayPanicToo(t *testing.T) {
	t.Parallel()
	w, store := writing(t, outbox.WriterHook{
		BeforeWrite: func(context.Context, []outbox.Envelope) ([]outbox.Envelope, error) {
			return nil, brokenIs{errors.New("x")}
		},
	})
	_, err := w.WriteScope(t.Context(), outboxtest.NewScope(store.DB()), []outbox.Envelope{said("e")})
	requirePanicError(t, err)

	var got error
	w, store = writing(t, outbox.WriterHook{
		AfterRollback: func(_ context.Context, _ []outbox.Envelope, cause error) { got = cause },
	})
	scope := outboxtest.NewScope(store.DB())
	_, err = w.WriteScope(t.Context(), scope, []outbox.Envelope{said("e")})
	require.NoError(t, err)
	require.NotPanics(t, func() { _ = scope.Rollback(brokenIs{errors.New("x")}) })
	require.NotNil(t, got)
}

// panickingMetrics panic when a listener ran.
type panickingMetrics struct{ outbox.NopMetrics }

func (panickingMetrics) ListenerRan(outbox.EventKind, time.Duration) { panic("the metrics broke") }

// panickingMetricsProcess delivers an event with metrics that panic.
func panickingMetricsProcess() {
	store := outboxtest.NewStore()
	ob, err := outbox.New(outbox.Config{DB: store.DB(), Store: store, Metrics: panickingMetrics{}})
	check(err)
	check(ob.Register(outbox.On("", "Said", outbox.ListenerFunc(noop))))
	check(ob.Start(context.Background()))
	scope := outboxtest.NewScope(store.DB())
	_, err = ob.Writer().WriteScope(context.Background(), scope, []outbox.Envelope{said("e")})
	check(err)
	check(scope.Commit())
	select {}
}

func TestAPanicOfMetricsIsNotTreatedAsTheListeners(t *testing.T) {
	t.Parallel()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), processName+"=panicking metrics")
	var said bytes.Buffer
	child.Stderr = &said
	require.Error(t, child.Run())
	require.Contains(t, said.String(), "panic: the metrics broke")
	require.Contains(t, said.String(), "ListenerRan", "the stack is that of the panic")
	require.NotContains(t, said.String(), "Goexit)")
	require.NotContains(t, said.String(), "delivery failed")
}
