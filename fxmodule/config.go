package outboxfx

import "time"

// OnDone says what happens to the row of a delivered event.
type OnDone string

// The values of purge.on-done. The empty value is keep.
const (
	Keep   OnDone = "keep"
	Delete OnDone = "delete"
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
// variables. With the tags, viper (mapstructure), YAML decoders, and envconfig with the prefix
// OUTBOX can fill a Config. The fields have the names of package outbox, the keys the names of the
// specification. Where the names differ, envconfig needs the tag envconfig, and then also reads the
// variable without the prefix, such as TABLE_NAME, if the variable with the prefix is not set.
type Config struct {
	// Mode defaults to single-node.
	Mode Mode `yaml:"mode" mapstructure:"mode" split_words:"true"`
	// Table is the table, optionally schema.table. Defaults to
	// outbox_event.
	Table string `yaml:"table-name" mapstructure:"table-name" envconfig:"TABLE_NAME"`
	// CreateSchema creates the table and its indexes at start where they are missing, and migrates
	// a table of an older version to the version of this build.
	CreateSchema bool `yaml:"create-schema" mapstructure:"create-schema" split_words:"true"`

	Dispatch DispatchConfig `yaml:"dispatcher" mapstructure:"dispatcher" envconfig:"DISPATCHER"`
	Retry    RetryConfig    `yaml:"retry" mapstructure:"retry" split_words:"true"`
	Poll     PollConfig     `yaml:"poller" mapstructure:"poller" envconfig:"POLLER"`
	Claim    ClaimConfig    `yaml:"claim-locking" mapstructure:"claim-locking" envconfig:"CLAIM_LOCKING"`
	Ordering OrderingConfig `yaml:"ordering" mapstructure:"ordering" split_words:"true"`
	Purge    PurgeConfig    `yaml:"purge" mapstructure:"purge" split_words:"true"`
	Metrics  MetricsConfig  `yaml:"metrics" mapstructure:"metrics" split_words:"true"`
	Tracing  TracingConfig  `yaml:"tracing" mapstructure:"tracing" split_words:"true"`
}

// DispatchConfig is for single-node, multi-node and ordered-by-key, which has no
// HotCapacity; ordered has DrainTimeout, ListenerTimeout and DeferUnroutable.
// See [outbox.DispatchOptions].
type DispatchConfig struct {
	// Workers is how many listeners run at once. Defaults to 16.
	Workers int `yaml:"worker-count" mapstructure:"worker-count" envconfig:"WORKER_COUNT"`
	// PollerOnly leaves out the hot path: events wait until the poller reads the table.
	// Defaults to false.
	PollerOnly bool `yaml:"poller-only" mapstructure:"poller-only" split_words:"true"`
	// HotCapacity and ColdCapacity are how many committed and how many
	// polled events wait for a worker. Each defaults to 1000.
	HotCapacity  int `yaml:"hot-queue-capacity" mapstructure:"hot-queue-capacity" envconfig:"HOT_QUEUE_CAPACITY"`
	ColdCapacity int `yaml:"cold-queue-capacity" mapstructure:"cold-queue-capacity" envconfig:"COLD_QUEUE_CAPACITY"`
	// MaxAttempts is how many deliveries may fail until an event is DEAD.
	// Defaults to 10.
	MaxAttempts int `yaml:"max-attempts" mapstructure:"max-attempts" split_words:"true"`
	// DrainTimeout is how long stopping waits for queued events. Defaults to
	// 5 s.
	DrainTimeout time.Duration `yaml:"drain-timeout" mapstructure:"drain-timeout" split_words:"true"`
	// ListenerTimeout ends the context of a delivery. Defaults to no timeout.
	ListenerTimeout time.Duration `yaml:"listener-timeout" mapstructure:"listener-timeout" split_words:"true"`
	// DeferUnroutable defers events without a listener for this long, so that a newer process can
	// deliver them. By default, events without a listener are DEAD at once.
	DeferUnroutable time.Duration `yaml:"defer-unroutable" mapstructure:"defer-unroutable" split_words:"true"`
	// MarkInterval is the least time between two batches of outcomes that are stored. Defaults to 5
	// ms.
	MarkInterval time.Duration `yaml:"mark-interval" mapstructure:"mark-interval" split_words:"true"`
	// Limits bound the deliveries of some kinds of events. Defaults to no limits.
	Limits []LimitConfig `yaml:"limits" mapstructure:"limits" split_words:"true"`
}

// LimitConfig bounds the deliveries of a kind of event; see [outbox.Limit].
type LimitConfig struct {
	// EventType and AggregateType are the kind. An empty aggregate type is
	// [outbox.Global].
	EventType     string `yaml:"event-type" mapstructure:"event-type" split_words:"true"`
	AggregateType string `yaml:"aggregate-type" mapstructure:"aggregate-type" split_words:"true"`
	// Concurrency is how many listeners of the kind run at once. Defaults to
	// Workers.
	Concurrency int `yaml:"concurrency" mapstructure:"concurrency" split_words:"true"`
	// Rate is how many deliveries begin in a second. Defaults to no bound.
	Rate float64 `yaml:"rate" mapstructure:"rate" split_words:"true"`
	// Burst is how many deliveries may begin at once after a pause. Defaults to a tenth
	// of Rate, at least 1.
	Burst int `yaml:"burst" mapstructure:"burst" split_words:"true"`
}

// RetryConfig is for single-node, multi-node and ordered-by-key; see [outbox.ExponentialBackoff].
type RetryConfig struct {
	// BaseDelay is the wait after the first failure. Defaults to 200 ms.
	BaseDelay time.Duration `yaml:"base-delay" mapstructure:"base-delay" split_words:"true"`
	// MaxDelay is the longest wait. Defaults to 1 min.
	MaxDelay time.Duration `yaml:"max-delay" mapstructure:"max-delay" split_words:"true"`
}

// PollConfig is for every mode but writer-only; see [outbox.PollOptions].
type PollConfig struct {
	// Interval is how often an idle table is polled. Defaults to 5 s.
	Interval time.Duration `yaml:"interval" mapstructure:"interval" split_words:"true"`
	// BatchSize is the most rows read at once. Defaults to 500.
	BatchSize int `yaml:"batch-size" mapstructure:"batch-size" split_words:"true"`
	// SkipRecent leaves out events that are younger. Defaults to 0.
	SkipRecent time.Duration `yaml:"skip-recent" mapstructure:"skip-recent" split_words:"true"`
}

// ClaimConfig is for multi-node and ordered-by-key; see [outbox.ClaimOptions].
type ClaimConfig struct {
	// Enabled may be set, but only to the value that the mode implies: true in multi-node and
	// ordered-by-key, false in the other modes.
	Enabled *bool `yaml:"enabled" mapstructure:"enabled" split_words:"true"`
	// Owner names this process in locked_by and must differ from the Owner of every other
	// process. Defaults to host, process id and a random part.
	Owner string `yaml:"owner-id" mapstructure:"owner-id" envconfig:"OWNER_ID"`
	// LeaseDuration is how long a lease lasts unless it is renewed. Defaults to
	// 5 min.
	LeaseDuration time.Duration `yaml:"lock-timeout" mapstructure:"lock-timeout" envconfig:"LOCK_TIMEOUT"`
	// TenantsInTurn claims events of the tenants in turn; multi-node only. Defaults to false.
	TenantsInTurn bool `yaml:"tenants-in-turn" mapstructure:"tenants-in-turn" split_words:"true"`
}

// OrderingConfig is for ordered-by-key; see [outbox.OrderedByKey].
type OrderingConfig struct {
	// OnDead says whether a DEAD event blocks its key or is skipped. Defaults to block.
	OnDead OnDead `yaml:"on-dead" mapstructure:"on-dead" split_words:"true"`
	// RunLength is the most events of a key that are claimed together. Defaults to 50.
	RunLength int `yaml:"run-length" mapstructure:"run-length" split_words:"true"`
	// RequireKey refuses to write an event without an aggregate id. Defaults to
	// false.
	RequireKey bool `yaml:"require-key" mapstructure:"require-key" split_words:"true"`
}

// PurgeConfig is for every mode; see [outbox.PurgeOptions].
type PurgeConfig struct {
	// Enabled purges old rows. Defaults to false. If another setting of PurgeConfig is set, Enabled
	// must be set too, to true or false: without Enabled, the other settings have no effect.
	Enabled *bool `yaml:"enabled" mapstructure:"enabled" split_words:"true"`
	// Retention is how long rows are kept. Defaults to 7 days; [outbox.NoRetention] keeps no rows.
	Retention time.Duration `yaml:"retention" mapstructure:"retention" split_words:"true"`
	// BatchSize is the most rows that a transaction deletes. Defaults to 500.
	BatchSize int `yaml:"batch-size" mapstructure:"batch-size" split_words:"true"`
	// Interval is how often the purger runs. Defaults to 1 h.
	Interval time.Duration `yaml:"interval" mapstructure:"interval" split_words:"true"`
	// OnDone keeps the rows of delivered events for the purger, or deletes them
	// at once. Defaults to keep. Not in writer-only.
	OnDone OnDone `yaml:"on-done" mapstructure:"on-done" split_words:"true"`
}

// MetricsConfig is for every mode.
type MetricsConfig struct {
	// Enabled false switches off the metrics that an option of [NewModule] gives. Defaults to true;
	// true without such an option is an error.
	Enabled *bool `yaml:"enabled" mapstructure:"enabled" split_words:"true"`
	// NamePrefix is the first part of the metrics' names. Defaults to outbox. A constructor given
	// to [WithMetrics] gets the prefix as a [MetricsPrefix].
	NamePrefix string `yaml:"name-prefix" mapstructure:"name-prefix" split_words:"true"`
}

// TracingConfig is for every mode.
type TracingConfig struct {
	// Enabled false switches off the traces that an option of [NewModule] gives.
	// Defaults to true; true without such an option is an error.
	Enabled *bool `yaml:"enabled" mapstructure:"enabled" split_words:"true"`
}

// defaultConfigUseReplace returns the Config that the module provides. fx names this function in
// the error when an app supplies a second Config.
func defaultConfigUseReplace() Config { return Config{} }
