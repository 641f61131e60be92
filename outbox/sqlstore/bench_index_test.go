package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

var (
	schemaIndexes   = []string{"none", "due", "done", "dead"} // none: two equal tables, which show the noise
	optionalIndexes = map[string]sqlstore.Option{
		"key": sqlstore.WithKeyIndex(), "tenant": sqlstore.WithTenantIndex(),
		"search": sqlstore.WithSearchIndex(), "age": sqlstore.WithAgeIndex(), "unique": sqlstore.WithUniqueIndex(),
	}
)

// BenchmarkIndex compares a table that has an index with one that lacks it. They take
// turns at writing transactions of 100 events and of one, and at marking the events DONE.
// A ratio is the median of the rate with the index to the rate without it. WAL is what
// the index adds.
func BenchmarkIndex(b *testing.B) {
	for _, target := range testdb.Main() {
		for _, index := range schemaIndexes {
			if target.Kind != testdb.MySQL || index != "dead" { // MySQL has none
				b.Run(target.Name+"/"+index, func(b *testing.B) { benchmarkIndex(b, target, index) })
			}
		}
		for index, option := range optionalIndexes {
			b.Run(target.Name+"/"+index, func(b *testing.B) { benchmarkIndex(b, target, index, option) })
		}
	}
}

func benchmarkIndex(b *testing.B, target testdb.Target, index string, options ...sqlstore.Option) {
	const rounds = 200
	with, without := newIndexTable(b, target, options...), newIndexTable(b, target, options...)
	if index != "none" {
		drop := "DROP INDEX idx_outbox_event_" + index
		if target.Kind == testdb.MySQL {
			drop += " ON outbox_event"
		}
		_, err := without.ExecContext(b.Context(), drop)
		require.NoError(b, err)
	}
	tables := []*indexTable{with, without}
	for _, table := range tables {
		table.write(b, 10_000, 100)
		table.mark(b, outbox.OutcomeDone)
		analyze(b, table.DB)
	}
	ratios := map[string][]float64{}
	for b.Loop() {
		for range rounds {
			slices.Reverse(tables) // so that neither always comes first
			took := map[*indexTable][]time.Duration{}
			for _, table := range tables {
				took[table] = []time.Duration{table.write(b, 100, 100), table.write(b, 20, 1), table.mark(b, outbox.OutcomeDone)}
			}
			for i, work := range []string{"write100", "write1", "mark"} {
				ratios[work] = append(ratios[work], took[without][i].Seconds()/took[with][i].Seconds())
			}
		}
	}
	for work, all := range ratios {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], work+"-ratio")
	}
	if target.Kind == testdb.Postgres {
		const events = 10_000
		written, marked := with.wal(b, events)
		writtenWithout, markedWithout := without.wal(b, events)
		b.ReportMetric(written-writtenWithout, "WAL-B/written")
		b.ReportMetric(marked-markedWithout, "WAL-B/marked")
	}
}

// BenchmarkIndexSize measures the bytes of each index for an event: when all are NEW, and
// after they became DONE or DEAD. On PostgreSQL that includes what a VACUUM would remove.
func BenchmarkIndexSize(b *testing.B) {
	sizes := map[testdb.Kind]string{
		testdb.Postgres: "SELECT indexrelid::regclass::text, pg_relation_size(indexrelid) FROM pg_index WHERE indrelid = 'outbox_event'::regclass",
		testdb.MySQL: "SELECT index_name, stat_value * @@innodb_page_size FROM mysql.innodb_index_stats" +
			" WHERE database_name = DATABASE() AND table_name = 'outbox_event' AND stat_name = 'size'",
		testdb.SQLite: "SELECT name, SUM(pgsize) FROM dbstat WHERE name IN (SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'outbox_event') GROUP BY name",
	}
	states := map[string][]outbox.Outcome{"NEW": nil, "DONE": {outbox.OutcomeDone}, "DEAD": {outbox.OutcomeDead}}
	for _, target := range testdb.Main() {
		for _, n := range []int{10_000, 100_000} {
			for state, outcomes := range states {
				b.Run(fmt.Sprintf("%s/%d/%s", target.Name, n, state), func(b *testing.B) {
					for b.Loop() {
						table := newIndexTable(b, target, slices.Collect(maps.Values(optionalIndexes))...)
						table.write(b, n, 100)
						for _, outcome := range outcomes {
							table.mark(b, outcome)
						}
						analyze(b, table.DB)
						rows, err := table.QueryContext(b.Context(), sizes[target.Kind])
						require.NoError(b, err)
						for rows.Next() {
							var index string
							var bytes float64
							require.NoError(b, rows.Scan(&index, &bytes))
							b.ReportMetric(bytes/float64(n), strings.TrimPrefix(index, "idx_outbox_event_")+"-B/event")
						}
						require.NoError(b, rows.Err())
						require.NoError(b, rows.Close())
					}
				})
			}
		}
	}
}

