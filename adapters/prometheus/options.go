package outboxprom

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxkit/outbox-go/outbox"
)

// DefaultPrefix is the prefix of the names without [WithPrefix].
const DefaultPrefix = "outbox"

// The labels of [WithEventLabels], and their values for events without separate series.
const (
	LabelEventType     = "event_type"
	LabelAggregateType = "aggregate_type"
	// LabelListener is empty, which Prometheus takes as absent, except for rows that are for only
	// one of an event's several listeners.
	LabelListener = "listener"
	// OtherKinds stands for all pairs of types beyond the limit.
	OtherKinds = "other"
	// UnknownKind stands for rows that could not be decoded.
	UnknownKind = "unknown"
)

// Option changes the metrics that [New] registers.
type Option func(*options)

type options struct {
	prefix string
	labels prometheus.Labels
	kinds  int // how many pairs of types have labels
	events bool
}

// WithPrefix sets the prefix of the names. Defaults to [DefaultPrefix]. Invalid
// characters become underscores: "orders.outbox" gives
// orders_outbox_enqueue_hot_total. The alert rules and the dashboard of
// docs/monitoring need the default prefix; use [WithConstLabels] to keep it.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithConstLabels puts labels with constant values on every metric, such as
// {"outbox": "orders"}. Outboxes that share a registry and a prefix need the
// same label names with different values.
func WithConstLabels(labels prometheus.Labels) Option {
	labels = maps.Clone(labels)
	return func(o *options) { o.labels = labels }
}

// WithEventLabels adds the labels event_type and aggregate_type to all metrics of single events,
// and the label listener to the metrics of outcomes. The first limit pairs of types have separate
// series, other pairs count together as "other"; zero is 100. A listener that fails where an event
// has several listeners counts as a further pair. Each pair costs about 50 series. Defaults to no
// such labels.
func WithEventLabels(limit int) Option {
	return func(o *options) { o.events, o.kinds = true, limit }
}

func newOptions(opts []Option) (options, error) {
	o := options{prefix: DefaultPrefix}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	var errs []error
	if o.prefix = metricName(o.prefix); strings.Trim(o.prefix, "_") == "" {
		errs = append(errs, &outbox.FieldError{Field: "WithPrefix", Problem: "has no letter or digit that a metric's name could begin with; leave it out for " + DefaultPrefix})
	}
	if o.kinds < 0 {
		errs = append(errs, &outbox.FieldError{Field: "WithEventLabels", Problem: fmt.Sprintf("is %d; it must not be negative", o.kinds)})
	}
	if o.events && o.kinds == 0 {
		o.kinds = 100
	}
	for _, name := range slices.Sorted(maps.Keys(o.labels)) {
		if problem := o.labelProblem(name); problem != "" {
			errs = append(errs, &outbox.FieldError{Field: fmt.Sprintf("WithConstLabels[%q]", name), Problem: problem})
		}
	}
	return o, errors.Join(errs...)
}

// labelProblem reports labels that Prometheus would reject, in part with a panic.
func (o *options) labelProblem(name string) string {
	switch {
	case !isLabelName(name):
		return "is not a label's name: letters, digits and underscores, not beginning with a digit or two underscores"
	case name == "le" || name == "quantile": // of buckets and quantiles
		return "is a label of Prometheus itself"
	case o.events && (name == LabelEventType || name == LabelAggregateType || name == LabelListener):
		return "is a label of WithEventLabels"
	case !utf8.ValidString(o.labels[name]):
		return "has a value that is not UTF-8"
	}
	return ""
}

// isLabelName reports whether every version of Prometheus accepts the name; names that begin with two
// underscores are Prometheus's own.
func isLabelName(name string) bool {
	return name != "" && !strings.HasPrefix(name, "__") && name == metricName(name)
}

// metricName converts a prefix to the beginning of a metric's name.
func metricName(prefix string) string {
	name := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return r
		}
		return '_'
	}, prefix)
	if name != "" && name[0] >= '0' && name[0] <= '9' {
		return "_" + name
	}
	return name
}
