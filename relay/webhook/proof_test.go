package webhook_test

import (
	"hash/fnv"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay/webhook"
)

// harmful are receivers that treat some requests badly, and what they accepted.
type harmful struct {
	mu       sync.Mutex
	tries    map[string]int // by endpoint and event
	accepted map[string]int
	harmed   map[string]int // by harm
	stop     chan struct{}  // ends the requests that hang
}

// harms are what may happen to a request. The first request of one in eight deliveries is harmed, and half
// of the second requests of these.
var harms = []struct {
	name string
	do   func(h *harmful, w http.ResponseWriter, q *http.Request)
}{
	{"hangs", func(h *harmful, _ http.ResponseWriter, q *http.Request) {
		select {
		case <-q.Context().Done():
		case <-h.stop:
		}
		panic(http.ErrAbortHandler) // an answer could still arrive, and would be a success
	}},
	{"drips", func(h *harmful, w http.ResponseWriter, q *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte("."))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-q.Context().Done():
		case <-h.stop:
		}
	}},
	{"resets", func(*harmful, http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	{"fails", func(_ *harmful, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}},
	{"refuses", func(_ *harmful, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }},
	{"redirects", func(_ *harmful, w http.ResponseWriter, q *http.Request) {
		http.Redirect(w, q, "/elsewhere", http.StatusFound)
	}},
	{"lies", func(_ *harmful, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(http.StatusInternalServerError)
		panic(http.ErrAbortHandler)
	}},
	{"accepts and answers nothing", func(h *harmful, _ http.ResponseWriter, q *http.Request) {
		h.accept(q)
		panic(http.ErrAbortHandler)
	}},
	{"asks to wait", func(_ *harmful, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}},
}

func target(q *http.Request) string { return q.URL.Path + " " + q.Header.Get("webhook-id") }

func (h *harmful) accept(q *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.accepted[target(q)]++
}

func (h *harmful) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(target(q)))
	chance := int(sum.Sum32())
	h.mu.Lock()
	h.tries[target(q)]++
	try := h.tries[target(q)]
	harm := harms[chance/16%len(harms)]
	bad := chance%8 == 0 && try == 1 || chance%16 == 0 && try == 2
	if harm.name == "asks to wait" && chance%1024 != 0 { // the whole endpoint would wait each time
		bad = false
	}
	if bad {
		h.harmed[harm.name]++
	}
	h.mu.Unlock()
	if bad {
		harm.do(h, w, q)
		return
	}
	h.accept(q)
}

// Two processes deliver 500 events to three endpoints, 100,000 with OUTBOX_TEST_LONG=webhook, whose
// receivers harm requests, and one process closes and starts again. Each endpoint gets each event, and no delivery is
// DEAD.
func TestNoDeliveryIsLost(t *testing.T) {
	events := 500
	if os.Getenv("OUTBOX_TEST_LONG") == "webhook" {
		events = 100_000
	}
	testdb.Each(t, testdb.Via(sqltx.Open, testdb.Main()), func(t *testing.T, db *testdb.DB) {
		h := &harmful{tries: map[string]int{}, accepted: map[string]int{}, harmed: map[string]int{}, stop: make(chan struct{})}
		r := receive(t, h.ServeHTTP)
		r.got = nil
		t.Cleanup(func() { close(h.stop) })
		of := webhook.Static{"a": r.at("/a"), "b": r.at("/b"), "c": r.at("/c")}
		node := func() *service {
			s := serve(t, db, of, func(cfg *webhook.Config, _ *outbox.Mode) {
				r.trust(cfg)
				cfg.Timeout = 3 * time.Second
				cfg.Rules = outbox.Rules{
					MaxAttempts: outbox.Endless, RetryPolicy: outbox.RetryPolicyFunc(func(int) time.Duration { return 20 * time.Millisecond }),
					KeyConcurrency: 16, Breaker: outbox.Breaker{Failures: 20, Pause: time.Second, PerKey: true},
				}
			})
			s.mayLose = true // the machine may be busy, and a delivery may come twice
			return s.start()
		}
		one, two := node(), node()
		var want []string
		for n := 0; n < events; {
			var orders []string
			for ; n < events && len(orders) < 50; n++ {
				orders = append(orders, strconv.Itoa(n))
			}
			for _, id := range two.write(orders...) {
				want = append(want, "/a "+id, "/b "+id, "/c "+id)
			}
			if n == events/2/50*50 {
				one.close()
				one = node()
			}
		}
		for last := -1; ; {
			done := two.count("status = 1")
			if done == 4*events {
				break
			}
			require.NotEqual(t, last, done, "nothing was delivered for a minute: %s", one.log)
			last = done
			require.Eventually(t, func() bool { return two.count("status = 1") != last }, time.Minute, 20*time.Millisecond)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		require.Zero(t, two.count("status = 3"))
		twice := 0
		for _, to := range want {
			require.NotZero(t, h.accepted[to], to)
			twice += h.accepted[to] - 1
		}
		require.Len(t, h.accepted, len(want), "deliveries without an event")
		require.False(t, strings.Contains(one.log.String()+two.log.String(), string(secret)))
		t.Logf("%d deliveries, %d of them twice; harm: %v", len(want), twice, h.harmed)
	})
}