// indexTable is an event table, and what was written to it and not yet marked.
type indexTable struct {
	*testdb.DB
	store   *sqlstore.Store
	via     outbox.DB
	written int
	marks   []outbox.Mark
}

func newIndexTable(b *testing.B, target testdb.Target, options ...sqlstore.Option) *indexTable {
	db := testdb.Open(b, target)
	store := storeFor(db.Kind, options...)
	require.NoError(b, store.CreateSchema(b.Context(), db.DB))
	return &indexTable{DB: db, store: store, via: db}
}

// write writes n events, so many in each transaction. Their ids and times ascend.
func (t *indexTable) write(b *testing.B, n, each int) (took time.Duration) {
	envs := events("", n)
	for i := range envs {
		t.written++
		envs[i].EventID = fmt.Sprintf("01J%023d", t.written)
		envs[i].AggregateID, envs[i].TenantID = fmt.Sprintf("order-%08d", rand.IntN(1e8)), fmt.Sprintf("tenant-%02d", rand.IntN(100))
		envs[i].OccurredAt = envs[i].OccurredAt.Add(time.Duration(i) * time.Microsecond)
		envs[i].AvailableAt = envs[i].OccurredAt
		t.marks = append(t.marks, outbox.Mark{EventID: envs[i].EventID})
	}
	began := time.Now()
	for chunk := range slices.Chunk(envs, each) {
		require.NoError(b, t.store.Insert(b.Context(), t.via, chunk, "", time.Time{}))
	}
	return time.Since(began)
}

const markedTogether = 500

// mark marks what was written, markedTogether events at a time.
func (t *indexTable) mark(b *testing.B, outcome outbox.Outcome) (took time.Duration) {
	began := time.Now()
	for chunk := range slices.Chunk(t.marks, markedTogether) {
		_, err := t.store.Mark(b.Context(), t.via, outcome, chunk)
		require.NoError(b, err)
	}
	t.marks = nil
	return time.Since(began)
}

// wal returns the bytes of WAL for an event that is written, and for one that is marked.
func (t *indexTable) wal(b *testing.B, n int) (written, marked float64) {
	insert, update := &explainedDB{DB: t.DB.DB}, &explainedDB{DB: t.DB.DB}
	t.via = insert
	t.write(b, n, 100)
	t.via = update
	t.mark(b, outbox.OutcomeDone)
	return insert.bytes / insert.statements / 100, update.bytes / update.statements / markedTogether
}

// explainedDB adds up the WAL of its statements, as PostgreSQL's EXPLAIN has it: other
// work on the server does not count, nor do statements that wrote images of full pages, as
// they do after a checkpoint.
type explainedDB struct {
	*sql.DB
	bytes, statements float64
}

func (e *explainedDB) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	var text string
	if err := e.QueryRowContext(ctx, "EXPLAIN (ANALYZE, WAL, FORMAT JSON) "+query, args...).Scan(&text); err != nil {
		return nil, err
	}
	var plans []struct {
		Plan struct {
			Bytes  float64 `json:"WAL Bytes"`
			Images int     `json:"WAL FPI"`
		}
	}
	err := json.Unmarshal([]byte(text), &plans)
	if err == nil && plans[0].Plan.Images == 0 {
		e.bytes += plans[0].Plan.Bytes
		e.statements++
	}
	return driver.RowsAffected(0), err
}
