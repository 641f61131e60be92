package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/internal/shared"
	"github.com/outboxkit/outbox-go/internal/verdict"
	"github.com/outboxkit/outbox-go/internal/webaddr"
	"github.com/outboxkit/outbox-go/outbox"
)

// streamTime is how long a stream lasts. The browser then opens another stream, and Authorize is
// asked again.
const streamTime = 5 * time.Minute

// sample holds the figures that the overview shows of an outbox at one time.
type sample struct {
	At time.Time
	verdict.Facts
	Err error
	// History is the time of the last sample of the history, in milliseconds.
	History int64
}

// sampler reads samples while the overview has viewers: one set of queries in each interval, for
// any number of viewers. For the history, the sampler reads every ten seconds without viewers too.
type sampler struct {
	outbox            *outbox.Outbox
	interval, timeout time.Duration
	maxDueAge         time.Duration

	mu      sync.Mutex
	viewers map[chan sample]bool
	stop    context.CancelFunc
	last    *sample // for an overview, without an error; nil: none yet

	began   time.Time
	history history

	// latest and groups serve all requests that come within an interval.
	latest shared.Value[sample]
	groups shared.Value[deadGroups]
}

// deadGroups are groups of dead letters; more says that there are dead letters behind the list.
type deadGroups struct {
	list []outbox.DeadGroup
	more bool
}

func (s *sampler) read(ctx context.Context) (got sample) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	began := time.Now()
	got.At = began.UTC()
	if got.Facts, got.Err = verdict.Read(ctx, s.outbox, s.maxDueAge); got.Err == nil {
		s.history.add(began, began.Sub(s.began), historyEvery, &got.Stats, got.Nodes)
	}
	got.History = s.history.latest()
	if got.Err == nil {
		last := got
		s.mu.Lock()
		s.last = &last
		s.mu.Unlock()
	}
	return got
}

// lastRead returns the last sample that was read for an overview, or nil.
func (s *sampler) lastRead() *sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// recent returns a sample that is at most an interval old.
func (s *sampler) recent(ctx context.Context) (sample, error) {
	return s.latest.Get(ctx, s.interval, func(ctx context.Context) (sample, error) {
		got := s.read(ctx)
		return got, got.Err
	})
}

// deadGroups returns the groups of all dead letters, which are at most an interval old.
func (s *sampler) deadGroups(ctx context.Context) (deadGroups, error) {
	return s.groups.Get(ctx, s.interval, func(ctx context.Context) (got deadGroups, err error) {
		got.list, got.more, err = s.outbox.DeadLetters().Groups(ctx, outbox.DeadFilter{})
		return got, err
	})
}

// forget makes the next pages read again what they show, after a change.
func (s *sampler) forget() {
	s.latest.Forget()
	s.groups.Forget()
}

// watch returns a channel that gets the samples, and a function that ends the watch. The first
// viewer starts the sampler, the last viewer stops it.
func (s *sampler) watch() (<-chan sample, func()) {
	viewer := make(chan sample, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.viewers[viewer] = true
	if len(s.viewers) == 1 {
		var ctx context.Context
		ctx, s.stop = context.WithCancel(context.Background())
		go s.run(ctx)
	}
	return viewer, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.viewers, viewer)
		if len(s.viewers) == 0 {
			s.stop()
		}
	}
}

func (s *sampler) run(ctx context.Context) {
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	for {
		got := s.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if got.Err == nil {
			s.latest.Set(got.At, got)
		}
		s.mu.Lock()
		for viewer := range s.viewers {
			select {
			case viewer <- got:
			default: // the viewer is behind, and gets the next sample
			}
		}
		s.mu.Unlock()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// figures is a sample for the script: texts and times by the names of the places that show them. When
// History changes, the script loads the charts and the lists again.
type figures struct {
	Texts   map[string]string `json:"texts"`
	Times   map[string]string `json:"times"`
	Verdict *shownVerdict     `json:"verdict,omitempty"`
	History int64             `json:"history"`
	Problem string            `json:"problem,omitempty"`
}

func (s *sample) figures() figures {
	if s.Err != nil {
		return figures{Problem: problemOf(s.Err).Title}
	}
	times := map[string]string{"at": machine(s.At)}
	if !s.Stats.LastPoll.IsZero() {
		times["polled"] = machine(s.Stats.LastPoll)
	}
	return figures{Texts: s.texts(), Times: times, Verdict: showVerdict(s.Verdict()), History: s.History}
}

// streamsOfUser is how many live overviews a user may have open, so that no user takes the streams
// of all others.
const streamsOfUser = 10

// viewers counts the live overviews, by user.
type viewers struct {
	mu    sync.Mutex
	limit int // MaxViewers
	all   int
	of    map[string]int
}

// enter returns why there is no room, or counts the viewer.
func (v *viewers) enter(user string) (refused string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.all >= v.limit:
		return fmt.Sprintf("%d pages are live already, which is Config.MaxViewers.", v.limit)
	case v.of[user] >= streamsOfUser:
		return fmt.Sprintf("You have %d live pages open already.", streamsOfUser)
	}
	v.all++
	v.of[user]++
	return ""
}

func (v *viewers) leave(user string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all--
	if v.of[user]--; v.of[user] == 0 {
		delete(v.of, user)
	}
}

// viewer returns the user's name, or the address of a user without a name.
func (p *page) viewer() string {
	if p.User != "" {
		return "user " + p.User
	}
	return "address " + webaddr.Client(p.r)
}

// live streams samples to a viewer.
func (p *page) live() error {
	if _, err := p.query(); err != nil {
		return err
	}
	if p.r.Method == http.MethodHead {
		p.w.Header().Set("Content-Type", "text/event-stream")
		return nil
	}
	viewer := p.viewer()
	if text := p.dashboard.viewers.enter(viewer); text != "" {
		p.w.Header().Set("Retry-After", "30")
		return &problem{http.StatusServiceUnavailable, "Too many viewers", text + " Reload the page instead."}
	}
	defer p.dashboard.viewers.leave(viewer)
	ctx, cancel := context.WithTimeout(p.r.Context(), streamTime)
	defer cancel()
	p.w.Header().Set("Content-Type", "text/event-stream")
	p.w.Header().Set("X-Accel-Buffering", "no") // nginx would collect the events
	p.w.WriteHeader(http.StatusOK)
	samples, leave := p.site.sampler.watch()
	defer leave()
	for {
		select {
		case got := <-samples:
			if p.send(got.figures()) != nil {
				return nil // the client has gone
			}
		case <-ctx.Done():
			return nil
		case <-p.dashboard.ending.Done():
			return nil
		}
	}
}

// send writes an event. A client that does not read for ten seconds has gone.
func (p *page) send(f figures) error {
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	control := http.NewResponseController(p.w)
	_ = control.SetWriteDeadline(time.Now().Add(10 * time.Second)) // not every server has deadlines
	if _, err := fmt.Fprintf(p.w, "data: %s\n\n", data); err != nil {
		return err
	}
	return control.Flush()
}
