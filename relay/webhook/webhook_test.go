package webhook_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay/webhook"
)

func TestEachEndpointGetsTheEvent(t *testing.T) {
	testdb.Each(t, testdb.Via(sqltx.Open, testdb.Main()), func(t *testing.T, db *testdb.DB) {
		r := receive(t, nil)
		s := serve(t, db, webhook.Static{"a": r.at("/a"), "b": r.at("/b")}, func(cfg *webhook.Config, _ *outbox.Mode) { r.trust(cfg) }).start()
		ids := s.write("1", "2")

		got := map[string][]string{}
		for range 4 {
			q := r.next(t)
			got[q.at] = append(got[q.at], q.header.Get("webhook-id"))
			var body struct {
				Type      string            `json:"type"`
				Timestamp time.Time         `json:"timestamp"`
				Data      map[string]string `json:"data"`
			}
			require.NoError(t, json.Unmarshal([]byte(q.body), &body))
			require.Equal(t, "OrderPlaced", body.Type)
			require.Contains(t, []string{"1", "2"}, body.Data["order"])
			require.WithinDuration(t, time.Now(), body.Timestamp, time.Hour)
			require.Equal(t, "application/json", q.header.Get("Content-Type"))
		}
		require.ElementsMatch(t, ids, got["/a"])
		require.ElementsMatch(t, ids, got["/b"])
		s.until(6, "status = 1")
	})
}

func TestAnEventIsFannedOutOnce(t *testing.T) {
	testdb.Each(t, testdb.Via(sqltx.Open, testdb.Main()), func(t *testing.T, db *testdb.DB) {
		of := &endpoints{of: map[string]webhook.Endpoint{"a": {}, "b": {}}}
		s := serve(t, db, of, nil)
		env := orderPlaced.Envelope("1", nil)
		env.EventID = "e1"
		for range 2 {
			require.NoError(t, s.listener(false).OnEvent(t.Context(), env))
			require.Equal(t, 2, s.count("event_type = 'webhook.delivery'"))
		}
		of.change("c", func(*webhook.Endpoint) {})
		require.NoError(t, s.listener(false).OnEvent(t.Context(), env))
		require.Equal(t, 3, s.count("event_type = 'webhook.delivery'"), "the delivery that was missing")
	})
}

// A repeated fan-out asks for no delivery by itself, however many endpoints there are.
func TestARepeatedFanOutTakesFewTransactions(t *testing.T) {
	testdb.Each(t, testdb.Via(sqltx.Open, testdb.Main()), func(t *testing.T, db *testdb.DB) {
		of := webhook.Static{}
		for i := range 1_201 {
			of[strconv.Itoa(i)] = webhook.Endpoint{}
		}
		s := serve(t, db, of, nil)
		env := orderPlaced.Envelope("1", nil)
		env.EventID = "e1"
		fanOut := func(transactions int) {
			t.Helper()
			s.writes.Store(0)
			require.NoError(t, s.listener(false).OnEvent(t.Context(), env))
			require.EqualValues(t, transactions, s.writes.Load())
			require.Equal(t, 1_201, s.count("event_type = 'webhook.delivery'"))
		}
		fanOut(3)
		fanOut(3)
		_, err := s.db.ExecContext(t.Context(), "DELETE FROM outbox_event WHERE aggregate_id IN ('7', '8', '1200')")
		require.NoError(t, err)
		fanOut(3 + 2) // pieces with a delivery that is missing
	})
}

// Rows of a transaction are bounded by their number and their size.
func TestManyEndpointsAreWrittenInPieces(t *testing.T) {
	of := webhook.Static{}
	for i := range 1_201 {
		of[strconv.Itoa(i)] = webhook.Endpoint{}
	}
	s := serve(t, sqlite(t), of, nil)
	env := orderPlaced.Envelope("1", nil)
	env.EventID = "e1"
	require.NoError(t, s.listener(false).OnEvent(t.Context(), env))
	require.Equal(t, 1_201, s.count("event_type = 'webhook.delivery'"))

	large := orderPlaced.Envelope("1", map[string]string{"text": strings.Repeat("x", 1_000_000)})
	large.EventID = "e2"
	few := serve(t, sqlite(t), webhook.Static{"a": {}, "b": {}, "c": {}, "d": {}, "e": {}}, nil)
	require.NoError(t, few.listener(false).OnEvent(t.Context(), large))
	require.Equal(t, 5, few.count("event_type = 'webhook.delivery'"))
}

