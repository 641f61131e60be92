package relaykafka_test

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outboxkit/outbox-go/internal/testing/relaytest"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
)

// A transaction whose commit the broker refuses is aborted. No event of it is done, no
// consumer of committed messages sees one, and all are published in the next one.
func TestAnEventOfAnAbortedTransactionIsNotDone(t *testing.T) {
	for name, code := range map[string]*kerr.Error{
		"fenced":        kerr.ProducerFenced,
		"invalid state": kerr.InvalidTxnState,
		"not allowed":   kerr.TransactionalIDAuthorizationFailed,
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, kfake.SeedTopics(2, "notes"))
			r, err := relay.New(relay.Config{
				Publisher: publisher(t, c, kgo.TransactionalID("shop-1")), Source: "/notes", Timeout: 20 * time.Second,
				Routes: []relay.Route{relay.To("notes", noted.Kind())}, Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			var batch []outbox.Envelope
			for i := range 10 {
				env := noted.Envelope(fmt.Sprint(i), "x")
				env.EventID = fmt.Sprint(i)
				batch = append(batch, env)
			}
			c.ControlKey(int16(kmsg.EndTxn), func(req kmsg.Request) (kmsg.Response, error, bool) {
				if !req.(*kmsg.EndTxnRequest).Commit {
					c.KeepControl()
					return nil, nil, false
				}
				resp := req.ResponseKind().(*kmsg.EndTxnResponse)
				resp.ErrorCode = code.Code
				return resp, nil, true
			})
			for i, err := range r.Publish(t.Context(), batch) {
				require.Equal(t, outbox.OutcomeDeferred, outbox.OutcomeOf(t.Context(), batch[i], err), "%v", err)
			}
			relaytest.Eventually(t, "all are published", func() bool {
				return !slices.ContainsFunc(r.Publish(t.Context(), batch), func(err error) bool { return err != nil })
			})
			list := c.stored(t, "notes", kgo.FetchIsolationLevel(kgo.ReadCommitted()))
			require.Len(t, list, len(batch), "each once")
			require.Len(t, ids(list), len(batch))
			require.Len(t, c.stored(t, "notes"), 2*len(batch), "the broker has those of the aborted transaction, too")
		})
	}
}
