package dashboard

import (
	"net/http"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// overview shows the counts, the latest deliveries, the nodes and the pauses.
func (p *page) overview() error {
	if _, err := p.query(); err != nil {
		return err
	}
	ctx, cancel := p.context()
	defer cancel()
	now := p.dashboard.samplers[p.Name].read(ctx)
	if now.Err != nil {
		return now.Err
	}
	nodes, err := p.outbox.Nodes(ctx)
	if err != nil {
		return err
	}
	return p.show(http.StatusOK, "overview.html", "Overview", struct {
		Figures []figure
		Texts   map[string]string
		AnyDead bool
		Paused  []outbox.Pause
		Nodes   []outbox.Node
		Every   time.Duration
	}{overviewFigures, now.texts(), now.Stats.Dead > 0, now.Stats.Paused, nodes, p.dashboard.config.Interval})
}

// figure is a number of the overview: the name for the script, and the texts that explain it.
type figure struct{ Name, Label, Link, Help string }

var overviewFigures = []figure{
	{"pending", "Pending", "events?status=WAITING", "due and delayed together"},
	{"due", "Due", "events?status=WAITING", "waiting, and due now"},
	{"delayed", "Delayed", "events?status=WAITING", "waiting for a later time or a retry"},
	{"dead", "Dead", "dead", "given up"},
	{"oldest", "Oldest due", "events?status=WAITING", "how long it has been due"},
	{"rate", "Delivered", "events?status=DONE", "within the last minute"},
	{"median", "Median", "", "from due to done"},
	{"p95", "95th percentile", "", "from due to done"},
	{"queues", "Queues", "", "of this process: hot, cold"},
}

// texts returns the values of the figures.
func (s *sample) texts() map[string]string {
	t := map[string]string{
		"pending": upTo(s.Stats.Pending), "due": upTo(s.Stats.Due), "delayed": upTo(s.Stats.Delayed), "dead": upTo(s.Stats.Dead), "oldest": "–",
		"rate": "none", "median": "–", "p95": "–",
		"queues": count(s.Stats.HotDepth) + ", " + count(s.Stats.ColdDepth),
		"at":     s.At.Format("15:04:05 UTC"), "poll": "this process does not poll",
	}
	if s.Stats.OldestDueAge > 0 {
		t["oldest"] = span(s.Stats.OldestDueAge)
	}
	if s.Throughput.Done > 0 {
		t["rate"] = upTo(s.Throughput.Done)
		t["median"], t["p95"] = span(s.Throughput.Median), span(s.Throughput.P95)
	}
	if s.Stats.PollInterval > 0 {
		t["poll"] = "this process has not polled yet"
	}
	if !s.Stats.LastPoll.IsZero() {
		t["poll"] = "this process polled " + ago(s.Stats.LastPoll, s.At)
	}
	return t
}