func TestAnEventWithoutEndpointsIsDone(t *testing.T) {
	s := serve(t, sqlite(t), webhook.Static{"off": {Disabled: true}}, nil).start()
	s.write("1")
	s.until(1, "status = 1")
	require.Zero(t, s.count("event_type = 'webhook.delivery'"))
}

func TestEndpointsThatCannotBeRead(t *testing.T) {
	of := &endpoints{err: errors.New("the table is away")}
	s := serve(t, sqlite(t), of, nil)
	require.ErrorContains(t, s.listener(false).OnEvent(t.Context(), orderPlaced.Envelope("1", nil)), "asking for the endpoints of the event: the table is away")
	s = serve(t, sqlite(t), webhook.Static{strings.Repeat("x", 129): {}}, nil)
	require.ErrorContains(t, s.listener(false).OnEvent(t.Context(), orderPlaced.Envelope("1", nil)), "has 129 characters; it must have 1 to 128")
	require.NoError(t, s.deliver("gone"), "the endpoint was deleted")
	require.Contains(t, s.log.String(), "does not exist any more")
}

func TestSecretsAreRotated(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	r := receive(t, nil)
	to := r.at("/")
	to.Secrets = []webhook.Secret{
		"whsec_" + webhook.Secret(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("n"), 32))), secret,
		"whsk_" + webhook.Secret(base64.StdEncoding.EncodeToString(private)), "whsk_" + webhook.Secret(base64.StdEncoding.EncodeToString(private.Seed())),
	}
	s := serve(t, sqlite(t), webhook.Static{"a": to}, func(cfg *webhook.Config, _ *outbox.Mode) { r.trust(cfg) })
	require.NoError(t, s.deliver("a"))
	q := r.next(t) // the old secret verifies
	signatures := strings.Split(q.header.Get("webhook-signature"), " ")
	require.Len(t, signatures, 4)
	require.Equal(t, signatures[2], signatures[3], "a seed and its key sign alike")
	version, text, _ := strings.Cut(signatures[2], ",")
	require.Equal(t, "v1a", version)
	signature, err := base64.StdEncoding.DecodeString(text)
	require.NoError(t, err)
	require.True(t, ed25519.Verify(public, []byte(q.header.Get("webhook-id")+"."+q.header.Get("webhook-timestamp")+"."+q.body), signature))
}

func TestEndpointsThatAreWrong(t *testing.T) {
	good := []webhook.Secret{secret}
	for name, c := range map[string]struct {
		webhook.Endpoint
		problem string
	}{
		"no TLS":          {webhook.Endpoint{URL: "http://hooks.example/x", Secrets: good}, `the scheme "http"; use https`},
		"a file":          {webhook.Endpoint{URL: "file:///etc/passwd", Secrets: good}, `the scheme "file"; use https`},
		"no host":         {webhook.Endpoint{URL: "https:///x", Secrets: good}, "has no host"},
		"a password":      {webhook.Endpoint{URL: "https://u:hush@hooks.example", Secrets: good}, "has a user; use the header Authorization"},
		"no URL":          {webhook.Endpoint{URL: "https://%zz", Secrets: good}, "cannot be read"},
		"no secret":       {webhook.Endpoint{URL: "https://hooks.example"}, "has no secret"},
		"no prefix":       {webhook.Endpoint{URL: "https://hooks.example", Secrets: []webhook.Secret{"hushhushhush"}}, "its secret 1 begins with neither whsec_ nor whsk_"},
		"not base64":      {webhook.Endpoint{URL: "https://hooks.example", Secrets: []webhook.Secret{secret, "whsec_hush!"}}, "its secret 2 is not base64"},
		"a short secret":  {webhook.Endpoint{URL: "https://hooks.example", Secrets: []webhook.Secret{"whsec_aHVzaA=="}}, "has 4 bytes; it must have 24 to 64"},
		"a short key":     {webhook.Endpoint{URL: "https://hooks.example", Secrets: []webhook.Secret{"whsk_aHVzaA=="}}, "has 4 bytes; a private key has 32 or 64"},
		"our header":      {webhook.Endpoint{URL: "https://hooks.example", Secrets: good, Headers: map[string]string{"Webhook-ID": "x"}}, "its header Webhook-Id is set by the library"},
		"a length":        {webhook.Endpoint{URL: "https://hooks.example", Secrets: good, Headers: map[string]string{"content-length": "0"}}, "its header Content-Length is set by the library"},
		"a broken header": {webhook.Endpoint{URL: "https://127.0.0.1:1", Secrets: good, Headers: map[string]string{"X-A": "hush\r\nX-B: 1"}}, "invalid header field value"},
		"a broken name":   {webhook.Endpoint{URL: "https://127.0.0.1:1", Secrets: good, Headers: map[string]string{"X A": "1"}}, "invalid header field name"},
	} {
		t.Run(name, func(t *testing.T) {
			err := serve(t, sqlite(t), webhook.Static{"a": c.Endpoint}, nil).deliver("a")
			require.ErrorContains(t, err, c.problem)
			require.NotContains(t, err.Error(), "hush")
		})
	}
}

