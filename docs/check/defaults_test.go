package check_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// defaults are those of the configuration keys that are neither zero nor a word.
var defaults = map[string]any{
	"table-name":                     sqlstore.DefaultTable,
	"dispatcher.worker-count":        outbox.DefaultWorkers,
	"dispatcher.hot-queue-capacity":  outbox.DefaultQueueCapacity,
	"dispatcher.cold-queue-capacity": outbox.DefaultQueueCapacity,
	"dispatcher.max-attempts":        outbox.DefaultMaxAttempts,
	"dispatcher.drain-timeout":       outbox.DefaultDrainTimeout,
	"dispatcher.mark-interval":       outbox.DefaultMarkInterval,
	"retry.base-delay":               outbox.DefaultRetryBase,
	"retry.max-delay":                outbox.DefaultRetryMax,
	"poller.interval":                outbox.DefaultPollInterval,
	"poller.batch-size":              outbox.DefaultPollBatch,
	"claim-locking.lock-timeout":     outbox.DefaultLeaseDuration,
	"ordering.run-length":            outbox.DefaultRunLength,
	"purge.retention":                outbox.DefaultRetention,
	"purge.batch-size":               outbox.DefaultPurgeBatch,
	"purge.interval":                 outbox.DefaultPurgeInterval,
}

// wrongDefaults names the keys of a page whose default, the first text in backticks of
// the third column, is another one.
func wrongDefaults(p page, defaults map[string]any) (problems []string) {
	for _, row := range p.rows() {
		keys := codes(row[0])
		if len(keys) == 0 || len(row) < 4 || len(codes(row[2])) == 0 {
			continue
		}
		stated := codes(row[2])[0]
		want, known := defaults[keys[0]]
		_, isNumber := number(stated)
		if known && !same(stated, want) || !known && isNumber && !same(stated, 0) && !same(stated, time.Duration(0)) {
			problems = append(problems, fmt.Sprintf("%s: the default of `%s` is %v, not %s; see defaults in docs/check", p.path, keys[0], want, stated))
		}
	}
	return problems
}

func same(stated string, want any) bool {
	value, isNumber := number(stated)
	return isNumber && value == want || stated == want
}

// number reads a whole number or a duration.
func number(text string) (any, bool) {
	if n, err := strconv.Atoi(text); err == nil {
		return n, true
	}
	d, err := time.ParseDuration(text)
	return d, err == nil
}

func TestTheDefaultsOfTheReferenceAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	p := read(t, "docs/reference/configuration.md")
	require.NotEmpty(t, p.text)
	for key := range defaults {
		require.Contains(t, p.names(), key)
	}
	for _, problem := range wrongDefaults(p, defaults) {
		t.Error(problem)
	}
}

func TestAWrongDefaultIsNamed(t *testing.T) {
	t.Parallel()
	defaults := map[string]any{"workers": 16, "interval": 5 * time.Second, "table": "outbox_event"}
	for row, wrong := range map[string]bool{
		"| `workers` | x | `16`, or more | y |":    false,
		"| `workers` | x | `8` | y |":              true,
		"| `interval` | x | `5000ms` | y |":        false,
		"| `interval` | x | `5m` | y |":            true,
		"| `table` | x | `outbox_event` | y |":     false,
		"| `table` | x | `outbox_events` | y |":    true,
		"| `other` | x | `0s` | y |":               false,
		"| `other` | x | `false` | y |":            false,
		"| `other` | x | none | y |":               false,
		"| `other` | x | `7` | y |":                true,
		"| `field` | a table with two columns |\n": false,
	} {
		problems := wrongDefaults(page{"a.md", "| a | b | c | d |\n|---|---|---|---|\n" + row + "\n"}, defaults)
		require.Equal(t, wrong, len(problems) == 1, row)
	}
}
