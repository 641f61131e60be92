package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

func TestBadBatchListenersAreRefused(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context, []outbox.Envelope) ([]error, error) { return nil, nil }
	for name, tt := range map[string]struct {
		opts outbox.BatchOptions
		fn   batchFunc
		text string
	}{
		"no size":       {outbox.BatchOptions{}, nothing, "outbox: the batch listener of Order/Placed: outbox: BatchOptions.Size is 0; it must be between 1 and 10000"},
		"negative size": {outbox.BatchOptions{Size: -1}, nothing, "outbox: the batch listener of Order/Placed: outbox: BatchOptions.Size is -1; it must be between 1 and 10000"},
		"large size":    {outbox.BatchOptions{Size: 10_001}, nothing, "outbox: the batch listener of Order/Placed: outbox: BatchOptions.Size is 10001; it must be between 1 and 10000"},
		"large product": {
			outbox.BatchOptions{Size: 1000, Concurrency: 11},
			nothing,
			"outbox: the batch listener of Order/Placed: outbox: BatchOptions.Concurrency is 11, with a Size of 1000; the limit of their product is 10000",
		},
		"negative wait": {
			outbox.BatchOptions{Size: 1, Wait: -time.Second},
			nothing,
			"outbox: the batch listener of Order/Placed: outbox: BatchOptions.Wait is -1s; it must not be negative",
		},
		"negative concurrency": {
			outbox.BatchOptions{Size: 1, Concurrency: -2},
			nothing,
			"outbox: the batch listener of Order/Placed: outbox: BatchOptions.Concurrency is -2; it must not be negative",
		},
		"no function": {outbox.BatchOptions{Size: 1}, nil, "outbox: binding.Listener is nil (for Order/Placed)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var typed func(context.Context, []outbox.Event[order]) ([]error, error)
			if tt.fn != nil {
				typed = func(context.Context, []outbox.Event[order]) ([]error, error) { return nil, nil }
			}
			for _, binding := range []outbox.Binding{
				outbox.On("Order", "Placed", outbox.BatchListener(tt.opts, tt.fn)),
				placed.ListenBatch(tt.opts, typed),
			} {
				err := outbox.NewRegistry().Register(binding)
				require.EqualError(t, err, tt.text)
				require.ErrorAs(t, err, new(*outbox.FieldError))
			}
		})
	}
}