// An endpoint's owner must not reach the service's own network.
func TestAddressesThatAreNotPublicAreRefused(t *testing.T) {
	for _, host := range []string{
		"127.0.0.1", "127.1.2.3", "[::1]", "localhost", "0.0.0.0", "[::]", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254", "[fd00::1]",
		"[fe80::1]", "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[2001:0:7f00:1::]", "224.0.0.1", "255.255.255.255", "192.0.0.1", "198.18.0.1",
		"[fd00:ec2::254]", "168.63.129.16", "[fd20:ce::254]", "100.100.100.200", "[::127.0.0.1]", "[::ffff:0:127.0.0.1]", "[64:ff9b:1::a00:1]", "[fec0::1]", "[fe80::1%25lo]",
		"[::1%25lo]", "[100::1]", "[5f00::1]", "[3fff::1]", "[ff02::1]", "①②⑦.⓪.⓪.①", "127。0。0。1", "ｌｏｃａｌｈｏｓｔ", "[2606:4700::1]",
	} {
		t.Run(host, func(t *testing.T) {
			s := serve(t, sqlite(t), webhook.Static{"a": {URL: "https://" + host + ":443/", Secrets: []webhook.Secret{secret}}}, func(cfg *webhook.Config, _ *outbox.Mode) {
				cfg.DenyNetworks = []netip.Prefix{netip.MustParsePrefix("2606:4700::/32")}
			})
			require.ErrorContains(t, s.deliver("a"), "prohibited IP address")
		})
	}
}

func TestANetworkIsAllowed(t *testing.T) {
	r := receive(t, nil)
	s := serve(t, sqlite(t), webhook.Static{"a": r.at("/")}, func(cfg *webhook.Config, _ *outbox.Mode) {
		r.trust(cfg)
		cfg.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	})
	require.ErrorContains(t, s.deliver("a"), "prohibited IP address")
	require.Empty(t, r.got)
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	other := receive(t, nil)
	r := receive(t, func(w http.ResponseWriter, q *http.Request) {
		http.Redirect(w, q, other.URL, http.StatusTemporaryRedirect)
	})
	s := serve(t, sqlite(t), webhook.Static{"a": r.at("/")}, func(cfg *webhook.Config, _ *outbox.Mode) { r.trust(cfg) })
	require.ErrorContains(t, s.deliver("a"), "answered 307 Temporary Redirect, and redirects are not followed")
	require.Empty(t, other.got)
}

