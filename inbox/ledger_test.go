package inbox_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/inbox"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// Every message is delivered several times, by consumers that fail at random, whose
// connections break when they commit, or whose contexts end. The ledger has each
// effect exactly once.
func TestLedgerHasEachEffectOnce(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Main(), func(t *testing.T, db *testdb.DB) {
		box := newBox(t, db)
		_, err := db.ExecContext(t.Context(), "CREATE TABLE ledger (message_id VARCHAR(64) NOT NULL)")
		require.NoError(t, err)
		pools := []*testdb.DB{db, db}
		if db.Kind != testdb.SQLite {
			cutting, cuts := db.CutCommits(t)
			pools[1] = cutting
			t.Cleanup(func() { require.NotZero(t, cuts.Load(), "no COMMIT lost its answer") })
		}
		const messages, consumers = 60, 6
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		work := make(chan string, messages*3)
		random := rand.New(rand.NewPCG(seed, 0))
		for range 3 {
			for _, i := range random.Perm(messages) {
				work <- fmt.Sprintf("message-%d", i)
			}
		}
		close(work)
		var wg sync.WaitGroup
		for c := range consumers {
			random := rand.New(rand.NewPCG(seed, uint64(c)+1))
			wg.Go(func() {
				for id := range work {
					for deliver(t.Context(), pools[random.IntN(2)], box, random, id) != nil {
						if t.Context().Err() != nil {
							return
						}
					}
				}
			})
		}
		wg.Wait()
		var effects, different int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*), COUNT(DISTINCT message_id) FROM ledger").Scan(&effects, &different))
		require.Equal(t, messages, different)
		require.Equal(t, messages, effects)
	})
}

// deliver is one attempt of a consumer; an error means that the message comes again.
func deliver(ctx context.Context, db *testdb.DB, box *inbox.Inbox, random *rand.Rand, id string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	insert := fmt.Sprintf("INSERT INTO ledger (message_id) VALUES ('%s')", id)
	_, err = box.Once(ctx, tx, "ledger", id, func(ctx context.Context) error {
		if random.IntN(4) == 0 {
			return fmt.Errorf("failed before the effect of %s", id)
		}
		if _, err := tx.ExecContext(ctx, insert); err != nil {
			return err
		}
		if random.IntN(4) == 0 {
			return fmt.Errorf("failed after the effect of %s", id)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if random.IntN(8) == 0 {
		cancel()
	}
	return tx.Commit()
}
