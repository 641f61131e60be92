package relay_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
)

// partial is a relay whose broker is away for some topics. An event's key is its topic.
type partial struct {
	*relay.Relay
	broker  *broker
	log     strings.Builder
	figures figures
	away    map[string]error // by topic
	tried   map[string]int   // messages by topic
}

// newPartial makes one. It is for synctest, and one goroutine.
func newPartial(t *testing.T) *partial {
	t.Helper()
	p := &partial{away: map[string]error{}, tried: map[string]int{}, figures: figures{begun: map[string]int{}}}
	p.broker = &broker{refuse: func(m relay.Message) error {
		p.tried[m.Topic]++
		return p.away[m.Topic]
	}}
	r, err := relay.New(relay.Config{
		Publisher: p.broker, Source: "/orders", Metrics: &p.figures, Logger: slog.New(slog.NewTextHandler(&p.log, nil)),
		Routes: []relay.Route{{
			Kinds:   []outbox.EventKind{placed.Kind()},
			TopicOf: func(env outbox.Envelope) (string, error) { return env.AggregateID, nil },
		}},
	})
	require.NoError(t, err)
	p.Relay = r
	return p
}

var errFull = fmt.Errorf("%w: the queue is full", relay.ErrUnavailable)

// A topic that is away gets one call in each backoff, and the others get all of theirs.
func TestATopicThatIsAwayStopsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartial(t)
		p.away["a"] = errFull
		const calls = 5 * 3600 // an hour
		for range calls {
			results := p.Publish(t.Context(), events("a/1", "b/2"))
			wait, is := deferral(results[0])
			require.True(t, is)
			require.LessOrEqual(t, wait, relay.DefaultMaxBackoff)
			require.NoError(t, results[1])
			time.Sleep(200 * time.Millisecond)
		}
		require.Equal(t, calls, p.tried["b"])
		require.InDelta(t, 360, p.tried["a"], 10)
		require.Equal(t, 1, strings.Count(p.log.String(), "\n"))
		require.Equal(t, []bool{true}, p.figures.outages)
		p.away["a"] = nil
		time.Sleep(relay.DefaultMaxBackoff)
		require.NoError(t, p.Publish(t.Context(), events("a/1"))[0])
		require.Equal(t, []bool{true, false}, p.figures.outages)
	})
}

// A queue that is full every other second is reported at most once a minute.
func TestAnOutageThatComesAndGoesIsReportedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartial(t)
		for i := range 3600 {
			p.away["a"] = []error{errFull, nil}[i%2]
			p.Publish(t.Context(), events("a/1"))
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, len(p.figures.outages), 2*60)
		require.LessOrEqual(t, strings.Count(p.log.String(), "\n"), 2*60)
		p.away["a"] = errFull
		for range 30 {
			p.Publish(t.Context(), events("a/1"))
			time.Sleep(5 * time.Second)
		}
		require.True(t, p.figures.outages[len(p.figures.outages)-1], "an outage that stays is reported")
	})
}

// Also a broker that refuses a message is there.
func TestAnyAnswerEndsAnOutage(t *testing.T) {
	for _, answer := range []error{nil, relay.ErrRefused, relay.ErrUnroutable, fmt.Errorf("no permission")} {
		t.Run(fmt.Sprint(answer), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPartial(t)
				p.away["a"] = errFull
				p.Publish(t.Context(), events("a/1"))
				time.Sleep(2 * time.Second)
				p.away["a"] = answer
				p.Publish(t.Context(), events("a/1"))
				require.Equal(t, []bool{true, false}, p.figures.outages)
				require.Equal(t, 2, p.tried["a"])
			})
		})
	}
}

// Some acknowledgements do not end the outage of a topic that has no room for the rest.
func TestATopicThatTakesSomeMessagesIsAway(t *testing.T) {
	b := &broker{refuse: func(m relay.Message) error {
		return map[bool]error{true: errFull}[eventOf(m) == "2"]
	}}
	r := newRelay(t, b, relay.Route{Topic: "orders"})
	batch := events("a/1", "b/2")
	require.NoError(t, r.Publish(t.Context(), batch)[0])
	require.Equal(t, []int{0, 1}, deferred(r.Publish(t.Context(), batch)))
	require.Equal(t, 1, b.calls)
}