func TestAnswersDecide(t *testing.T) {
	for name, c := range map[string]struct {
		status     int
		retryAfter string
		outcome    outbox.Outcome // zero: a failure
		delay      time.Duration
	}{
		"ok": {status: 200}, "accepted": {status: 202}, "no content": {status: 204},
		"bad request":    {status: 400},
		"gone":           {status: 410, outcome: outbox.OutcomeDead},
		"too many":       {status: 429},
		"wait":           {status: 429, retryAfter: "120", outcome: outbox.OutcomeDeferred, delay: 2 * time.Minute},
		"wait a moment":  {status: 503, retryAfter: "0", outcome: outbox.OutcomeDeferred, delay: time.Second},
		"wait for ever":  {status: 503, retryAfter: "999999999", outcome: outbox.OutcomeDeferred, delay: time.Hour},
		"wait until":     {status: 500, retryAfter: "Fri, 31 Dec 2100 23:59:59 GMT", outcome: outbox.OutcomeDeferred, delay: time.Hour},
		"wait, past":     {status: 500, retryAfter: "Fri, 31 Dec 1999 23:59:59 GMT", outcome: outbox.OutcomeDeferred, delay: time.Second},
		"wait, nonsense": {status: 503, retryAfter: "soon"}, "wait, negative": {status: 503, retryAfter: "-5"},
		"a bad request that says wait": {status: 400, retryAfter: "120"},
	} {
		t.Run(name, func(t *testing.T) {
			r := receive(t, func(w http.ResponseWriter, _ *http.Request) {
				if c.retryAfter != "" {
					w.Header().Set("Retry-After", c.retryAfter)
				}
				w.WriteHeader(c.status)
			})
			of := &endpoints{of: map[string]webhook.Endpoint{"a": r.at("/")}}
			s := serve(t, sqlite(t), of, func(cfg *webhook.Config, _ *outbox.Mode) { r.trust(cfg) })
			err := s.deliver("a")
			if c.status < 300 {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, fmt.Sprintf("answered %d", c.status))
			decided := new(outbox.OutcomeError)
			require.Equal(t, c.outcome != 0, errors.As(err, &decided))
			require.Equal(t, c.outcome, decided.Outcome)
			require.Equal(t, c.delay, decided.Delay)
			require.Equal(t, c.status == 410, len(of.disabled) > 0)
		})
	}
}

