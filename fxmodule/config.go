package outboxfx

import (
	"iter"
	"reflect"
	"strings"
	"time"
)

// OnDone says what happens to the row of a delivered event.
type OnDone string

// The values of purge.on-done. The empty value is keep.
const (
	Keep   OnDone = "keep"
	Delete OnDone = "delete"
)

// OnUnroutable says what becomes of an event without a listener.
type OnUnroutable string

// The values of dispatcher.on-unroutable. The empty value is leave, and dead in the mode ordered.
const (
	LeaveUnroutable OnUnroutable = "leave"
	KillUnroutable  OnUnroutable = "dead"
)

// OnDead says what a DEAD event does to its key.
type OnDead string

// The values of ordering.on-dead. The empty value is block.
const (
	BlockKey OnDead = "block"
	SkipDead OnDead = "skip"
)

// Config is the configuration of an outbox. Zero means the default, and a setting that the mode
// does not have must stay zero. The module provides Config{}; an app changes it with fx.Replace,
// fx.Decorate or [WithConfig]. Package outboxconf reads a Config from YAML and environment
// variables. With the tags, viper (mapstructure) and YAML decoders can fill a Config. The fields
// have the names of package outbox, the keys the names of the specification.
type Config struct {
	// Mode defaults to single-node.
	Mode Mode `yaml:"mode" mapstructure:"mode"`
	// Table is the table, optionally schema.table. Defaults to
	// outbox_event.
	Table string `yaml:"table-name" mapstructure:"table-name"`
	// CreateSchema creates the table and its indexes at start where they are missing, and migrates
	// a table of an older version to the version of this build.
	CreateSchema bool `yaml:"create-schema" mapstructure:"create-schema"`
	// UniqueKeys lets events have an [outbox.Envelope].UniqueKey; see [sqlstore.WithUniqueIndex]. The
	// table needs a column and an index for the key, which CreateSchema adds. Defaults to false.
	UniqueKeys bool `yaml:"unique-keys" mapstructure:"unique-keys"`
	// Version is the version of the program, which the process reports to operators. Defaults to the
	// version in the build information of the program; see [outbox.Config].Version.
	Version string `yaml:"program-version" mapstructure:"program-version"`

	Dispatch DispatchConfig `yaml:"dispatcher" mapstructure:"dispatcher"`
	Retry    RetryConfig    `yaml:"retry" mapstructure:"retry"`
	Kinds    []KindConfig   `yaml:"kinds" mapstructure:"kinds"`
	Poll     PollConfig     `yaml:"poller" mapstructure:"poller"`
	Claim    ClaimConfig    `yaml:"claim-locking" mapstructure:"claim-locking"`
	Ordering OrderingConfig `yaml:"ordering" mapstructure:"ordering"`
	Purge    PurgeConfig    `yaml:"purge" mapstructure:"purge"`
	Metrics  MetricsConfig  `yaml:"metrics" mapstructure:"metrics"`
	Tracing  TracingConfig  `yaml:"tracing" mapstructure:"tracing"`
}

// DispatchConfig is for single-node, multi-node and ordered-by-key, which has no
// HotCapacity; ordered has DrainTimeout, ListenerTimeout and OnUnroutable.
// See [outbox.DispatchOptions].
type DispatchConfig struct {
	// Workers is how many listeners run at once. Defaults to 16.
	Workers int `yaml:"worker-count" mapstructure:"worker-count"`
	// PollerOnly leaves out the hot path: events wait until the poller reads the table.
	// Defaults to false.
	PollerOnly bool `yaml:"poller-only" mapstructure:"poller-only"`
	// HotCapacity and ColdCapacity are how many committed and how many
	// polled events wait for a worker. Each defaults to 1000.
	HotCapacity  int `yaml:"hot-queue-capacity" mapstructure:"hot-queue-capacity"`
	ColdCapacity int `yaml:"cold-queue-capacity" mapstructure:"cold-queue-capacity"`
	// MaxAttempts is how many deliveries may fail until an event is DEAD; [outbox.Endless]: no bound.
	// Defaults to 10.
	MaxAttempts int `yaml:"max-attempts" mapstructure:"max-attempts"`
	// DrainTimeout is how long stopping waits for queued events. Defaults to
	// 5 s.
	DrainTimeout time.Duration `yaml:"drain-timeout" mapstructure:"drain-timeout"`
	// ListenerTimeout ends the context of a delivery. Defaults to no timeout.
	ListenerTimeout time.Duration `yaml:"listener-timeout" mapstructure:"listener-timeout"`
	// OnUnroutable leaves events without a listener to processes that have one, or makes them DEAD.
	// Defaults to leave, and to dead in the mode ordered.
	OnUnroutable OnUnroutable `yaml:"on-unroutable" mapstructure:"on-unroutable"`
	// MarkInterval is the least time between two batches of outcomes that are stored. Defaults to 5
	// ms.
	MarkInterval time.Duration `yaml:"mark-interval" mapstructure:"mark-interval"`
}

