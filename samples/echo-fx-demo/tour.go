package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/httptx"
)

// tour starts the service, sends requests, and prints the result for each order and for the event
// of the order. An unexpected result is an error.
func tour(settings Settings, provider trace.TracerProvider) (err error) {
	if settings.DataDir == "" {
		if settings.DataDir, err = os.MkdirTemp("", "echo-fx-demo"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(settings.DataDir)) }()
	}
	settings.Addr = "127.0.0.1:0"
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the failures are intended
	defer slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	var srv *server
	app := newApp(settings, provider, fx.Populate(&srv))
	if err := start(app); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Printf("A service on %s, with %s, gets these requests:\n\n", srv.url(), srv.where)
	guide := &guide{ctx: ctx, url: srv.url(), password: settings.Password, party: rand.Text()[:6]}
	guide.line("request", "answer", "order", "event")
	if err = guide.walk(); err == nil {
		fmt.Println("\nmake serve keeps the service running: its outbox has a page at http://localhost:8080/outbox/")
	}
	return errors.Join(err, stop(app))
}

// guide walks through the service.
type guide struct {
	ctx      context.Context // the tour is a single call
	url      string
	password string
	party    string // part of the customers' names, so that another tour's orders do not count
}

// stopover is a request of the tour and the expected result.
type stopover struct {
	what     string
	path     string // with the query
	body     string // CUSTOMER stands for the name
	status   int
	orders   int
	delivers int    // the number of deliveries
	attempt  int    // of the delivery; 0: any
	dead     bool   // the event ends as a dead letter, and is replayed
	answers  string // must be in the answer's body
	again    bool   // the connection is cut before the answer, and the order is sent twice more with the same key
}

const anOrder = `{"customer":"CUSTOMER","item":"tea","quantity":2}`

var stopovers = []stopover{
	{what: "an order", path: "/orders", body: anOrder, status: 201, orders: 1, delivers: 1, attempt: 1, answers: "event_id"},
	{what: "three orders in one transaction", path: "/orders/bulk", body: `{"customer":"CUSTOMER","item":"mate","quantity":1,"n":3}`, status: 201, orders: 3, delivers: 3, attempt: 1},
	{what: "one whose handler fails", path: "/orders?simulate=handler-error", body: anOrder, status: 500, answers: "the handler failed"},
	{what: "one whose handler panics", path: "/orders?simulate=panic", body: anOrder, status: 500, answers: "nothing was saved"},
	{what: "one whose commit fails", path: "/orders?simulate=commit-failure", body: anOrder, status: 500, answers: "did not commit"},
	{what: "one whose listener fails twice", path: "/orders?simulate=listener-error", body: anOrder, status: 201, orders: 1, delivers: 1, attempt: 3},
	{what: "one that its listener rejects", path: "/orders?simulate=listener-dead", body: anOrder, status: 201, orders: 1, delivers: 1, dead: true},
	{what: "one sent again and again, by key", path: "/orders", body: anOrder, status: 201, orders: 1, delivers: 1, again: true},
	{what: "one without a quantity", path: "/orders", body: `{"customer":"CUSTOMER","item":"tea"}`, status: 400, answers: "quantity"},
}

func (g *guide) walk() error {
	var errs []error
	for i, s := range stopovers {
		if err := g.visit(s, fmt.Sprintf("%s-%d", g.party, i)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.what, err))
		}
	}
	// Check again, now that there was time for deliveries that must not happen.
	for i, s := range stopovers {
		if got := len(g.deliveries(fmt.Sprintf("%s-%d", g.party, i))); got != s.delivers {
			errs = append(errs, fmt.Errorf("%s: %d deliveries, not %d", s.what, got, s.delivers))
		}
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Printf("\nUnexpected results:\n%v\n", err)
		return errors.New("the tour failed")
	}
	fmt.Println("\nEvery order that was saved has its event delivered, and no other.")
	return nil
}

func (g *guide) line(what string, answer any, order, event string) {
	fmt.Printf("  %-33s %-7v %-8s %s\n", what, answer, order, event)
}

