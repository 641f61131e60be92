package webtest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// moments are the moments at which a client is killed, in their order, and whether the order is
// placed when the server has noticed: -1 means either.
var moments = []struct {
	name   string
	placed int
}{
	{"begin", 0},
	{"before the order", 0},
	{"after the order", 0},
	{"after the event", 0},
	{"after the answer", 0},
	{"commit", -1}, // the middleware has asked for the context's end already
	{"committed", 1},
	{"while the response is sent", 1},
}

// A client that is killed at any moment leaves an order with its event, or neither. If the client
// saw a success, the order and the event are there.
func killedClient(t *testing.T, fw Framework) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		testdb.Each(t, committing(), func(t *testing.T, db *testdb.DB) {
			s := shopOn(t, db)
			placed := 0
			for _, moment := range moments {
				for _, notices := range []bool{true, false} {
					name := moment.name
					before := placed
					status := killAt(t, fw, s, protocol, name, notices)
					orders, events := s.counts()
					require.Equal(t, orders, events, name)
					placed = orders
					if status < 400 && status > 0 {
						require.Equal(t, before+1, placed, "%s: the client saw a success", name)
					}
					if notices && moment.placed >= 0 {
						require.Equal(t, before+moment.placed, placed, name)
					}
				}
			}
		})
	})
}

// long is a body that no socket's buffers hold.
var long = strings.Repeat(big, 10)

// killAt sends a request whose client is killed at this moment, and returns the status that the
// client saw, or zero. The handler goes on at once, or after the server has noticed.
func killAt(t *testing.T, fw Framework, s *shop, protocol, moment string, notices bool) int {
	t.Helper()
	var server *server
	var request context.Context
	at := func(name string) {
		if name != moment {
			return
		}
		server.kill()
		if notices && request != nil {
			select {
			case <-request.Done():
			case <-time.After(30 * time.Second):
				t.Error("the server has not noticed that the client was killed")
			}
		}
	}
	const whileSent = "while the response is sent"
	body := "success"
	if moment == whileSent {
		body = long
	}
	config := s.config()
	config.Transactor, config.MaxBuffer = watched{s.adapter, at}, len(long)
	server = serve(t, protocol, outermost(&request, fw.New(t, App{
		Transactions: []httptx.TransactionConfig{config},
		Routes: map[string]Handler{"/": func(w http.ResponseWriter, r *http.Request) error {
			at("before the order")
			tx, ok := s.adapter.TxFrom(r.Context())
			if !ok {
				return errors.New("the transaction has ended")
			}
			if _, err := tx.ExecContext(r.Context(), "INSERT INTO orders (id) VALUES (1)"); err != nil {
				return err
			}
			at("after the order")
			if err := s.write(r); err != nil {
				return err
			}
			at("after the event")
			w.WriteHeader(http.StatusCreated)
			err := write(w, body)
			at("after the answer")
			return err
		}},
	})))
	status := 0
	response, err := server.client.Do(server.request(http.MethodPost, "/", nil))
	if err == nil {
		status = response.StatusCode
		if moment == whileSent {
			_, err := io.CopyN(io.Discard, response.Body, 1000)
			require.NoError(t, err)
			server.kill()
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	server.wait()
	return status
}

// outermost keeps the context of the request as the server made it.
func outermost(request *context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*request = r.Context() //nolint:fatcontext // the test waits for this context.
		next.ServeHTTP(w, r)
	})
}

// A client that does not read the response holds no connection of the pool after the commit.
func slowClient(t *testing.T, fw Framework) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		testdb.Each(t, committing(), func(t *testing.T, db *testdb.DB) {
			s := shopOn(t, db)
			s.db.SetMaxOpenConns(1)
			committed := make(chan struct{})
			config := s.config()
			config.MaxBuffer = len(long)
			config.Transactor = watched{s.adapter, func(event string) {
				if event == "committed" {
					close(committed)
				}
			}}
			server := serve(t, protocol, fw.New(t, App{
				Transactions: []httptx.TransactionConfig{config},
				Routes: map[string]Handler{"/": s.placing(func(w http.ResponseWriter, _ *http.Request) error {
					return write(w, long)
				})},
			}))
			response, err := server.client.Do(server.request(http.MethodPost, "/", nil))
			require.NoError(t, err)
			defer func() { _ = response.Body.Close() }()
			<-committed
			s.want(1, "commit") // with the pool's only connection
			require.Zero(t, s.db.Stats().InUse)
			require.Empty(t, server.ended, "the response is still being sent")
			body, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Len(t, body, len(long))
		})
	})
}

// With ReadBody a client that sends the body slowly holds no transaction, and the handler reads the
// body as it was sent.
func slowSender(t *testing.T, fw Framework) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		s, log := openShop(t, sqlite()), &journal{}
		config := s.config()
		config.ReadBody, config.Transactor = 10, watched{s.adapter, log.add}
		arrived, begun := make(chan struct{}), -1
		var once sync.Once
		app := fw.New(t, App{
			Transactions: []httptx.TransactionConfig{config},
			Routes: map[string]Handler{"/": s.placing(func(w http.ResponseWriter, r *http.Request) error {
				body, err := io.ReadAll(r.Body)
				return errors.Join(err, write(w, string(body)))
			})},
		})
		server := serve(t, protocol, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = reading{r.Body, func() { once.Do(func() { close(arrived) }) }}
			app.ServeHTTP(w, r)
		}))
		reader, writer := io.Pipe()
		go func() {
			_, _ = io.WriteString(writer, "01234")
			<-arrived // the server has these bytes, and waits for more
			begun = len(log.take())
			_, _ = io.WriteString(writer, "56789 and more")
			_ = writer.Close()
		}()
		got := server.do(server.request(http.MethodPost, "/", reader))
		got.is(t, http.StatusOK, "0123456789 and more")
		require.Zero(t, begun, "transactions that wait for the client")
		s.want(1, "commit")
	})
}

// reading is a body that reports each read.
type reading struct {
	io.ReadCloser
	read func()
}

func (r reading) Read(b []byte) (int, error) {
	n, err := r.ReadCloser.Read(b)
	if n > 0 {
		r.read()
	}
	return n, err
}

// Each of many requests has its own transaction.
func concurrent(t *testing.T, fw Framework) {
	testdb.Each(t, adaptertest.Main(), func(t *testing.T, db *testdb.DB) {
		adaptertest.Exec(t, db.DB, "CREATE TABLE orders (id INT)")
		writer, record := adaptertest.Writer(t, db.DB, string(db.Kind))
		s := &shop{t, db.DB, db.Kind, writer, record, adaptertest.Adapter(t, db.DB, writer)}
		server := serve(t, "HTTP2", fw.New(t, s.app(map[string]Handler{
			"/good":  s.placing(forms["created"]),
			"/error": s.placing(func(http.ResponseWriter, *http.Request) error { return errTest }),
			"/panic": s.placing(func(w http.ResponseWriter, _ *http.Request) error {
				_ = write(w, "success")
				panic("boom")
			}),
		})))
		const rounds = 8
		fates := map[string]int{"/good": 201, "/error": 500, "/panic": 500}
		results := make(chan bool)
		for fate, status := range fates {
			for range rounds {
				request := server.request(http.MethodPost, fate, nil)
				go func() {
					response, err := server.client.Do(request)
					if err == nil {
						err = response.Body.Close()
					}
					results <- err == nil && response.StatusCode == status
				}()
			}
		}
		for range rounds * len(fates) {
			require.True(t, <-results)
		}
		s.wantPlaced(rounds)
	})
}