// KindConfig has the rules of a kind of event, which count before the rules of its listeners; see
// [outbox.Rules]. Zero fields say nothing. It is for every mode but writer-only; ordered and
// ordered-by-key refuse the fields that they do not have.
type KindConfig struct {
	// EventType and AggregateType are the kind. An empty aggregate type is
	// [outbox.Global].
	EventType     string `yaml:"event-type" mapstructure:"event-type"`
	AggregateType string `yaml:"aggregate-type" mapstructure:"aggregate-type"`
	// MaxAttempts is how many deliveries may fail until an event is DEAD; [outbox.Endless]: no bound.
	MaxAttempts int `yaml:"max-attempts" mapstructure:"max-attempts"`
	// Retry is the retry policy of the kind.
	Retry RetryConfig `yaml:"retry" mapstructure:"retry"`
	// ListenerTimeout ends the context of a delivery; [outbox.NoTimeout]: no timeout.
	ListenerTimeout time.Duration `yaml:"listener-timeout" mapstructure:"listener-timeout"`
	// Expires is how long after it occurred an event may still be delivered.
	Expires time.Duration `yaml:"expires" mapstructure:"expires"`
	// DropExpired deletes the row of an expired event, which otherwise becomes DEAD.
	DropExpired bool `yaml:"drop-expired" mapstructure:"drop-expired"`
	// OnDone keeps the rows of delivered events for the purger, or deletes them at once.
	OnDone OnDone `yaml:"on-done" mapstructure:"on-done"`
	// Retention is how long DONE and DEAD rows are kept; [outbox.NoRetention] keeps no rows.
	Retention time.Duration `yaml:"retention" mapstructure:"retention"`
	// MaxDueAge is how long an event of the kind may be due until it is late; at least a second.
	MaxDueAge time.Duration `yaml:"max-due-age" mapstructure:"max-due-age"`
	// Concurrency is how many listeners of the kind run at once.
	Concurrency int `yaml:"concurrency" mapstructure:"concurrency"`
	// Rate is how many deliveries begin in a second.
	Rate float64 `yaml:"rate" mapstructure:"rate"`
	// Burst is how many deliveries may begin at once after a pause. Defaults to a tenth
	// of Rate, at least 1.
	Burst int `yaml:"burst" mapstructure:"burst"`
	// Fleetwide makes Concurrency, Rate, KeyConcurrency and KeyRate bounds of all processes together.
	Fleetwide bool `yaml:"fleetwide" mapstructure:"fleetwide"`
	// KeyConcurrency is how many listeners run at once, and KeyRate how many deliveries begin in a second,
	// for each key of the kind; single-node and multi-node only.
	KeyConcurrency int     `yaml:"key-concurrency" mapstructure:"key-concurrency"`
	KeyRate        float64 `yaml:"key-rate" mapstructure:"key-rate"`
	// Breaker pauses the kind when its deliveries fail one after the other.
	Breaker BreakerConfig `yaml:"breaker" mapstructure:"breaker"`
}

// BreakerConfig is for every mode but writer-only; see [outbox.Breaker].
type BreakerConfig struct {
	// Failures is how many deliveries fail in a row until the pause begins. Defaults to no breaker.
	Failures int `yaml:"failures" mapstructure:"failures"`
	// Pause is how long the first pause lasts, from a second to a day. Defaults to 30 s.
	Pause time.Duration `yaml:"pause" mapstructure:"pause"`
	// PerKey counts for each key by itself and pauses the key; single-node and multi-node only.
	// Defaults to false.
	PerKey bool `yaml:"per-key" mapstructure:"per-key"`
}

// Settings yields each key of an element of kinds, such as "retry.base-delay", and a pointer to its
// field.
func (k *KindConfig) Settings() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		settings(reflect.ValueOf(k).Elem(), "", func(field string, value any) bool {
			_, key, _ := strings.Cut(keyError("Kinds[0]."+field, "").Key, ".")
			return yield(key, value)
		})
	}
}

