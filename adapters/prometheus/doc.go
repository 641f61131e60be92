// Package outboxprom tells Prometheus how an outbox is doing.
//
//	metrics, err := outboxprom.New(prometheus.DefaultRegisterer)
//	ob, err := outbox.New(outbox.Config{DB: db, Store: store, Metrics: metrics})
//	err = metrics.WatchTable(ob)
//
// [New] registers counters, gauges and histograms that the engine fills; they
// are of this process. [Metrics.WatchTable] adds what the table holds: pending,
// due, delayed and dead events, the age of the oldest due one, and when the
// poller last got through. It reads the table when it is scraped, at most every
// 15 seconds, and a scrape does not wait long for it.
//
// Several outboxes on one registry need different names or different labels:
// see [WithPrefix] and [WithConstLabels]. Closing the outbox closes its Metrics,
// which takes them off the registry.
//
// Every metric is listed in docs/OBSERVABILITY.md; docs/monitoring has a Grafana
// dashboard and alert rules.
package outboxprom