func TestAnEndpointThatIsGoneIsDisabled(t *testing.T) {
	r := receive(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	of := &endpoints{of: map[string]webhook.Endpoint{"a": r.at("/")}}
	s := serve(t, sqlite(t), of, func(cfg *webhook.Config, _ *outbox.Mode) { r.trust(cfg) }).start()
	s.write("1")
	s.until(1, "status = 3")
	require.Contains(t, of.disabled["a"], "answered 410 Gone")
	s.write("2")
	s.until(2, "event_type = 'OrderPlaced' AND status = 1")
	require.Equal(t, 1, s.count("event_type = 'webhook.delivery'"), "no delivery for an endpoint that is disabled")
	require.ErrorContains(t, s.deliver("a"), "the endpoint is disabled")

	of.err = errors.New("the table is away")
	of.change("a", func(e *webhook.Endpoint) { e.Disabled = false })
	err := s.deliver("a")
	require.ErrorContains(t, err, "disabling the endpoint: the table is away")
	require.False(t, errors.As(err, new(*outbox.OutcomeError)), "it is tried again")
}

func TestAPausedEndpointWaits(t *testing.T) {
	s := serve(t, sqlite(t), webhook.Static{"a": {Paused: true}}, nil).start()
	s.write("1")
	s.until(1, "event_type = 'webhook.delivery' AND status = 0 AND attempts = 0 AND last_error LIKE '%the endpoint is paused%'")
}

func TestWhatIsKeptOfAnAnswer(t *testing.T) {
	r := receive(t, func(w http.ResponseWriter, q *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprintf(w, "no\x1b[2J\n\xffway %s %s", q.Header.Get("Authorization"), strings.Repeat("x", 1<<20))
	})
	to := r.at("/hush-path?token=hush-query")
	to.Headers = map[string]string{"Authorization": "Bearer hush-hush"}
	s := serve(t, sqlite(t), webhook.Static{"a": to}, func(cfg *webhook.Config, _ *outbox.Mode) { r.trust(cfg) })
	err := s.deliver("a")
	require.ErrorContains(t, err, "answered 500 Internal Server Error: no [2J �way … xxxx")
	require.Less(t, len(err.Error()), 1_300)
	require.Equal(t, "Bearer hush-hush", r.next(t).header.Get("Authorization"))
	require.NotContains(t, err.Error(), "hush")
	require.False(t, strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' }))

	r.Close()
	require.NotContains(t, s.deliver("a").Error(), "hush", "a connection that fails")
	require.NotContains(t, s.log.String(), "hush")
}

// Many servers answer with the path that they do not know, or with the token that they do not accept.
func TestAnAnswerIsKeptWithoutTheSecretsOfTheRequest(t *testing.T) {
	for name, answer := range map[string]func(q *http.Request) string{
		"the path":               func(q *http.Request) string { return "Cannot POST " + q.URL.RequestURI() },
		"a part of the path":     func(*http.Request) string { return "unknown hook hush-path" },
		"a decoded part":         func(*http.Request) string { return "unknown hook hush/1 path" },
		"the query in HTML":      func(*http.Request) string { return "?a=1&amp;token=hush-query" },
		"a decoded query":        func(*http.Request) string { return "hush query" },
		"the token":              func(*http.Request) string { return "unknown token hush-hush" },
		"a signing secret":       func(*http.Request) string { return "I have " + string(secret) },
		"a secret that is cut":   func(*http.Request) string { return strings.Repeat("x", 1_020) + "hush-hush" },
		"many secrets, then cut": func(*http.Request) string { return strings.Repeat("hush-hush", 200) },
		"the other direction":    func(*http.Request) string { return "\u202ehush-hush\u200b" },
	} {
		t.Run(name, func(t *testing.T) {
			r := receive(t, func(w http.ResponseWriter, q *http.Request) {
				w.WriteHeader(http.StatusNotFound)
				_, _ = w.Write([]byte(answer(q)))
			})
			to := r.at("/v1/hush-path/hush%2F1%20path?a=1&token=hush-query&b=hush+query")
			to.Headers = map[string]string{"Authorization": "Bearer hush-hush"}
			s := serve(t, sqlite(t), webhook.Static{"a": to}, func(cfg *webhook.Config, _ *outbox.Mode) { r.trust(cfg) })
			err := s.deliver("a")
			require.ErrorContains(t, err, "answered 404")
			require.NotRegexp(t, "hu|MfKQ9r8G|\u202e|\u200b", err.Error())
			require.Less(t, len(err.Error()), 1_300)
		})
	}
}

// A receiver that answers 200 and then sends the body slowly is no failure, so no breaker pauses it.
func TestASuccessThatDripsHoldsNoWorker(t *testing.T) {
	r := receive(t, func(w http.ResponseWriter, q *http.Request) {
		for q.Context().Err() == nil {
			_, _ = w.Write([]byte("."))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-q.Context().Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	s := serve(t, sqlite(t), webhook.Static{"a": r.at("/")}, func(cfg *webhook.Config, _ *outbox.Mode) {
		r.trust(cfg)
		cfg.Timeout = 5 * time.Minute
	})
	require.NoError(t, s.deliver("a")) // the test would time out
}

func TestSecretsAreNotPrinted(t *testing.T) {
	to := webhook.Endpoint{URL: "https://hooks.example/hush?token=hush", Secrets: []webhook.Secret{"whsec_hush", "hush"}, Headers: map[string]string{"X": "hush"}}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "to", to, "secret", to.Secrets[0])
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "to", to, "secret", to.Secrets[0])
	asJSON, err := json.Marshal(to)
	for _, text := range []string{fmt.Sprint(to), fmt.Sprintf("%+v %#v %v %s %q", to, to, to.Secrets, to.Secrets[0], to.Secrets[1]), log.String(), string(asJSON), fmt.Sprint(err)} {
		require.NotContains(t, text, "hush")
	}
	require.Equal(t, "whsec_…", to.Secrets[0].String())
	require.Equal(t, "https://hooks.example", to.String())
}

func TestAReceiverThatDoesNotAnswerInTime(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"hangs": func(_ http.ResponseWriter, q *http.Request) {
			<-q.Context().Done()
			panic(http.ErrAbortHandler) // an answer could still arrive, and would be a success
		},
		"drips": func(w http.ResponseWriter, q *http.Request) {
			w.WriteHeader(http.StatusInternalServerError)
			for q.Context().Err() == nil {
				_, _ = w.Write([]byte("."))
				_ = http.NewResponseController(w).Flush()
			}
		},
		"resets": func(_ http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
		"lies": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = w.Write([]byte("short"))
			panic(http.ErrAbortHandler)
		},
		"huge headers": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Large", strings.Repeat("x", 1<<20)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := receive(t, answer)
			s := serve(t, sqlite(t), webhook.Static{"a": r.at("/")}, func(cfg *webhook.Config, _ *outbox.Mode) {
				r.trust(cfg)
				cfg.Timeout = 300 * time.Millisecond
			})
			require.Error(t, s.deliver("a"))
		})
	}
}

