package sqlstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Statistics taken while all rows are DONE make an index of other rows look empty. A
// statement that names its rows must find them by primary key all the same.
func TestNamedRowsAreFoundWithoutReadingTheBacklog(t *testing.T) {
	t.Parallel()
	testdb.Each(t, testdb.Bulk(), func(t *testing.T, db *testdb.DB) {
		ctx, now := t.Context(), time.Now().UTC().Truncate(time.Second)
		store := detected(t, db, sqlstore.WithKeyIndex(), sqlstore.WithTenantIndex())
		require.NoError(t, store.CreateSchema(ctx, db.DB))
		loadParts(t, db, []part{{"d", doneRows, 1, now, now, now}})
		loadRows(t, db, []part{{"p", 5000, 0, now, now, time.Time{}}, {"x", 3000, 3, now, now, now}})
		db.SetMaxOpenConns(1) // MySQL's counters are per session
		rec := &recorded{DB: db.DB}

		calls := map[string]func(ids []string) error{
			"completing": func(ids []string) error {
				_, err := store.Complete(ctx, rec, outbox.OutcomeDone, outbox.Mark{EventID: ids[0]})
				return err
			},
			"completing with DueAt": func(ids []string) error {
				_, err := store.Complete(ctx, rec, outbox.OutcomeDone, outbox.Mark{EventID: ids[0], DueAt: now})
				return err
			},
			"claiming expired leases": func(ids []string) error {
				_, err := store.Claim(ctx, rec, outbox.ClaimQuery{
					Now: now.Add(time.Hour), Limit: readBatch, Lease: "me/1", LeaseDuration: time.Hour, EventIDs: ids, ExpiredOnly: true, Move: true,
				})
				return err
			},
			"renewing": func(ids []string) error {
				leases := make([]outbox.Lease, len(ids))
				for i, id := range ids {
					leases[i] = outbox.Lease{EventID: id, Name: "me/1"}
				}
				return store.Renew(ctx, rec, leases)
			},
			"reading a dead letter": func([]string) error { _, err := store.GetDead(ctx, rec, "x00000000"); return err },
			"replaying": func([]string) error {
				_, err := store.ReplayDead(ctx, rec, idsOf("x", 100, readBatch), now, outbox.StatusNew)
				return err
			},
			"deleting dead letters": func([]string) error {
				_, err := store.DeleteDead(ctx, rec, idsOf("x", 300, readBatch), outbox.DeletedBy+"1", now)
				return err
			},
			"deleting dead letters for good": func([]string) error {
				_, err := store.DeleteDead(ctx, rec, idsOf("x", 300, readBatch), "", now)
				return err
			},
			"restoring dead letters": func([]string) error {
				_, err := store.RestoreDead(ctx, rec, outbox.DeletedQuery{By: outbox.DeletedBy + "1", Since: now, Until: now.Add(time.Millisecond), Limit: readBatch})
				return err
			},
		}
		for outcome := outbox.OutcomeDone; outcome <= outbox.OutcomeReleased; outcome++ {
			for _, due := range []time.Duration{0, time.Microsecond} {
				calls[fmt.Sprintf("%s, due times %s apart", outcome, due)] = func(ids []string) error {
					marks := make([]outbox.Mark, len(ids))
					for i, id := range ids {
						marks[i] = outbox.Mark{EventID: id, AvailableAt: now, DueAt: now.Add(time.Duration(i) * due)}
					}
					_, err := store.Mark(ctx, rec, outcome, marks)
					return err
				}
			}
			for _, leases := range []int{0, 1, readBatch} {
				calls[fmt.Sprintf("%s, %d leases", outcome, leases)] = func(ids []string) error {
					marks := make([]outbox.Mark, len(ids))
					for i, id := range ids {
						marks[i] = outbox.Mark{EventID: id, AvailableAt: now}
						if leases > 0 {
							marks[i].Lease = fmt.Sprintf("me/%d", i%leases)
						}
					}
					_, err := store.Mark(ctx, rec, outcome, marks)
					return err
				}
			}
		}
		limit := readLimit
		if db.Kind == testdb.MySQL && !db.IsMariaDB(t) {
			limit += 3 * readBatch // of temporary tables, with the rows that are locked first
		}
		first := 0
		for name, call := range calls {
			rec.statements = nil
			cost := costOf(t, db, rec, func() { require.NoError(t, call(idsOf("p", first, readBatch)), name) })
			require.LessOrEqual(t, cost, limit, "%s reads %d rows", name, cost)
			first += readBatch
		}
	})
}

// idsOf are ids of rows that loadRows has loaded.
func idsOf(prefix string, first, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%08d", prefix, first+i)
	}
	return ids
}