// RetryConfig is for single-node, multi-node and ordered-by-key; see [outbox.ExponentialBackoff].
type RetryConfig struct {
	// BaseDelay is the wait after the first failure. Defaults to 200 ms.
	BaseDelay time.Duration `yaml:"base-delay" mapstructure:"base-delay"`
	// MaxDelay is the longest wait. Defaults to 1 min.
	MaxDelay time.Duration `yaml:"max-delay" mapstructure:"max-delay"`
}

// PollConfig is for every mode but writer-only; see [outbox.PollOptions].
type PollConfig struct {
	// Interval is how often an idle table is polled. Defaults to 5 s.
	Interval time.Duration `yaml:"interval" mapstructure:"interval"`
	// BatchSize is the most rows read at once. Defaults to 500.
	BatchSize int `yaml:"batch-size" mapstructure:"batch-size"`
	// SkipRecent leaves out events that are younger. Defaults to 0.
	SkipRecent time.Duration `yaml:"skip-recent" mapstructure:"skip-recent"`
}

// ClaimConfig is for multi-node and ordered-by-key; see [outbox.ClaimOptions].
type ClaimConfig struct {
	// Enabled may be set, but only to the value that the mode implies: true in multi-node and
	// ordered-by-key, false in the other modes.
	Enabled *bool `yaml:"enabled" mapstructure:"enabled"`
	// Owner names this process in locked_by and must differ from the Owner of every other
	// process. Defaults to host, process id and a random part.
	Owner string `yaml:"owner-id" mapstructure:"owner-id"`
	// LeaseDuration is how long a lease lasts unless it is renewed. Defaults to
	// 5 min.
	LeaseDuration time.Duration `yaml:"lock-timeout" mapstructure:"lock-timeout"`
	// TenantsInTurn claims events of the tenants in turn; multi-node only. Defaults to false.
	TenantsInTurn bool `yaml:"tenants-in-turn" mapstructure:"tenants-in-turn"`
}

// OrderingConfig is for ordered-by-key; see [outbox.OrderedByKey].
type OrderingConfig struct {
	// OnDead says whether a DEAD event blocks its key or is skipped. Defaults to block.
	OnDead OnDead `yaml:"on-dead" mapstructure:"on-dead"`
	// RunLength is the most events of a key that are claimed together. Defaults to 50.
	RunLength int `yaml:"run-length" mapstructure:"run-length"`
	// RequireKey refuses to write an event without an aggregate id. Defaults to
	// false.
	RequireKey bool `yaml:"require-key" mapstructure:"require-key"`
}

// PurgeConfig is for every mode; see [outbox.PurgeOptions].
type PurgeConfig struct {
	// Enabled purges old rows. Defaults to false. If another setting of PurgeConfig is set, Enabled
	// must be set too, to true or false: without Enabled, the other settings have no effect.
	Enabled *bool `yaml:"enabled" mapstructure:"enabled"`
	// Retention is how long rows are kept. Defaults to 7 days; [outbox.NoRetention] keeps no rows.
	Retention time.Duration `yaml:"retention" mapstructure:"retention"`
	// BatchSize is the most rows that a transaction deletes. Defaults to 500.
	BatchSize int `yaml:"batch-size" mapstructure:"batch-size"`
	// Interval is how often the purger runs. Defaults to 1 h.
	Interval time.Duration `yaml:"interval" mapstructure:"interval"`
	// OnDone keeps the rows of delivered events for the purger, or deletes them
	// at once. Defaults to keep. Not in writer-only.
	OnDone OnDone `yaml:"on-done" mapstructure:"on-done"`
	// Undelivered deletes old rows whether they were delivered or not: for a reader of the log. In
	// writer-only alone.
	Undelivered bool `yaml:"undelivered" mapstructure:"undelivered"`
}

// MetricsConfig is for every mode.
type MetricsConfig struct {
	// Enabled false switches off the metrics that an option of [NewModule] gives. Defaults to true;
	// true without such an option is an error.
	Enabled *bool `yaml:"enabled" mapstructure:"enabled"`
	// NamePrefix is the first part of the metrics' names. Defaults to outbox. A constructor given
	// to [WithMetrics] gets the prefix as a [MetricsPrefix].
	NamePrefix string `yaml:"name-prefix" mapstructure:"name-prefix"`
}

// TracingConfig is for every mode.
type TracingConfig struct {
	// Enabled false switches off the traces that an option of [NewModule] gives.
	// Defaults to true; true without such an option is an error.
	Enabled *bool `yaml:"enabled" mapstructure:"enabled"`
}

// defaultConfigUseReplace returns the Config that the module provides. fx names this function in
// the error when an app supplies a second Config.
func defaultConfigUseReplace() Config { return Config{} }
