package outboxtest_test

import (
	"testing"

	"github.com/outboxkit/outbox-go/outbox/outboxtest"
)

func TestStoreInMemoryPassesTheSuite(t *testing.T) {
	t.Parallel()
	outboxtest.RunStore(t, func(*testing.T) outboxtest.StoreHarness {
		return outboxtest.MemoryHarness(outboxtest.NewStore())
	})
}
