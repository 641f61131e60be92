package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

func TestLogsAndMetricsNameTheListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		book, kinds := &logbook{}, &kindsOf{}
		e := startNamed(t, outbox.Config{Logger: slog.New(book), Metrics: kinds, RetryPolicy: afterASecond},
			h.on("mail", failsTimes(1)), h.on("audit", func(context.Context, int) error { return outbox.Dead(errors.New("no")) }),
			h.on("search", func(context.Context, int) error { panic("boom") }))
		e.write(said("e"))
		synctest.Wait()
		rows := rowsBy(e.store)
		for message, name := range map[string]string{"delivery failed": "mail", "listener panicked": "search", "event is dead": "audit"} {
			lines := book.about(message)
			require.Len(t, lines, 1, message)
			require.Equal(t, "e", lines[0].attrs["event_id"].String())
			require.Equal(t, name, lines[0].attrs["listener"].String())
			require.Equal(t, rows[name].Envelope.EventID, lines[0].attrs["row_id"].String())
		}
		require.Contains(t, book.about("listener panicked")[0].attrs["stack"].String(), "listeners_test.go")
		time.Sleep(1500 * time.Millisecond) // mail succeeds
		require.Equal(t, []string{"delivered mail", "died audit", "failed mail", "failed search", "failed search", "ran ", "ran mail", "ran search"}, kinds.sorted(), "no delivery of the event itself counts, as none of its listeners was done")
	})
}

// kindsOf records which listener metrics are about.
type kindsOf struct {
	outbox.NopMetrics
	mu  sync.Mutex
	got []string
}

func (k *kindsOf) note(what string, kind outbox.EventKind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.got = append(k.got, what+" "+kind.Listener)
}

func (k *kindsOf) sorted() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Sorted(slices.Values(k.got))
}

func (k *kindsOf) Delivered(kind outbox.EventKind, _ time.Duration)   { k.note("delivered", kind) }
func (k *kindsOf) Failed(kind outbox.EventKind)                       { k.note("failed", kind) }
func (k *kindsOf) Died(kind outbox.EventKind)                         { k.note("died", kind) }
func (k *kindsOf) ListenerRan(kind outbox.EventKind, _ time.Duration) { k.note("ran", kind) }

func TestDeadLettersNameTheListenerAndReplayItAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h hearing
		e := startNamed(t, outbox.Config{Mode: outbox.SingleNode{Dispatch: outbox.DispatchOptions{MaxAttempts: 1}}}, h.on("mail", failsTimes(1)), h.on("search", succeeds))
		env := said("e")
		env.Headers = map[string]string{"k": "v"}
		e.write(env)
		synctest.Wait()
		page, err := e.DeadLetters().Find(t.Context(), outbox.DeadQuery{})
		require.NoError(t, err)
		require.Len(t, page.Rows, 1)
		letter, err := e.DeadLetters().Get(t.Context(), page.Rows[0].EventID)
		require.NoError(t, err)
		require.Equal(t, page.Rows[0].PayloadBytes, letter.Payload.Len())
		listed := letter
		listed.Payload, listed.Headers = outbox.Payload{}, nil
		require.Equal(t, page.Rows[0], listed, "a list has neither payload nor headers")
		require.Equal(t, "mail", letter.Listener)
		require.Equal(t, "e", letter.OriginalID)
		require.NotEqual(t, "e", letter.EventID)
		require.Equal(t, map[string]string{"k": "v"}, letter.Headers)
		require.NoError(t, e.DeadLetters().Replay(t.Context(), letter.EventID))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"mail e/0", "search e/0", "mail e/0"}, h.all())
		require.Equal(t, outbox.StatusDone, rowsBy(e.store)["mail"].Status)
	})
}

func TestHeadersOfTheOutboxAreRefusedInEvents(t *testing.T) {
	t.Parallel()
	env := said("e")
	env.Headers = map[string]string{outbox.HeaderListener: "mail"}
	require.ErrorIs(t, env.Validate(), outbox.ErrInvalidEnvelope)
	require.ErrorContains(t, env.Validate(), `Envelope.Headers has the key "outbox-listener"; keys that begin with "outbox-" are the outbox's own`)
}
