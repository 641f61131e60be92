package main

import (
	"time"

	"github.com/riverqueue/river"
)

// The settings of every contender. This library runs with the library's defaults. The peers run
// with the settings that their own documents and benchmarks use for throughput.

// maxConns is the size of every connection pool: 16 writers and the deliveries.
const maxConns = 24

// retryDelay is how long a failed event waits, with every contender.
const retryDelay = time.Second

// River. River's benchmark, cmd/river/riverbench/river_bench.go: "When benchmarking to maximize job
// throughput these numbers have an outsized effect on results. … Much better than the client's
// default values at any rate." The values come from that file.
// https://riverqueue.com/docs/benchmarks runs that program.
const (
	riverFetchCooldown     = 2 * time.Millisecond
	riverFetchPollInterval = 20 * time.Millisecond
	riverMaxWorkers        = 2_000
)

// https://riverqueue.com/docs/batch-job-insertion names InsertMany for several jobs: "A third
// option exists for cases where thousands of jobs are being inserted at once: InsertManyFast /
// InsertManyFastTx. Under the hood these methods use Postgres COPY FROM (only in the riverpgxv5
// driver)". InsertManyFast is the fastest way for a hundred jobs, too. The documents recommend the
// driver riverpgxv5.
const riverInsertManyFast = true

func riverConfig(schema string) *river.Config {
	return &river.Config{
		Schema:            schema,
		FetchCooldown:     riverFetchCooldown,
		FetchPollInterval: riverFetchPollInterval,
	}
}

// Watermill. The comments of SubscriberConfig and DefaultPostgreSQLSchema say of
// SubscribeBatchSize: "Higher value, increases a chance of message re-delivery … 1 is the safest
// value, but it may have a negative impact on performance when consuming a lot of messages. Default
// value is 100." A backlog drains faster with 1,000. Of PollInterval: "the interval to wait between
// subsequent SELECT queries, if no more messages were found … Defaults to 1s."
//
// https://watermill.io/pubsubs/sql: "If you need to publish messages within a database transaction,
// you have to pass a *sql.Tx in the NewPublisher constructor. You have to create one publisher for
// each transaction." The contender publishes in this way.
const (
	watermillBatchSize    = 1_000
	watermillPollInterval = 10 * time.Millisecond
)
