package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/adapters/sqltx"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// durations are measured concurrently.
type durations struct {
	mu   sync.Mutex
	list []time.Duration
}

func (d *durations) add(took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, took)
}

// take returns a text of the durations so far, and forgets them.
func (d *durations) take() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.list
	d.list = nil
	if len(list) == 0 {
		return "none"
	}
	slices.Sort(list)
	return fmt.Sprintf("%d, median %s, p95 %s, p99 %s, max %s", len(list), ms(list[len(list)/2]), ms(list[len(list)*95/100]), ms(list[len(list)*99/100]), ms(list[len(list)-1]))
}

type placed struct {
	At time.Time `json:"at"`
}

// service is an outbox that delivers, and a writer that commits 50 transactions a second.
type service struct {
	outbox              *outbox.Outbox
	commits, deliveries durations
	failed              durations
	pool                *sql.DB
	adapter             *sqltx.Adapter
	topic               outbox.Topic[placed]
	writing             sync.WaitGroup
}

func startService(ctx context.Context, db *sql.DB, store *sqlstore.Store) (*service, error) {
	s := &service{pool: db, topic: outbox.NewTopic[placed]("Load", "Placed")}
	var err error
	if s.outbox, err = outbox.New(outbox.Config{DB: db, Store: store, Mode: outbox.MultiNode{}, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	err = s.outbox.Register(s.topic.Listen(func(_ context.Context, p placed, _ outbox.Envelope) error {
		s.deliveries.add(time.Since(p.At))
		return nil
	}))
	if err != nil {
		return nil, err
	}
	if s.adapter, err = sqltx.New(db, s.outbox.Writer()); err != nil {
		return nil, err
	}
	return s, s.outbox.Start(ctx)
}

// write commits transactions until ctx ends.
func (s *service) write(ctx context.Context) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			s.writing.Wait()
			return
		}
		s.writing.Go(func() {
			began := time.Now()
			err := s.adapter.RunInTx(context.WithoutCancel(ctx), nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := s.adapter.Write(ctx, tx, s.topic.Envelope("key", placed{began}))
				return err
			})
			if err != nil {
				s.failed.add(time.Since(began))
				return
			}
			s.commits.add(time.Since(began))
		})
	}
}

// gauge is the maximum of each figure that is sampled.
type gauge struct {
	heap, inUse uint64
	open, used  int
	goroutines  int
}

func (g *gauge) sample(ctx context.Context, db *sql.DB) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for ctx.Err() == nil {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		stats := db.Stats()
		g.heap, g.inUse = max(g.heap, m.HeapAlloc), max(g.inUse, m.HeapInuse)
		g.open, g.used = max(g.open, stats.OpenConnections), max(g.used, stats.InUse)
		g.goroutines = max(g.goroutines, runtime.NumGoroutine())
		<-ticker.C
	}
}

// load sends requests of many clients at once, beside a service that writes and delivers events.
func load(ctx context.Context, o options, db *sql.DB, store *sqlstore.Store) error {
	if err := prepare(ctx, db, store); err != nil {
		return err
	}
	svc, err := startService(ctx, db, store)
	if err != nil {
		return err
	}
	defer func() { _ = svc.outbox.Close(ctx) }()
	s, err := newSite(svc.outbox, o.readers)
	if err != nil {
		return err
	}
	list, err := s.requests(ctx, db, svc.outbox)
	if err != nil {
		return err
	}
	server := httptest.NewServer(s)
	server.Config.RegisterOnShutdown(s.page.EndStreams)
	ends, end := context.WithCancel(ctx)
	defer end()
	go svc.write(ends)
	phase := func(name string, clients int, length time.Duration) {
		var g gauge
		before := db.Stats()
		runtime.GC()
		until, stop := context.WithTimeout(ends, length)
		defer stop()
		go g.sample(until, db)
		l := loaded{server: server.URL, list: list, slow: map[string]time.Duration{}, statuses: map[string]*durations{}, streams: map[int]int{}}
		l.run(until, clients)
		after := db.Stats()
		fmt.Printf("\n%s: %d clients, pool of %d\nrequests per status:\n", name, clients, o.conns)
		for _, status := range slices.Sorted(maps.Keys(l.statuses)) {
			fmt.Printf("  %s: %s\n", status, l.statuses[status].take())
		}
		fmt.Printf("streams per status: %v\n", l.streams)
		for _, page := range slices.SortedFunc(maps.Keys(l.slow), func(a, b string) int { return int(l.slow[b] - l.slow[a]) })[:min(len(l.slow), 5)] {
			fmt.Printf("  slowest: %s %s\n", page, ms(l.slow[page]))
		}
		fmt.Printf("peak heap: %.1f MiB in objects, %.1f MiB in use; most goroutines %d; connections: %d open, %d in use; waits for a connection: %d, %s\n",
			float64(g.heap)/(1<<20), float64(g.inUse)/(1<<20), g.goroutines, g.open, g.used, after.WaitCount-before.WaitCount, after.WaitDuration-before.WaitDuration)
		fmt.Printf("service: commits %s\n  deliveries %s\n  failed %s\n", svc.commits.take(), svc.deliveries.take(), svc.failed.take())
	}
	phase("before", 0, o.time/4)
	phase("load", o.clients, o.time)
	end()
	svc.writing.Wait()
	s.page.EndStreams()
	server.CloseClientConnections()
	server.Close()
	return nil
}

// loaded has the answers that the clients got.
type loaded struct {
	server   string
	list     []request
	mu       sync.Mutex
	statuses map[string]*durations
	slow     map[string]time.Duration
	streams  map[int]int
}

func (l *loaded) run(ctx context.Context, clients int) {
	var all sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * clients}}
	defer client.CloseIdleConnections()
	for i := range clients {
		all.Go(func() { l.stream(ctx, client, i) })
		all.Go(func() {
			for ctx.Err() == nil {
				l.ask(ctx, client, l.list[rand.IntN(len(l.list))], i) //nolint:gosec // not a secret
			}
		})
	}
	<-ctx.Done()
	all.Wait()
}

// stream opens a live overview and reads it to its end.
func (l *loaded) stream(ctx context.Context, client *http.Client, user int) {
	sent, err := http.NewRequestWithContext(ctx, http.MethodGet, l.server+"/page/shop/live", nil)
	if err != nil {
		return
	}
	sent.Header.Set("X-User", fmt.Sprint("user-", user))
	got, err := client.Do(sent)
	if err != nil {
		return
	}
	l.mu.Lock()
	l.streams[got.StatusCode]++
	l.mu.Unlock()
	_, _ = io.Copy(io.Discard, got.Body)
	_ = got.Body.Close()
}

func (l *loaded) ask(ctx context.Context, client *http.Client, r request, user int) {
	sent, err := r.to(context.WithoutCancel(ctx), l.server)
	if err != nil {
		return
	}
	sent.Header.Set("X-User", fmt.Sprint("user-", user))
	if r.form != nil { // the token is that of a user without a name
		sent.Header.Del("X-User")
	}
	began := time.Now()
	got, err := client.Do(sent)
	status := "error"
	if err == nil {
		_, err = io.Copy(io.Discard, got.Body)
		status = errors.Join(err, errors.New(fmt.Sprint(got.StatusCode))).Error()
		_ = got.Body.Close()
	}
	took := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.statuses[status] == nil {
		l.statuses[status] = &durations{}
	}
	l.statuses[status].add(took)
	l.slow[r.name] = max(l.slow[r.name], took)
}
