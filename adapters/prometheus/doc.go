// Package outboxprom exports an outbox's metrics to Prometheus.
//
//	metrics, err := outboxprom.New(prometheus.DefaultRegisterer)
//	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Metrics: metrics})
//	err = metrics.WatchTable(ob)
//
// [New] registers the engine's counters, gauges and histograms of this process.
// [Metrics.WatchTable] adds figures of the table: pending, due, delayed and dead events, the age of
// the oldest due event, and the time of the last poll. A scrape reads the table, at most every 15
// seconds, and waits for the read at most one second.
//
// Several outboxes on the same registry need different names or different labels: see [WithPrefix]
// and [WithConstLabels]. Closing the outbox closes its Metrics, which unregisters the metrics.
//
// Every metric is listed in docs/reference/metrics.md; docs/monitoring has a Grafana
// dashboard and alert rules.
package outboxprom
