package faultrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/proof/checker"
)

// Clients send requests with keys to the processes of a run that serve requests. Clients repeat a
// request at any of these processes, also while it is still running, and cut connections off before,
// during and after the answer. Clients are for one goroutine; Answered is for all goroutines.
type Clients struct {
	run      *Run
	log      *checker.Log
	http     *http.Client
	calls    atomic.Int64
	answered atomic.Int64
	mu       sync.Mutex
	keys     []string // the keys that were sent
}

// Things that requests ask for. Most requests with a key ask for tea.
const (
	tea    = "tea"
	coffee = "coffee"
)

// NewClients makes the clients of a run.
func (r *Run) NewClients() (*Clients, error) {
	log, err := checker.Create(r.Dir, "clients")
	if err != nil {
		return nil, err
	}
	return &Clients{run: r, log: log, http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}, nil
}

// Answered is how many answers the clients got.
func (c *Clients) Answered() int64 { return c.answered.Load() }

// Send has n clients send the requests of keys, each client a number of keys, or until ctx ends if the
// number is zero. pace is the time between two keys of a client.
func (c *Clients) Send(ctx context.Context, n, keys int, pace time.Duration) {
	var all sync.WaitGroup
	for client := range n {
		all.Go(func() {
			for i := 0; (keys == 0 || i < keys) && ctx.Err() == nil; i++ {
				c.send(ctx, fmt.Sprintf("%s-%d-%d", Secrets[3], client, i))
				pause(ctx, pace)
			}
		})
	}
	all.Wait()
}

// send sends the requests of a key. After a success a client may repeat the request, and after some
// failures a client gives up until [Clients.Finish].
func (c *Clients) send(ctx context.Context, key string) {
	c.mu.Lock()
	c.keys = append(c.keys, key)
	c.mu.Unlock()
	var unread sync.WaitGroup // answers that the client does not wait for
	defer unread.Wait()
	for tries := 1 + rand.N(6); tries > 0 && ctx.Err() == nil; tries-- {
		asks, how := tea, cut{}
		if often(10) {
			asks = coffee
		}
		if often(60) {
			how = randomCut()
		}
		if often(20) { // the next request is sent while this request is running
			unread.Go(func() { c.try(ctx, key, asks, how) })
			continue
		}
		if answer := c.try(ctx, key, asks, how); answer.Succeeded() {
			tries = min(tries, 1+rand.N(3))
		}
	}
}

func often(percent int) bool { return rand.N(100) < percent }

// Finish repeats the request of each key until it succeeds, or until ctx ends.
func (c *Clients) Finish(ctx context.Context) {
	keys := make(chan string)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for key := range keys {
				c.insist(ctx, key)
			}
		})
	}
	for _, key := range c.keys {
		keys <- key
	}
	close(keys)
	all.Wait()
}

// insist repeats the request of a key until it succeeds. When a different request has the key, insist
// repeats that request.
func (c *Clients) insist(ctx context.Context, key string) {
	for asks := tea; ctx.Err() == nil; {
		switch answer := c.try(ctx, key, asks, cut{}); {
		case answer.Succeeded():
			return
		case answer.Status == http.StatusUnprocessableEntity && asks == tea:
			asks = coffee
		case answer.Status == http.StatusUnprocessableEntity:
			asks = tea
		case answer.Status == http.StatusConflict && answer.Replayed:
			return // the request was done; the checker judges the answer
		default:
			pause(ctx, 10*time.Millisecond)
		}
	}
}

// try sends a request to any of the servers, and records the answer.
func (c *Clients) try(ctx context.Context, key, asks string, how cut) checker.Request {
	request := checker.Request{Key: key, Asks: asks}
	record := checker.Record{Op: checker.OpSent, Call: c.calls.Add(1), Request: &request}
	c.log.Add(record)
	answer, err := c.answer(ctx, request, how)
	record.Op, record.Request = checker.OpAnswered, &answer
	if err != nil {
		record.Error = err.Error()
	} else {
		c.answered.Add(1)
	}
	c.log.Add(record)
	return answer
}

// patient is the longest that a client waits for an answer.
const patient = 8 * time.Second

// answer is the request with the answer. An answer that did not arrive as a whole is none.
func (c *Clients) answer(ctx context.Context, of checker.Request, how cut) (checker.Request, error) {
	servers := c.run.servers()
	if len(servers) == 0 {
		pause(ctx, 20*time.Millisecond)
		return of, errors.New("no process serves requests")
	}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, cutKey{}, how), time.Second+rand.N(patient-time.Second))
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+servers[rand.N(len(servers))]+"/orders", strings.NewReader(of.Asks))
	if err != nil {
		return of, err
	}
	r.Header.Set(httptx.KeyHeader, of.Key)
	response, err := c.http.Do(r)
	if err != nil {
		return of, err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return of, err
	}
	return answered(of, response.StatusCode, response.Header, body), nil
}

// answered is a request with the answer.
func answered(r checker.Request, status int, header http.Header, body []byte) checker.Request {
	r.Status, r.Replayed = status, header.Get(httptx.ReplayedHeader) == "true"
	if r.Succeeded() {
		r.Answer = string(body)
	}
	return r
}

// cut is how a connection is cut off; the zero cut is none.
type cut struct {
	place cutPlace
	after int  // bytes of the request, or of the answer
	reset bool // the server gets a reset instead of the end of the data
}

// cutPlace is where a connection is cut off.
type cutPlace int

const (
	inRequest cutPlace = iota + 1 // after some bytes of the request
	whenSent                      // after the request
	inAnswer                      // after some bytes of the answer
	cutPlaces = int(inAnswer)
)

func randomCut() cut {
	return cut{cutPlace(1 + rand.N(cutPlaces)), 1 + rand.N(150), often(50)}
}

type cutKey struct{}

// dial opens a connection that is cut off as the context says.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	how, _ := ctx.Value(cutKey{}).(cut)
	if err != nil || how.place == 0 {
		return conn, err
	}
	return &cutConn{Conn: conn, cut: how}, nil
}

// cutConn is a connection that is cut off; after counts down.
type cutConn struct {
	net.Conn
	cut
}

var errCut = errors.New("the client has cut the connection off")

func (c *cutConn) cutOff() error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok && c.reset {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
	return errCut
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.place == inRequest && len(b) > c.after {
		n, err := c.Conn.Write(b[:c.after])
		return n, errors.Join(err, c.cutOff())
	}
	n, err := c.Conn.Write(b)
	if c.place == whenSent {
		err = errors.Join(err, c.cutOff())
	}
	return n, err
}

func (c *cutConn) Read(b []byte) (int, error) {
	if c.place != inAnswer {
		return c.Conn.Read(b)
	}
	if c.after == 0 {
		return 0, c.cutOff()
	}
	n, err := c.Conn.Read(b[:min(c.after, len(b))])
	c.after -= n
	return n, err
}
