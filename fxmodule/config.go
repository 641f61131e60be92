package outboxfx

import (
	"time"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Mode says how an outbox delivers; each is the mode of package outbox of that
// name.
type Mode string

// The modes. The empty one is single-node.
const (
	SingleNode Mode = "single-node"
	MultiNode  Mode = "multi-node"
	Ordered    Mode = "ordered"
	WriterOnly Mode = "writer-only"
)

// OnDone says what becomes of the row of a delivered event.
type OnDone string

// The values of purge.on-done. The empty one is keep.
const (
	Keep   OnDone = "keep"
	Delete OnDone = "delete"
)

// DefaultMetricsPrefix is what the names of metrics begin with unless
// metrics.name-prefix says otherwise.
const DefaultMetricsPrefix = "outbox"

// Config is an outbox's configuration. Zero means the default, so that a Config
// made in code sets only what differs, and what the mode does not have must stay
// zero. [LoadConfig] reads one from YAML and variables; the tags let viper
// (mapstructure), a YAML decoder, and envconfig with the prefix OUTBOX fill one
// too, and the module validates it whoever did.
type Config struct {
	// Mode defaults to single-node.
	Mode Mode `yaml:"mode" mapstructure:"mode" split_words:"true"`
	// TableName is the table, optionally schema.table. Defaults to
	// outbox_event.
	TableName string `yaml:"table-name" mapstructure:"table-name" split_words:"true"`
	// CreateSchema creates the table and its indexes at start where they are
	// missing.
	CreateSchema bool `yaml:"create-schema" mapstructure:"create-schema" split_words:"true"`

	Dispatcher   DispatcherConfig   `yaml:"dispatcher" mapstructure:"dispatcher" split_words:"true"`
	Retry        RetryConfig        `yaml:"retry" mapstructure:"retry" split_words:"true"`
	Poller       PollerConfig       `yaml:"poller" mapstructure:"poller" split_words:"true"`
	ClaimLocking ClaimLockingConfig `yaml:"claim-locking" mapstructure:"claim-locking" split_words:"true"`
	Purge        PurgeConfig        `yaml:"purge" mapstructure:"purge" split_words:"true"`
	Metrics      MetricsConfig      `yaml:"metrics" mapstructure:"metrics" split_words:"true"`
	Tracing      TracingConfig      `yaml:"tracing" mapstructure:"tracing" split_words:"true"`
}

// DispatcherConfig is for the modes single-node and multi-node; see
// [outbox.DispatchOptions].
type DispatcherConfig struct {
	// WorkerCount is how many listeners run at once. Defaults to 4; at most
	// [outbox.MaxWorkers].
	WorkerCount int `yaml:"worker-count" mapstructure:"worker-count" split_words:"true"`
	// HotQueueCapacity and ColdQueueCapacity are how many committed and how
	// many polled events wait for a worker. Each defaults to 1000; at most
	// [outbox.MaxQueueCapacity].
	HotQueueCapacity  int `yaml:"hot-queue-capacity" mapstructure:"hot-queue-capacity" split_words:"true"`
	ColdQueueCapacity int `yaml:"cold-queue-capacity" mapstructure:"cold-queue-capacity" split_words:"true"`
	// MaxAttempts is how many deliveries may fail until an event goes DEAD.
	// Defaults to 10.
	MaxAttempts int `yaml:"max-attempts" mapstructure:"max-attempts" split_words:"true"`
	// DrainTimeout is how long stopping waits for queued events. Defaults to
	// 5 s.
	DrainTimeout time.Duration `yaml:"drain-timeout" mapstructure:"drain-timeout" split_words:"true"`
	// ListenerTimeout ends the context of one delivery. Defaults to none.
	ListenerTimeout time.Duration `yaml:"listener-timeout" mapstructure:"listener-timeout" split_words:"true"`
	// DeferUnroutable leaves events without a listener to a newer process and
	// looks again after this long. Defaults to none: they go DEAD at once.
	DeferUnroutable time.Duration `yaml:"defer-unroutable" mapstructure:"defer-unroutable" split_words:"true"`
}

// RetryConfig is for the modes single-node and multi-node; see
// [outbox.ExponentialBackoff].
type RetryConfig struct {
	// BaseDelay is the wait after the first failure. Defaults to 200 ms.
	BaseDelay time.Duration `yaml:"base-delay" mapstructure:"base-delay" split_words:"true"`
	// MaxDelay is the longest wait. Defaults to 1 min.
	MaxDelay time.Duration `yaml:"max-delay" mapstructure:"max-delay" split_words:"true"`
}

// PollerConfig is for every mode but writer-only; see [outbox.PollOptions].
type PollerConfig struct {
	// Interval is how often an idle table is looked at. Defaults to 5 s.
	Interval time.Duration `yaml:"interval" mapstructure:"interval" split_words:"true"`
	// BatchSize is the most rows read at once. Defaults to 500; at most
	// [outbox.MaxBatch].
	BatchSize int `yaml:"batch-size" mapstructure:"batch-size" split_words:"true"`
	// SkipRecent leaves out events that are younger. Defaults to 0.
	SkipRecent time.Duration `yaml:"skip-recent" mapstructure:"skip-recent" split_words:"true"`
}

// ClaimLockingConfig is for the mode multi-node; see [outbox.ClaimOptions].
type ClaimLockingConfig struct {
	// Enabled follows the mode. It may be set, but only to what the mode says.
	Enabled *bool `yaml:"enabled" mapstructure:"enabled" split_words:"true"`
	// OwnerID names this process in locked_by and must differ from every other
	// process's. Defaults to host, process id and a random part.
	OwnerID string `yaml:"owner-id" mapstructure:"owner-id" split_words:"true"`
	// LockTimeout is how long a lease lasts without being renewed. Defaults to
	// 5 min. There is no lower limit; see [outbox.ClaimOptions].
	LockTimeout time.Duration `yaml:"lock-timeout" mapstructure:"lock-timeout" split_words:"true"`
}

// PurgeConfig is for every mode; see [outbox.PurgeOptions].
type PurgeConfig struct {
	// Enabled purges old rows. Defaults to false, and then the rest is unused.
	Enabled bool `yaml:"enabled" mapstructure:"enabled" split_words:"true"`
	// Retention is how long rows are kept. Defaults to 168 h, which is 7 days;
	// [outbox.NoRetention], which LoadConfig makes of 0s, keeps none.
	Retention time.Duration `yaml:"retention" mapstructure:"retention" split_words:"true"`
	// BatchSize is the most rows deleted in one transaction. Defaults to 500; at
	// most [outbox.MaxBatch].
	BatchSize int `yaml:"batch-size" mapstructure:"batch-size" split_words:"true"`
	// Interval is how often the purger runs. Defaults to 1 h.
	Interval time.Duration `yaml:"interval" mapstructure:"interval" split_words:"true"`
	// OnDone keeps the rows of delivered events for the purger, or deletes them
	// at once. Defaults to keep. Not in the mode writer-only.
	OnDone OnDone `yaml:"on-done" mapstructure:"on-done" split_words:"true"`
}

// MetricsConfig is for every mode.
type MetricsConfig struct {
	// Enabled defaults to true when the module is given metrics. When it is set
	// to true and the module is given none, they are those of [WithPrometheus]
	// with the app's [prometheus.Registerer].
	Enabled *bool `yaml:"enabled" mapstructure:"enabled" split_words:"true"`
	// NamePrefix is what the metrics' names begin with. Defaults to outbox. A
	// constructor given to [WithMetrics] takes it as [MetricsPrefix].
	NamePrefix string `yaml:"name-prefix" mapstructure:"name-prefix" split_words:"true"`
}

// TracingConfig is for every mode.
type TracingConfig struct {
	// Enabled defaults to true with [WithOTel]. When it is set to true without,
	// spans go to the global provider of OpenTelemetry, as with WithOTel().
	Enabled *bool `yaml:"enabled" mapstructure:"enabled" split_words:"true"`
}

// WithDefaults is the configuration with the defaults of what its mode has, as
// the outbox will use it; for logs. OwnerID and ListenerTimeout have none.
func (c Config) WithDefaults() Config {
	fill(&c.Mode, SingleNode)
	fill(&c.TableName, sqlstore.DefaultTable)
	if c.Mode == SingleNode || c.Mode == MultiNode {
		fill(&c.Dispatcher.WorkerCount, outbox.DefaultWorkers)
		fill(&c.Dispatcher.HotQueueCapacity, outbox.DefaultQueueCapacity)
		fill(&c.Dispatcher.ColdQueueCapacity, outbox.DefaultQueueCapacity)
		fill(&c.Dispatcher.MaxAttempts, outbox.DefaultMaxAttempts)
		fill(&c.Dispatcher.DrainTimeout, outbox.DefaultDrainTimeout)
		fill(&c.Retry.BaseDelay, outbox.DefaultRetryBase)
		fill(&c.Retry.MaxDelay, max(outbox.DefaultRetryMax, c.Retry.BaseDelay))
	}
	if c.Mode != WriterOnly {
		fill(&c.Poller.Interval, outbox.DefaultPollInterval)
		fill(&c.Poller.BatchSize, outbox.DefaultPollBatch)
		fill(&c.Purge.OnDone, Keep)
	}
	claims := c.Mode == MultiNode
	fill(&c.ClaimLocking.Enabled, &claims)
	if claims {
		fill(&c.ClaimLocking.LockTimeout, outbox.DefaultLockTimeout)
	}
	fill(&c.Purge.Retention, outbox.DefaultRetention)
	fill(&c.Purge.BatchSize, outbox.DefaultPurgeBatch)
	fill(&c.Purge.Interval, outbox.DefaultPurgeInterval)
	fill(&c.Metrics.NamePrefix, DefaultMetricsPrefix)
	return c
}

func fill[T comparable](field *T, def T) {
	var zero T
	if *field == zero {
		*field = def
	}
}