// A topic whose events went out from another node does not prolong the outage.
func TestATopicThatGetsNoMoreEventsIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPartial(t)
		p.away["a"] = errFull
		p.Publish(t.Context(), events("a/1"))
		p.Publish(t.Context(), events("b/2"))
		require.Equal(t, []bool{true}, p.figures.outages)
		time.Sleep(2 * time.Minute)
		p.Publish(t.Context(), events("b/3"))
		require.Equal(t, []bool{true, false}, p.figures.outages)
	})
}

// An event whose topic is away holds up the rest of its key, as long as the topic is away.
func TestAnEventWhoseTopicIsAwayHoldsTheRestOfItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{refuse: func(m relay.Message) error {
			return map[bool]error{true: errFull}[m.Topic == "topic-1"]
		}}
		r := newRelay(t, b, relay.Route{TopicOf: func(env outbox.Envelope) (string, error) { return "topic-" + env.EventID, nil }})
		batch := events("a/1", "a/2", "b/3")
		for range 4 { // tried at 0 s, 1 s, and 3 s
			require.Equal(t, []int{0, 1}, deferred(r.Publish(t.Context(), batch)))
			time.Sleep(time.Second)
		}
		results := r.Publish(t.Context(), batch)
		for _, i := range []int{0, 1} {
			wait, _ := deferral(results[i])
			require.Equal(t, 3*time.Second, wait)
		}
		require.Equal(t, []string{"3", "3", "3", "3", "3"}, b.ids())
	})
}

// slow is a broker whose calls take time, and run side by side.
type slow struct {
	broker
	answer func(m relay.Message) error
}

func (s *slow) Publish(_ context.Context, messages []relay.Message) []error {
	errs := make([]error, len(messages))
	for i, m := range messages {
		errs[i] = s.answer(m)
	}
	return errs
}

// retryAfter is for how long the first event of a batch is deferred.
func retryAfter(t *testing.T, r *relay.Relay, batch ...string) time.Duration {
	t.Helper()
	wait, _ := deferral(r.Publish(t.Context(), events(batch...))[0])
	return wait
}

func TestCallsThatFailSideBySideCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRelay(t, &slow{answer: func(relay.Message) error {
			time.Sleep(time.Second)
			return errFull
		}}, relay.Route{Topic: "orders"})
		waits := make(chan time.Duration, 3)
		for range cap(waits) {
			go func() { waits <- retryAfter(t, r, "a/1") }()
		}
		for range cap(waits) {
			require.Equal(t, time.Second, <-waits)
		}
	})
}

// The call that tries a topic again has all of its messages. Other calls wait for it.
func TestOneCallTriesATopicAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tried []string
		r := newRelay(t, &slow{answer: func(m relay.Message) error {
			tried = append(tried, eventOf(m))
			time.Sleep(100 * time.Millisecond)
			return errFull
		}}, relay.Route{Topic: "orders"})
		require.Equal(t, time.Second, retryAfter(t, r, "a/1"))
		time.Sleep(time.Second)
		again := make(chan time.Duration)
		go func() { again <- retryAfter(t, r, "a/2", "b/3", "c/4") }()
		synctest.Wait()
		require.Equal(t, time.Second, retryAfter(t, r, "a/5"), "another call")
		require.Equal(t, 2*time.Second, <-again)
		require.Equal(t, []string{"1", "2", "3", "4"}, tried)
	})
}

// A call that began in an outage and fails after its end begins the next one.
func TestACallOfAnEarlierOutageBeginsTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRelay(t, &slow{answer: func(m relay.Message) error {
			if eventOf(m) == "2" {
				time.Sleep(3 * time.Second)
			}
			return map[bool]error{true: errFull}[eventOf(m) != "3"]
		}}, relay.Route{Topic: "orders"})
		require.Equal(t, time.Second, retryAfter(t, r, "a/1"))
		time.Sleep(time.Second)
		late := make(chan time.Duration)
		go func() { late <- retryAfter(t, r, "a/2") }()
		time.Sleep(time.Second)
		require.NoError(t, r.Publish(t.Context(), events("a/3"))[0])
		require.Equal(t, time.Second, <-late)
	})
}
