package outboxotel_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/outboxkit/outbox-go/adapters/otel"
	"github.com/outboxkit/outbox-go/outbox"
)

var errStock = errors.New("out of stock")

// declined is an error that names its type for telemetry.
type declined struct{}

func (declined) Error() string     { return "declined" }
func (declined) ErrorType() string { return "card_declined" }

// TestTheSpanSaysWhatTheEngineDecided runs each answer through an outbox and
// compares the span with what the table shows afterwards.
func TestTheSpanSaysWhatTheEngineDecided(t *testing.T) {
	t.Parallel()
	later := time.Hour
	once := outbox.SingleNode{
		Dispatch: outbox.DispatchOptions{MaxAttempts: 1, OnUnroutable: outbox.KillUnroutable},
		Poll:     outbox.PollOptions{Interval: 20 * time.Millisecond},
	}
	claiming := outbox.MultiNode{Poll: once.Poll}
	onceClaiming := outbox.MultiNode{Poll: once.Poll, Dispatch: once.Dispatch}
	for name, tt := range map[string]struct {
		err        error
		mode       outbox.Mode
		unroutable bool
		outcome    any // nil: done
		errorType  string
		status     outbox.Status
	}{
		"done":                                         {status: outbox.StatusDone},
		"failure":                                      {err: errStock, outcome: "retry", errorType: "*errors.errorString", status: outbox.StatusRetry},
		"wrapped failure":                              {err: fmt.Errorf("selling: %w", errStock), outcome: "retry", errorType: "*errors.errorString", status: outbox.StatusRetry},
		"failure with a type":                          {err: declined{}, outcome: "retry", errorType: "card_declined", status: outbox.StatusRetry},
		"failure with a delay":                         {err: outbox.RetryIn(later, declined{}), outcome: "retry", errorType: "card_declined", status: outbox.StatusRetry},
		"failure on several nodes":                     {err: errStock, mode: claiming, outcome: "retry", errorType: "*errors.errorString", status: outbox.StatusRetry},
		"failure of the last attempt":                  {err: errStock, mode: once, outcome: "dead", errorType: "*errors.errorString", status: outbox.StatusDead},
		"failure of the only attempt":                  {err: errStock, mode: outbox.Ordered{Poll: once.Poll}, outcome: "dead", errorType: "*errors.errorString", status: outbox.StatusDead},
		"failure with a delay and no type":             {err: outbox.RetryIn(later, errStock), outcome: "retry", errorType: "*errors.errorString", status: outbox.StatusRetry},
		"unrecoverable and no type":                    {err: outbox.Dead(errStock), outcome: "dead", errorType: "*errors.errorString", status: outbox.StatusDead},
		"failure of the last attempt on several nodes": {err: errStock, mode: onceClaiming, outcome: "dead", errorType: "*errors.errorString", status: outbox.StatusDead},
		"unrecoverable":                                {err: outbox.Dead(declined{}), outcome: "dead", errorType: "card_declined", status: outbox.StatusDead},
		"unrecoverable and no more":                    {err: outbox.Dead(nil), outcome: "dead", errorType: "*outbox.OutcomeError", status: outbox.StatusDead},
		"dead by the listener's decision":              {err: outbox.Dead(errors.New("no such order")), outcome: "dead", errorType: "*errors.errorString", status: outbox.StatusDead},
		"deferred":                                     {err: outbox.Defer(later), outcome: "deferred", status: outbox.StatusNew},
		"deferred, with a reason":                      {err: fmt.Errorf("no stock yet: %w", outbox.Defer(later)), outcome: "deferred", status: outbox.StatusNew},
		"no listener":                                  {unroutable: true, mode: once, outcome: "dead", errorType: "unroutable", status: outbox.StatusDead},
		"no listener, left to another":                 {unroutable: true, outcome: "released", status: outbox.StatusNew},
		"a cancelled context of its own":               {err: context.Canceled, outcome: "retry", errorType: "*errors.errorString", status: outbox.StatusRetry},
		"an exceeded deadline of its own":              {err: context.DeadlineExceeded, outcome: "retry", errorType: "context.deadlineExceededError", status: outbox.StatusRetry},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spans := newRecording(t)
			opts := []outboxotel.Option{outboxotel.WithTracerProvider(spans)}
			cfg := traced(opts...)
			cfg.Mode = tt.mode
			cfg.RetryPolicy = outbox.RetryPolicyFunc(func(int) time.Duration { return later })
			b := on(func(context.Context, outbox.Envelope) error { return tt.err })
			if tt.unroutable {
				b.EventType = "order.other"
			}
			a := run(t, openDB(t).DB, cfg, b)
			id := a.write(t.Context(), t, event())[0]

			span := spans.wait(t, deliverPlaced, 1)[0]
			require.Equal(t, tt.outcome, value(span, "outbox.outcome"))
			if tt.errorType == "" {
				require.Nil(t, value(span, "error.type"))
				require.Equal(t, codes.Unset, span.Status.Code)
			} else {
				require.Equal(t, tt.errorType, value(span, "error.type"))
				require.Equal(t, codes.Error, span.Status.Code)
			}
			var status int
			var due, occurred int64
			eventually(t, func() bool {
				require.NoError(t, a.db.QueryRowContext(context.Background(),
					"SELECT status, available_at, created_at FROM outbox_event WHERE event_id = ?", id).Scan(&status, &due, &occurred))
				return outbox.Status(status) == tt.status && (due > occurred || tt.outcome == "released" || tt.status == outbox.StatusDone || tt.status == outbox.StatusDead)
			}, "the row to be %v", tt.status)
		})
	}
}

