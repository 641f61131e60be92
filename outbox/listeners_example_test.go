package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

type placedOrder struct {
	ID    string `json:"id"`
	Total int    `json:"total"`
}

// orderPlaced is the event, for those who write it and those who listen.
var orderPlaced = outbox.NewTopic[placedOrder]("Order", "OrderPlaced")

// listeners of an order: each has its own retries.
func orderListeners(mail, search func(placedOrder) error) []outbox.Binding {
	return []outbox.Binding{
		orderPlaced.Listen(func(_ context.Context, o placedOrder, _ outbox.Envelope) error {
			return mail(o)
		}, outbox.Named("mail")),
		orderPlaced.Listen(func(_ context.Context, o placedOrder, _ outbox.Envelope) error {
			return search(o)
		}, outbox.Named("search")),
	}
}

// The mail server is down for the first delivery. The order is indexed once all the
// same, and the mail is tried again by itself.
func ExampleNamed() {
	attempts := 0
	sent := make(chan struct{})
	mail := func(o placedOrder) error {
		if attempts++; attempts == 1 {
			fmt.Println("mail: no answer")
			return errors.New("no answer")
		}
		fmt.Println("mail: sent for", o.ID)
		close(sent)
		return nil
	}
	search := func(o placedOrder) error {
		fmt.Println("search: indexed", o.ID)
		return nil
	}

	store := outboxtest.NewStore() // or sqlstore.Postgres(), with your pool as DB
	ob, err := outbox.New(outbox.Config{
		DB: store.DB(), Store: store, Logger: slog.New(slog.DiscardHandler),
		RetryPolicy: outbox.ExponentialBackoff(time.Millisecond, time.Second),
	})
	if err == nil {
		err = errors.Join(ob.Register(orderListeners(mail, search)...), ob.Start(context.Background()))
	}
	if err != nil {
		panic(err)
	}
	tx := outboxtest.NewScope(store.DB())
	if _, err := ob.Writer().Write(tx.Context(context.Background()), orderPlaced.Envelope("o-1", placedOrder{"o-1", 42})); err != nil {
		panic(err)
	}
	_ = tx.Commit()
	<-sent
	_ = ob.Close(context.Background())
	// Output:
	// mail: no answer
	// search: indexed o-1
	// mail: sent for o-1
}

func TestThePageOfSeveralListenersShowsTheCodeThatRuns(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/how-to/several-listeners.md")
	require.NoError(t, err)
	code, err := os.ReadFile("listeners_example_test.go")
	require.NoError(t, err)
	begin, end := strings.Index(string(code), "// orderPlaced"), strings.Index(string(code), "// The mail server")
	example := strings.TrimSpace(string(code[begin:end]))
	require.True(t, strings.Contains(string(page), "```go\n"+example+"\n```"), "how-to/several-listeners.md and the example differ: copy one to the other")
}