func (g *guide) visit(s stopover, customer string) error {
	status, answer, err := g.place(s, strings.ReplaceAll(s.body, "CUSTOMER", customer))
	if err != nil {
		return err
	}
	if status != s.status || !strings.Contains(answer, s.answers) {
		return fmt.Errorf("answered %d %s; want %d with %q", status, answer, s.status, s.answers)
	}
	if got := g.orders(customer); got != s.orders {
		return fmt.Errorf("%d orders are in the table, not %d", got, s.orders)
	}
	order := fmt.Sprint(s.orders, " saved")
	if s.orders == 0 {
		g.line(s.what, status, "none", "none")
		return nil
	}
	if s.dead {
		reason, err := g.replay(answer)
		if err != nil {
			return err
		}
		g.line(s.what, status, order, "dead: "+reason)
		s.what, status, order = "  replayed by an operator", 200, ""
	}
	var got []Delivery
	if !g.eventually(func() bool { got = g.deliveries(customer); return len(got) >= s.delivers }) {
		return fmt.Errorf("%d deliveries, not %d", len(got), s.delivers)
	}
	if s.attempt != 0 && got[0].Attempt != s.attempt {
		return fmt.Errorf("delivered at attempt %d, not %d", got[0].Attempt, s.attempt)
	}
	g.line(s.what, status, order, fmt.Sprintf("delivered at attempt %d, %.1f ms after it was placed", got[0].Attempt, got[0].LatencyMS))
	return nil
}

// place sends the order, by key if the order is to be sent again.
func (g *guide) place(s stopover, body string) (status int, answer string, err error) {
	if !s.again {
		return g.call(http.MethodPost, s.path, body)
	}
	key := rand.Text()
	request, err := g.request(http.MethodPost, s.path, body)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set(httptx.KeyHeader, key)
	conn, err := new(net.Dialer).DialContext(g.ctx, "tcp", request.URL.Host)
	if err != nil {
		return 0, "", err
	}
	if err := errors.Join(request.Write(conn), conn.Close()); err != nil { // the order may be placed or not
		return 0, "", err
	}
	var first string
	for range 2 {
		if request, err = g.request(http.MethodPost, s.path, body); err != nil {
			return 0, "", err
		}
		request.Header.Set(httptx.KeyHeader, key)
		if status, answer, err = g.do(request); err != nil {
			return 0, "", err
		}
		if first == "" {
			first = answer
		}
	}
	if answer != first {
		return 0, "", fmt.Errorf("the same key was answered %s, and then %s", first, answer)
	}
	return status, answer, nil
}

// replay waits until the event is dead, replays it, and returns why it died.
func (g *guide) replay(answer string) (reason string, err error) {
	var order placed
	if err := json.Unmarshal([]byte(answer), &order); err != nil {
		return "", err
	}
	path := "/admin/outbox/dead-letters/" + order.EventID
	var letter struct {
		LastError string `json:"last_error"`
	}
	if !g.eventually(func() bool { return g.get(path, &letter) == nil }) {
		return "", errors.New("the event did not become a dead letter")
	}
	status, text, err := g.call(http.MethodPost, path+"/replay", "")
	if err == nil && status >= http.StatusMultipleChoices {
		err = fmt.Errorf("replaying answered %d %s", status, text)
	}
	return letter.LastError, err
}

func (g *guide) orders(customer string) (n int) {
	var found struct{ Orders []Order }
	if g.get("/orders?limit=1000", &found) != nil {
		return -1
	}
	for _, o := range found.Orders {
		if o.Customer == customer {
			n++
		}
	}
	return n
}

func (g *guide) deliveries(customer string) (own []Delivery) {
	var found struct{ Deliveries []Delivery }
	if g.get("/deliveries?limit=1000", &found) != nil {
		return nil
	}
	for _, d := range found.Deliveries {
		if d.Customer == customer {
			own = append(own, d)
		}
	}
	return own
}

func (g *guide) eventually(condition func() bool) bool {
	for range 1000 {
		if condition() {
			return true
		}
		select {
		case <-g.ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}

func (g *guide) get(path string, v any) error {
	status, answer, err := g.call(http.MethodGet, path, "")
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("GET %s answered %d %s", path, status, answer)
	}
	return json.Unmarshal([]byte(answer), v)
}

func (g *guide) call(method, path, body string) (status int, answer string, err error) {
	request, err := g.request(method, path, body)
	if err != nil {
		return 0, "", err
	}
	return g.do(request)
}

func (g *guide) request(method, path, body string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(g.ctx, method, g.url+path, bytes.NewBufferString(body))
	if err != nil {
		return nil, err
	}
	request.SetBasicAuth(adminUser, g.password)
	request.Header.Set("Content-Type", "application/json")
	return request, nil
}

func (g *guide) do(request *http.Request) (status int, answer string, err error) {
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, strings.TrimSpace(string(text)), err
}