func TestAPanicIsAnErrorOfTheSpanAndOfTheEvent(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	a := run(t, openDB(t).DB, traced(outboxotel.WithTracerProvider(spans)), on(func(_ context.Context, env outbox.Envelope) error {
		if env.Attempts == 0 {
			panic("no such shelf")
		}
		return nil
	}))
	a.write(t.Context(), t, event())

	attempts := spans.wait(t, deliverPlaced, 2)
	require.Equal(t, "panic at outcome_test.go:107: no such shelf", attempts[0].Status.Description)
	require.Equal(t, "panic", value(attempts[0], "error.type"))
	require.Equal(t, codes.Error, attempts[0].Status.Code)
	require.Equal(t, "retry", value(attempts[0], "outbox.outcome"))
	details := map[string]string{}
	for _, kv := range attempts[0].Events[0].Attributes {
		details[string(kv.Key)] = kv.Value.AsString()
	}
	require.Equal(t, "panic at outcome_test.go:107: no such shelf", details["exception.message"])
	require.Contains(t, details["exception.stacktrace"], "outcome_test.go")
	require.Nil(t, value(attempts[1], "outbox.outcome"))
}

func TestAListenerThatEndsItsGoroutineIsAnError(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	ended := make(chan struct{})
	deliver := outboxotel.Interceptor(outboxotel.WithTracerProvider(spans))(outbox.ListenerFunc(
		func(context.Context, outbox.Envelope) error {
			runtime.Goexit()
			return nil
		}))
	go func() {
		defer close(ended)
		_ = deliver.OnEvent(context.Background(), event())
	}()
	<-ended
	require.Equal(t, codes.Error, spans.wait(t, deliverPlaced, 1)[0].Status.Code)
}

func TestADeliveryThatTheShutdownInterrupts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		panics  bool
		outcome string
		status  codes.Code
	}{
		"is released":               {false, "released", codes.Unset},
		"is a failure if it panics": {true, "retry", codes.Error},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spans := newRecording(t)
			began := make(chan struct{})
			cfg := traced(outboxotel.WithTracerProvider(spans))
			cfg.Mode = outbox.SingleNode{Dispatch: outbox.DispatchOptions{DrainTimeout: 500 * time.Millisecond}}
			a := run(t, openDB(t).DB, cfg, on(func(ctx context.Context, _ outbox.Envelope) error {
				close(began)
				<-ctx.Done()
				if tt.panics {
					panic("no such shelf")
				}
				return ctx.Err()
			}))
			a.write(t.Context(), t, event())
			<-began
			require.NoError(t, a.Close(context.Background()))
			span := spans.wait(t, deliverPlaced, 1)[0]
			require.Equal(t, tt.outcome, value(span, "outbox.outcome"))
			require.Equal(t, tt.status, span.Status.Code)
		})
	}
}