// The success of a request is in its status: what comes behind does not undo it.
func TestAnAnswerThatDoesNotEndIsASuccess(t *testing.T) {
	r := receive(t, func(w http.ResponseWriter, q *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-q.Context().Done()
	})
	s := serve(t, sqlite(t), webhook.Static{"a": r.at("/")}, func(cfg *webhook.Config, _ *outbox.Mode) {
		r.trust(cfg)
		cfg.Timeout = 300 * time.Millisecond
	})
	require.NoError(t, s.deliver("a"))
}

func TestASlowEndpointHoldsUpNoOther(t *testing.T) {
	release := make(chan struct{})
	r := receive(t, func(_ http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/slow" {
			<-release
		}
	})
	s := serve(t, sqlite(t), webhook.Static{"slow": r.at("/slow"), "fast": r.at("/fast")}, func(cfg *webhook.Config, _ *outbox.Mode) {
		r.trust(cfg)
		cfg.Timeout = 5 * time.Minute
		cfg.Rules = outbox.Rules{KeyConcurrency: 2}
	}).start()
	var orders []string
	for i := range 100 {
		orders = append(orders, strconv.Itoa(i))
	}
	s.write(orders...)
	slow := 0
	for fast := 0; fast < len(orders); {
		if r.next(t).at == "/fast" {
			fast++
		} else {
			slow++
		}
	}
	require.LessOrEqual(t, slow, 2, "KeyConcurrency")
	close(release)
}

// Endpoints that hang have all workers. The requests without a place are given up, and a good endpoint gets its
// event while the other requests hang on.
func TestEndpointsThatHangHoldUpNoOther(t *testing.T) {
	const workers = 4
	for name, mode := range map[string]outbox.Mode{
		"multi-node":     outbox.MultiNode{Poll: outbox.PollOptions{Interval: 50 * time.Millisecond}},
		"ordered by key": outbox.OrderedByKey{Dispatch: outbox.DispatchOptions{Workers: workers}, Poll: outbox.PollOptions{Interval: 50 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			r := receive(t, func(_ http.ResponseWriter, q *http.Request) {
				if q.URL.Path == "/good" {
					return
				}
				select {
				case <-release:
				case <-q.Context().Done():
					panic(http.ErrAbortHandler) // an answer could still arrive, and would be a success
				}
			})
			defer close(release)
			of := &endpoints{of: map[string]webhook.Endpoint{}}
			for i := range 8 {
				id := fmt.Sprintf("away-%d", i)
				of.of[id] = r.at("/" + id)
			}
			_, ordered := mode.(outbox.OrderedByKey)
			s := serve(t, sqlite(t), of, func(cfg *webhook.Config, m *outbox.Mode) {
				r.trust(cfg)
				cfg.Timeout = 5 * time.Minute
				cfg.OrderedByKey, cfg.SlowRequests = ordered, workers/2
				if !ordered {
					cfg.Rules.Concurrency = workers
				}
				*m = mode
			})
			s.hooks.LateAfter(300 * time.Millisecond)
			s.start()
			s.write("1", "2", "3")
			for range workers {
				require.Contains(t, r.next(t).at, "/away")
			}
			of.change("good", func(to *webhook.Endpoint) { *to = r.at("/good") })
			s.write("4")
			for arrived := ""; arrived != "/good"; {
				arrived = r.next(t).at
			}
			s.until(1, "aggregate_id = 'good' AND status = 1")
			require.Positive(t, s.count("last_error LIKE '%the request was given up%'"))
			require.Zero(t, s.count("attempts > 0"))
		})
	}
}

