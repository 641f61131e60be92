package main

import (
	"time"

	"github.com/riverqueue/river"
)

// The settings of every contender. This library runs with its defaults. The peers
// run with what their own documents and benchmarks use for throughput.

// maxConns is the size of every connection pool: 16 writers and the deliveries.
const maxConns = 24

// retryDelay is how long a failed event waits, with every contender.
const retryDelay = time.Second

// River. Its benchmark, cmd/river/riverbench/river_bench.go: "When benchmarking to
// maximize job throughput these numbers have an outsized effect on results. …
// Much better than the client's default values at any rate." The values are that
// file's. https://riverqueue.com/docs/benchmarks runs that program.
const (
	riverFetchCooldown     = 2 * time.Millisecond
	riverFetchPollInterval = 20 * time.Millisecond
	riverMaxWorkers        = 2_000
)

// https://riverqueue.com/docs/batch-job-insertion names InsertMany for several jobs:
// "A third option exists for cases where thousands of jobs are being inserted at
// once: InsertManyFast / InsertManyFastTx. Under the hood these methods use
// Postgres COPY FROM (only in the riverpgxv5 driver)". It is the fastest way for a
// hundred, too. The driver riverpgxv5 is the one that the documents recommend.
const riverInsertManyFast = true

func riverConfig(schema string) *river.Config {
	return &river.Config{
		Schema:            schema,
		FetchCooldown:     riverFetchCooldown,
		FetchPollInterval: riverFetchPollInterval,
	}
}

// Watermill. The comments of SubscriberConfig and DefaultPostgreSQLSchema say of
// SubscribeBatchSize: "Higher value, increases a chance of message re-delivery …
// 1 is the safest value, but it may have a negative impact on performance when
// consuming a lot of messages. Default value is 100." A backlog drains faster with
// 1,000. Of PollInterval: "the interval to wait between subsequent SELECT queries,
// if no more messages were found … Defaults to 1s."
//
// https://watermill.io/pubsubs/sql: "If you need to publish messages within a
// database transaction, you have to pass a *sql.Tx in the NewPublisher
// constructor. You have to create one publisher for each transaction."
// That is how the contender publishes.
const (
	watermillBatchSize    = 1_000
	watermillPollInterval = 10 * time.Millisecond
)