func TestAListenerTimeoutIsAFailure(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	cfg := traced(outboxotel.WithTracerProvider(spans))
	cfg.Mode = outbox.SingleNode{Dispatch: outbox.DispatchOptions{ListenerTimeout: 5 * time.Millisecond}}
	cfg.RetryPolicy = outbox.RetryPolicyFunc(func(int) time.Duration { return time.Hour })
	a := run(t, openDB(t).DB, cfg, on(func(ctx context.Context, _ outbox.Envelope) error {
		<-ctx.Done()
		return ctx.Err()
	}))
	a.write(t.Context(), t, event())
	require.Equal(t, "retry", value(spans.wait(t, deliverPlaced, 1)[0], "outbox.outcome"))
}

// Exporters drop a whole batch if one string is not UTF-8.
func TestErrorTextsAreFitForExporters(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	deliver := outboxotel.Interceptor(outboxotel.WithTracerProvider(spans))(outbox.ListenerFunc(
		func(context.Context, outbox.Envelope) error {
			return errors.New("bad \xff! " + strings.Repeat("é", outbox.MaxErrorLength))
		}))
	err := deliver.OnEvent(t.Context(), event())
	require.Error(t, err)
	span := spans.wait(t, deliverPlaced, 1)[0]
	texts := []string{span.Status.Description}
	for _, kv := range span.Events[0].Attributes {
		texts = append(texts, kv.Value.AsString())
	}
	for _, s := range texts {
		require.True(t, utf8.ValidString(s))
		require.LessOrEqual(t, len(s), outbox.MaxErrorLength)
	}
	require.True(t, strings.HasPrefix(span.Status.Description, "bad \uFFFD! é"))
}

// A listener that waits for something has not failed, also beside others.
func TestADeferralOfOneOfSeveralListenersIsNoErrorOfTheSpan(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	mail := on(func(context.Context, outbox.Envelope) error { return outbox.Defer(time.Hour) })
	search := on(succeed)
	mail.Name, search.Name = "mail", "search"
	a := run(t, openDB(t).DB, traced(outboxotel.WithTracerProvider(spans)), mail, search)
	a.write(t.Context(), t, event())

	span := spans.wait(t, deliverPlaced, 1)[0]
	require.Equal(t, "split", value(span, "outbox.outcome"))
	require.Equal(t, codes.Unset, span.Status.Code)
	require.Empty(t, span.Events)
}

// One span is around all listeners, and each retry of one has its own.
func TestSpansOfSeveralListeners(t *testing.T) {
	t.Parallel()
	spans := newRecording(t)
	cfg := traced(outboxotel.WithTracerProvider(spans))
	cfg.RetryPolicy = outbox.ExponentialBackoff(time.Millisecond, time.Millisecond)
	mail := on(func(_ context.Context, env outbox.Envelope) error {
		if env.Attempts == 0 {
			return errStock
		}
		return nil
	})
	search := on(succeed)
	mail.Name, search.Name = "mail", "search"
	a := run(t, openDB(t).DB, cfg, mail, search)
	id := a.write(t.Context(), t, event())[0]

	attempts := spans.wait(t, deliverPlaced, 2)
	require.Equal(t, "split", value(attempts[0], "outbox.outcome"))
	require.Equal(t, codes.Error, attempts[0].Status.Code)
	require.Equal(t, "listener mail: out of stock", attempts[0].Status.Description)
	require.Nil(t, value(attempts[0], "outbox.listener"))
	require.Equal(t, "mail", value(attempts[1], "outbox.listener"))
	require.Nil(t, value(attempts[1], "outbox.outcome"))
	for _, span := range attempts {
		require.Equal(t, id, value(span, "messaging.message.id"))
	}
}
