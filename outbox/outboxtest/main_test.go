package outboxtest_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// fakeT is a test whose failures can be looked at.
type fakeT struct {
	testing.TB
	ctx      context.Context
	failures []string
}

func newFakeT(t *testing.T) *fakeT { return &fakeT{ctx: t.Context()} }

func (f *fakeT) Helper()                  {}
func (f *fakeT) Context() context.Context { return f.ctx }
func (f *fakeT) Errorf(format string, args ...any) {
	f.failures = append(f.failures, fmt.Sprintf(format, args...))
}

type fatal struct{ message string }

func (f *fakeT) Fatalf(format string, args ...any) { panic(fatal{fmt.Sprintf(format, args...)}) }

// fatality is the message that fn failed the fake test with.
func fatality(fn func()) (message string) {
	defer func() {
		if f, ok := recover().(fatal); ok {
			message = f.message
		}
	}()
	fn()
	return ""
}

func said(id string) outbox.Envelope {
	return outbox.Envelope{EventID: id, EventType: "Said", Payload: outbox.JSON(id)}
}

// write writes events in a transaction of their own.
func write(t *testing.T, store *outboxtest.Store, envs ...outbox.Envelope) {
	t.Helper()
	tx := outboxtest.NewScope(store.DB())
	_, err := store.Writer().WriteScope(t.Context(), tx, envs)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
}