func TestAnEndpointInOrder(t *testing.T) {
	failed := map[string]bool{}
	r := receive(t, func(w http.ResponseWriter, q *http.Request) {
		if id := q.Header.Get("webhook-id"); !failed[id] { // one request at a time
			failed[id] = true
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	s := serve(t, sqlite(t), webhook.Static{"a": r.at("/")}, func(cfg *webhook.Config, mode *outbox.Mode) {
		r.trust(cfg)
		cfg.OrderedByKey = true
		cfg.Rules.RetryPolicy = outbox.RetryPolicyFunc(func(int) time.Duration { return time.Millisecond })
		*mode = outbox.OrderedByKey{Poll: outbox.PollOptions{Interval: 50 * time.Millisecond}}
	}).start()
	var want, got []string
	for i := range 5 {
		want = append(want, s.write(strconv.Itoa(i))...)
		s.until(i+1, "event_type = 'webhook.delivery'")
	}
	for range 10 {
		got = append(got, r.next(t).header.Get("webhook-id"))
	}
	require.Equal(t, want, slices.Compact(got))
}

func TestABodyOfOnesOwn(t *testing.T) {
	r := receive(t, nil)
	s := serve(t, sqlite(t), webhook.Static{"a": r.at("/")}, func(cfg *webhook.Config, _ *outbox.Mode) {
		r.trust(cfg)
		cfg.Body = func(outbox.Envelope) (outbox.Payload, error) { return outbox.Bytes("text/plain", "hello"), nil }
	}).start()
	s.write("1")
	q := r.next(t)
	require.Equal(t, "hello", q.body)
	require.Equal(t, "text/plain", q.header.Get("Content-Type"))

	same, err := webhook.Body(outbox.Envelope{Payload: outbox.Bytes("application/x-protobuf", "\x01\xff")})
	require.NoError(t, err)
	require.Equal(t, "application/x-protobuf", same.ContentType())
	require.Equal(t, "\x01\xff", string(same.Bytes()))
}

// The body has more bytes than the payload of an event may have, now and at each attempt.
func TestABodyThatIsTooLongIsDeadAtOnce(t *testing.T) {
	r := receive(t, nil)
	s := serve(t, sqlite(t), webhook.Static{"a": r.at("/")}, func(cfg *webhook.Config, _ *outbox.Mode) { r.trust(cfg) }).start()
	require.NoError(t, s.writeAll(t.Context(), []outbox.Envelope{orderPlaced.Envelope("1", map[string]string{"note": strings.Repeat("x", outbox.MaxPayloadBytes-20)})}))
	s.until(1, "status = 3 AND last_error LIKE '%Payload is 1%bytes long%'")
}

func TestConfigurationsThatAreWrong(t *testing.T) {
	_, err := webhook.New(webhook.Config{SlowRequests: -1, Timeout: time.Hour, MaxRetryAfter: time.Millisecond, AllowNetworks: make([]netip.Prefix, 1), DenyNetworks: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}})
	for _, text := range []string{
		"webhook.Config.Endpoints is nil", "webhook.Config.Write is nil", "webhook.Config.Timeout is 1h0m0s", "webhook.Config.MaxRetryAfter is 1ms",
		"webhook.Config.SlowRequests is -1; it must be positive, or zero for half of the workers",
		"webhook.Config.AllowNetworks has a network that is not valid",
		"webhook.Config.DenyNetworks has a network that is not valid",
	} {
		require.ErrorContains(t, err, text)
	}
	require.ErrorAs(t, err, new(*outbox.FieldError))
}

func TestTheScheduleTakesThreeDays(t *testing.T) {
	var least, most time.Duration
	for attempt := 1; attempt <= 9; attempt++ {
		d := webhook.Schedule.Delay(attempt)
		least, most = least+d*10/11, most+d
	}
	require.Greater(t, least, 68*time.Hour)
	require.Less(t, most, 85*time.Hour)
	require.Equal(t, webhook.Schedule.Delay(0) < 6*time.Second, true)
	require.GreaterOrEqual(t, webhook.Schedule.Delay(1000), 24*time.Hour)
}

// Many requests to one host at once, as of endpoints at the same provider, use as many connections: a
// connection for each request would cost a TLS handshake for each.
func TestRequestsToAHostUseTheirConnectionsAgain(t *testing.T) {
	t.Parallel()
	const atOnce, each = 32, 10
	var mu sync.Mutex
	from := map[string]bool{} // the client's address of each connection
	r := receive(t, func(_ http.ResponseWriter, q *http.Request) {
		mu.Lock()
		from[q.RemoteAddr] = true
		mu.Unlock()
		time.Sleep(5 * time.Millisecond)
	})
	s := serve(t, sqlite(t), webhook.Static{"a": r.at("/a"), "b": r.at("/b")}, func(cfg *webhook.Config, _ *outbox.Mode) { r.trust(cfg) })
	var senders sync.WaitGroup
	for i := range atOnce {
		senders.Go(func() {
			for range each {
				assert.NoError(t, s.deliver([]string{"a", "b"}[i%2]))
			}
		})
	}
	senders.Wait()
	require.LessOrEqual(t, len(from), 2*atOnce, "connections for %d requests", atOnce*each)
}
