package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

var adapterRandomTests = []adapterTest{
	{name: "Transactions", run: randomTransactions},
}

// randomTransactions runs transactions with nested transactions, savepoints by hand, failing
// statements, panics and contexts that end, several at once. Afterwards each event has had a single
// callback, which agrees with the table.
func randomTransactions(s *adapterSuite) {
	seed := uint64(time.Now().UnixNano())
	s.t.Logf("seed %d", seed)
	workers := 4
	if s.Dialect == SQLite {
		workers = 1
		s.Pool.SetMaxOpenConns(1)
	}
	runs := make([]randomTransaction, workers)
	var wg sync.WaitGroup
	for i := range runs {
		runs[i] = randomTransaction{adapterSuite: s, rand: rand.New(rand.NewPCG(seed, uint64(i)))} //nolint:gosec // a test
		wg.Go(func() {
			for range s.Random / workers {
				runs[i].one()
			}
		})
	}
	wg.Wait()
	stored := s.stored()
	var kept, undone []string
	for i := range runs {
		for _, id := range runs[i].ids {
			if _, found := slices.BinarySearch(stored, id); found {
				kept = append(kept, id)
			} else {
				undone = append(undone, id)
			}
		}
	}
	s.wantCallsInAnyOrder(kept, undone)
	if len(kept) == 0 || len(undone) == 0 {
		s.t.Errorf("%d events were kept and %d were not: the test shows nothing", len(kept), len(undone))
	}
}

type randomTransaction struct {
	*adapterSuite
	rand *rand.Rand
	ids  []string
}

// one runs a transaction, whose result does not matter.
func (r *randomTransaction) one() {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	defer func() {
		if v := recover(); v != nil && v != any(errSuite) {
			panic(v)
		}
	}()
	_ = r.RunInTx(ctx, func(ctx context.Context, tx any) error { return r.steps(ctx, cancel, tx, 0) })
}

func (r *randomTransaction) steps(ctx context.Context, cancel func(), tx any, depth int) error {
	for range 1 + r.rand.IntN(4) {
		switch r.rand.IntN(12) {
		case 0, 1, 2, 3, 4:
			// The id is known before: an interrupted insert may have happened.
			id := fmt.Sprintf("random-%016x", r.rand.Uint64())
			_, err := r.Write(ctx, tx, suiteEvent(id))
			if err == nil {
				r.ids = append(r.ids, id)
			} else if ctx.Err() == nil && r.rand.IntN(2) == 0 {
				return err
			}
		case 5, 6, 7:
			if err := r.nested(ctx, cancel, depth); err != nil && r.rand.IntN(3) == 0 {
				return err
			}
		case 8:
			r.savepoint(ctx, tx, depth)
		case 9:
			_ = r.Exec(ctx, tx, duplicate)
		case 10:
			if r.rand.IntN(3) == 0 {
				cancel()
			}
		case 11:
			if r.rand.IntN(4) == 0 {
				panic(errSuite)
			}
		}
	}
	return []error{nil, nil, nil, errSuite}[r.rand.IntN(4)]
}

func (r *randomTransaction) nested(ctx context.Context, cancel func(), depth int) (err error) {
	if depth == 3 {
		return nil
	}
	defer func() {
		switch v := recover(); {
		case v == nil:
		case v == any(errSuite) && r.rand.IntN(2) == 0:
			err = errSuite // the caller recovers
		default:
			panic(v)
		}
	}()
	if r.rand.IntN(4) == 0 {
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
	}
	return r.RunInTx(ctx, func(ctx context.Context, tx any) error { return r.steps(ctx, cancel, tx, depth+1) })
}

// savepoint sets a savepoint by hand, writes, and perhaps rolls back to the savepoint.
func (r *randomTransaction) savepoint(ctx context.Context, tx any, depth int) {
	name := fmt.Sprintf("hand_%d_%d", depth, r.rand.IntN(3))
	if r.Exec(ctx, tx, "SAVEPOINT "+name) != nil {
		return
	}
	if id, err := r.Write(ctx, tx, suiteEvent("")); err == nil {
		r.ids = append(r.ids, id)
	}
	switch r.rand.IntN(3) {
	case 0:
		_ = r.Exec(ctx, tx, "ROLLBACK TO SAVEPOINT "+name)
	case 1:
		_ = r.Exec(ctx, tx, "RELEASE SAVEPOINT "+name)
	}
}
