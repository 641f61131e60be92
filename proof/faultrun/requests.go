package faultrun

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/idempotency"
	"github.com/outboxkit/outbox-go/proof/checker"
)

func newKeys(db *sql.DB, spec Spec) *idempotency.Keys {
	return must(idempotency.New(idempotency.Config{DB: db, Dialect: idempotency.Dialect(dialect(spec.Driver)), Wait: spec.KeyWait}))
}

// executions numbers the executions of requests.
var executions atomic.Int64

// execution is a request whose handler was called, or will be called.
type execution struct {
	id  string // of the transaction; empty until the handler is called
	err error  // why the request was not done
}

type executionKey struct{}

// handler executes requests with keys, each in a transaction; nil without Spec.Requests. The answer is
// the transaction's id, which no other execution has.
func (n *node) handler() http.Handler {
	if !n.Requests {
		return nil
	}
	inTx := must(httptx.TransactionConfig{
		Transactor: n.adapter,
		Idempotency: &httptx.Idempotency{
			Keys: newKeys(n.pools.db, n.Spec), Use: func(*http.Request) httptx.KeyUse { return httptx.KeyRequired },
		},
		ErrorHandler: fail,
		Logger:       slog.Default(),
	}.ToMiddleware())(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := n.execute(r); err != nil {
			fail(w, r, err)
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, executionOf(r).id)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &execution{}
		inTx.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), executionKey{}, x)))
		if x.id != "" {
			n.log.Add(ended(x.id, x.err))
		}
	})
}

func executionOf(r *http.Request) *execution { return r.Context().Value(executionKey{}).(*execution) }

// fail answers a request that was not done, and notes why.
func fail(w http.ResponseWriter, r *http.Request, err error) {
	executionOf(r).err = err
	http.Error(w, "the request was not done", http.StatusInternalServerError)
}

// execute writes an order with its events in the transaction of the request.
func (n *node) execute(r *http.Request) error {
	asks, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	tx, ok := n.adapter.TxFrom(r.Context())
	if !ok {
		return errors.New("the request has no transaction")
	}
	id := fmt.Sprintf("%s-r%d", n.Process, executions.Add(1))
	executionOf(r).id = id
	n.log.Add(checker.Record{Op: checker.OpHandled, Tx: id, Request: &checker.Request{
		Key: r.Header.Get(httptx.KeyHeader), Asks: string(asks),
	}})
	if n.crash != nil {
		_, err = n.stepOrder(r.Context(), id, crashStep{types: []string{Plain}}, sqlTx{n, tx})
	} else {
		err = n.orderWithOnce(r.Context(), id, sqlTx{n, tx})
	}
	if err != nil {
		return err
	}
	if n.chance("roll back", id) < n.RollBack {
		return errRolledBack
	}
	n.log.Add(checker.Record{Op: checker.OpCommit, Tx: id})
	return nil
}

func (n *node) orderWithOnce(ctx context.Context, id string, tx transaction) error {
	events, err := n.order(ctx, id, tx)
	if err != nil {
		return err
	}
	return n.once(ctx, id, "", tx, events[0])
}

// shuttingDown is how long requests have to end when the process ends.
const shuttingDown = 30 * time.Second

// serve serves requests until the function shutDown is called.
func (n *node) serve() (shutDown func()) {
	if n.orders == nil || n.crash != nil {
		return func() {}
	}
	listener := must(new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0"))
	server := &http.Server{Handler: n.orders, ReadHeaderTimeout: time.Minute}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(err)
		}
	}()
	fmt.Println(Serving + listener.Addr().String())
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), shuttingDown)
		defer cancel()
		_ = server.Shutdown(ctx)
	}
}
