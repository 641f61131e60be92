package webtest

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/internal/testing/adaptertest"
	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// big is longer than the default buffer.
var big = strings.Repeat("success ", 200_000)

var file = fstest.MapFS{"file.txt": {Data: []byte("success of a file")}}

func write(w http.ResponseWriter, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

// forms are the forms of a response that succeeds.
var forms = map[string]Handler{
	"created": func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Location", "/orders/1")
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusCreated)
		return write(w, "success")
	},
	"implicit":   func(w http.ResponseWriter, _ *http.Request) error { return write(w, "success") },
	"no content": func(w http.ResponseWriter, _ *http.Request) error { w.WriteHeader(http.StatusNoContent); return nil },
	"nothing":    func(http.ResponseWriter, *http.Request) error { return nil },
	"redirect": func(w http.ResponseWriter, r *http.Request) error {
		http.Redirect(w, r, "/orders/1", http.StatusSeeOther)
		return nil
	},
	"set late": func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("X-Early", "1")
		w.WriteHeader(http.StatusCreated)
		err := write(w, "success")
		w.Header().Set("X-Late", "1")
		w.Header().Set("Content-Type", "text/late")
		w.Header().Del("X-Early")
		return err
	},
	"trailer": func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Trailer", "Checksum")
		err := write(w, "success")
		w.Header().Set("Checksum", "42")
		return err
	},
	"prefixed trailer": func(w http.ResponseWriter, _ *http.Request) error {
		if err := write(w, "success"); err != nil {
			return err
		}
		err := http.NewResponseController(w).Flush()
		w.Header().Set(http.TrailerPrefix+"Checksum", "42")
		return err
	},
	"overflow": func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", "text/plain")
		return write(w, big)
	},
	"stream": func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", "text/plain")
		_, err := io.Copy(w, strings.NewReader(big))
		return err
	},
	"flush": func(w http.ResponseWriter, _ *http.Request) error {
		if err := write(w, "success"); err != nil {
			return err
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return err
		}
		return write(w, "success")
	},
	"flush whose error is ignored": func(w http.ResponseWriter, _ *http.Request) error {
		_ = write(w, "success")
		w.(http.Flusher).Flush()
		_ = write(w, "success")
		return nil
	},
	"flush at once": func(w http.ResponseWriter, _ *http.Request) error {
		return http.NewResponseController(w).Flush()
	},
	"file": func(w http.ResponseWriter, r *http.Request) error {
		http.ServeFileFS(w, r, file, "file.txt")
		return nil
	},
}

// forms are the forms of a response that the framework has.
func (fw Framework) forms() map[string]Handler {
	own := maps.Clone(forms)
	maps.DeleteFunc(own, func(name string, _ Handler) bool {
		return fw.Buffered && (strings.Contains(name, "flush") || strings.Contains(name, "trailer"))
	})
	return own
}

// The response is sent after the commit, whatever its form.
func successAfterCommit(t *testing.T, fw Framework) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		s, log := openShop(t, sqlite()), &journal{}
		routes := map[string]Handler{}
		for name, form := range fw.forms() {
			routes[path(name)] = s.placing(form)
		}
		config := s.config()
		config.Transactor = watched{s.adapter, log.add}
		server := serve(t, protocol, spied(log.add, fw.New(t, App{Transactions: []httptx.TransactionConfig{config}, Routes: routes})))
		placed := 0
		for name := range fw.forms() {
			for _, method := range []string{http.MethodPost, http.MethodHead} {
				response, err := server.client.Do(server.request(method, path(name), nil))
				require.NoError(t, err)
				placed++
				s.wantPlaced(placed) // as soon as the client has the status
				_, err = io.Copy(io.Discard, response.Body)
				require.NoError(t, err, name)
				require.NoError(t, response.Body.Close())
				require.Less(t, response.StatusCode, 400, name)
				server.wait()
				require.Equal(t, []string{"begin", "commit", "committed"}, log.take()[:3], name)
			}
		}
	})
}

// Nothing of a success is sent when the commit fails, whatever its form.
func failedCommit(t *testing.T, fw Framework) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		testdb.Each(t, committing(), func(t *testing.T, db *testdb.DB) {
			s := shopOn(t, db)
			routes := map[string]Handler{}
			for name, form := range fw.forms() {
				routes[path(name)] = s.placing(func(w http.ResponseWriter, r *http.Request) error {
					if err := s.doom(r); err != nil {
						return err
					}
					w.Header().Set("Set-Cookie", "success=1")
					return form(w, r)
				})
			}
			server := serve(t, protocol, fw.New(t, s.app(routes)))
			var rollbacks []string
			for name := range fw.forms() {
				got := server.post(path(name))
				got.is(t, http.StatusInternalServerError, "not committed")
				for _, header := range []string{"Set-Cookie", "Location", "X-Early", "X-Late", "Trailer"} {
					require.Empty(t, got.Header.Get(header), name)
				}
				require.Empty(t, got.Trailer, name)
				rollbacks = append(rollbacks, "rollback")
				s.want(0, rollbacks...)
			}
		})
	})
}

// The connection to the database breaks during COMMIT: the row is there, and the answer does not
// say so.
func lostAnswer(t *testing.T, fw Framework) {
	servers := []testdb.Target{adaptertest.Main()[0], adaptertest.Main()[1]}
	testdb.Each(t, servers, func(t *testing.T, direct *testdb.DB) {
		adaptertest.Exec(t, direct.DB, "CREATE TABLE orders (id INT)", "CREATE TABLE written (id VARCHAR(64) NOT NULL PRIMARY KEY)")
		proxied, cuts := direct.CutCommits(t)
		writer, record := adaptertest.WriterWithoutTable(t, proxied.DB, string(direct.Kind))
		s := &shop{t, direct.DB, direct.Kind, writer, record, adaptertest.Adapter(t, proxied.DB, writer)}
		server := serve(t, "HTTP1", fw.New(t, s.app(map[string]Handler{"/": s.placing(forms["created"])})))
		server.post("/").is(t, http.StatusInternalServerError, "unknown")
		require.Equal(t, int32(1), cuts.Load())
		s.want(1, "unknown")
	})
}

// Status, headers, trailers and body are the same as without the middleware.
func sameResponses(t *testing.T, fw Framework) {
	eachProtocol(t, func(t *testing.T, protocol string) {
		s := openShop(t, sqlite())
		with := map[string]Handler{}
		for name, form := range fw.forms() {
			with[path(name)] = s.placing(form)
		}
		without := map[string]Handler{}
		for name, form := range fw.forms() {
			without[path(name)] = form
		}
		plain := serve(t, protocol, fw.New(t, App{Routes: without}))
		held := serve(t, protocol, fw.New(t, s.app(with)))
		requests := 0
		for name := range fw.forms() {
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodHead} {
				want, got := plain.send(method, path(name), "Range", "bytes=3-6"), held.send(method, path(name), "Range", "bytes=3-6")
				require.NoError(t, want.err)
				require.NoError(t, got.err)
				for _, header := range []http.Header{want.Header, got.Header} {
					header.Del("Date")
				}
				require.Equal(t, want.StatusCode, got.StatusCode, name)
				require.Equal(t, want.Header, got.Header, "%s %s", method, name)
				require.Equal(t, want.Trailer, got.Trailer, name)
				require.True(t, want.body == got.body, "%s: %.80q", name, got.body)
				requests++
				require.Len(t, s.record.Outcomes(), requests)
			}
		}
		require.NotContains(t, s.record.Outcomes(), "rollback")
	})
}
