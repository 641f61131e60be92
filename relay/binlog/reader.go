package binlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/internal/logread"
	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// Run follows the log and publishes until ctx ends; then Run returns nil. When the connection fails, Run
// connects again. While another process of the reader's name follows the log, Run waits. Run returns an
// error if trying again is no use: [ErrNoPosition], [ErrPositionLost] and [ErrNotSetUp].
//
// Run calls Publish with a context that ends with ctx. Events that Publish has not published then are
// published by the next reader.
func (r *Reader) Run(ctx context.Context) error {
	return r.out.Run(ctx, logread.Loop{
		Follow: r.follow, Final: final, Name: slog.String("reader", r.cfg.Name),
		InUse: func(err error) bool { return errors.Is(err, errInUse) },
	})
}

// follow connects and follows the log until something fails.
func (r *Reader) follow(ctx context.Context) error {
	// A server that is silent must not hold up the start, as it must not hold up the stream.
	starting, cancel := context.WithTimeout(ctx, silence*r.cfg.Keepalive)
	defer cancel()
	s, err := r.connect(starting)
	if err != nil {
		return err
	}
	defer s.close()
	tables, err := s.check(starting)
	if err != nil {
		return err
	}
	if err := s.lock(starting); err != nil {
		return err
	}
	// A process that is gone without a word does not keep the lock.
	if _, err := s.conn.ExecContext(starting, fmt.Sprintf("SET SESSION wait_timeout = %d", int((silence*r.cfg.Keepalive).Seconds()))); err != nil {
		return fmt.Errorf("binlog: taking the lock: %w", err)
	}
	was, err := s.load(starting)
	if err != nil {
		return err
	}
	from, err := parsePosition(s.mariadb, was.GTIDs)
	if err != nil {
		return fmt.Errorf("binlog: reading the position: %w", err)
	}
	d, err := s.dump(starting, r.cfg.ServerID, from, tables)
	if err != nil {
		return err
	}
	defer d.close()
	r.out.Logger.InfoContext(ctx, "cdc: the reader follows the log", "reader", r.cfg.Name)
	begin := mark{from, time.Unix(was.At, 0)}
	t := &stream{r: r, session: s, dump: d, seen: begin, done: mark{from.clone(), begin.at}, storedAs: was, heard: time.Now()}
	defer r.report(ctx, s, tables)()
	return t.run(ctx)
}

// report begins to report the reader in the control table of each table. The server does not say how many
// bytes of its log are after the position.
func (r *Reader) report(ctx context.Context, s *session, tables map[string]bool) (end func()) {
	var stores []outbox.Store
	for _, table := range slices.Sorted(maps.Keys(tables)) {
		stores = append(stores, sqlstore.MySQL(sqlstore.WithTable(table)))
	}
	return r.out.Report(ctx, logread.Report{
		Owner: "binlog " + r.cfg.Name, DB: s.db, Stores: stores, Whole: &r.whole, Name: slog.String("reader", r.cfg.Name),
		Lag: func(context.Context) outbox.LogLag { return outbox.LogLag{Behind: -1, Kept: -1, Left: -1} },
	})
}

// mark is a position, and when the last transaction before it committed.
type mark struct {
	position
	at time.Time
}

// stream publishes the rows of a dump, and stores the position. A goroutine publishes a batch, while the next batch is read.
type stream struct {
	r       *Reader
	session *session
	dump    *dump

	batch []logread.Event // not being published yet
	bytes int             // of the batch
	open  bool            // the transaction of the last row has not ended in the log
	// seen is the position up to which each event is published, being published, or in the batch.
	seen mark
	// sent is the value of done when the batch that is being published is published.
	sent mark
	done mark // each event before this position is published

	published chan error // how publishing a batch ended; nil while no batch is being published

	news     bool      // events were published after the position was stored
	stored   time.Time // when the position was stored on this connection
	storedAs stored
	heard    time.Time // when the session last answered
}

const (
	// storeEvery is how often the position is stored while events are published. The first events of a
	// connection are stored at once, so that a connection that does not last brings the reader on.
	storeEvery = time.Second
	// storeIdle is how often the position is stored while the log has other transactions, so that the server
	// does not delete the log after the position. The store before is such a transaction.
	storeIdle = time.Minute
)

// run follows the stream until something fails or ctx ends. When run returns, no batch is being published.
func (t *stream) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer t.end(ctx)
	defer cancel()
	tick := time.NewTicker(storeEvery)
	defer tick.Stop()
	for {
		full := len(t.batch) >= t.r.out.BatchSize || t.bytes >= t.r.out.BatchBytes
		if t.published == nil && len(t.batch) > 0 && (full || !t.open && len(t.dump.messages) == 0) {
			t.handOver(ctx)
			full = false
		}
		messages := t.dump.messages
		if full {
			messages = nil // the server keeps the rest of the log
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m, open := <-messages:
			if !open {
				return t.ended(ctx)
			}
			t.take(m)
		case err := <-t.published:
			t.published = nil
			if err != nil {
				return err
			}
			t.done, t.news = t.sent, true
			if time.Since(t.stored) >= storeEvery {
				if err := t.keep(ctx); err != nil {
					return err
				}
			}
		case <-tick.C:
			if t.published == nil && len(t.batch) == 0 && len(t.dump.messages) == 0 {
				t.r.whole.Now()
			}
			if err := t.keep(ctx); err != nil {
				return err
			}
		}
	}
}

// ended returns why the dump has ended. Before an error that trying again does not correct, the events that
// were read are published: after the way out they may be in no log.
func (t *stream) ended(ctx context.Context) error {
	err := fmt.Errorf("binlog: following the log: %w", t.session.serverError(t.dump.err))
	for final(err) && (t.published != nil || len(t.batch) > 0) {
		if t.published == nil {
			t.handOver(ctx)
		}
		if failed := <-t.published; failed != nil { // ctx has ended
			t.published = nil
			return failed
		}
		t.published, t.done, t.news = nil, t.sent, true
	}
	return err
}

// take takes a message.
func (t *stream) take(m message) {
	if len(m.rows) > 0 && len(t.batch) == 0 && t.published == nil {
		t.done = mark{t.seen.clone(), t.seen.at}
	}
	t.batch = append(t.batch, m.rows...)
	for i := range m.rows {
		t.bytes += m.rows[i].Size()
	}
	t.open = m.gtid == nil
	if m.gtid != nil {
		t.seen.add(m.gtid)
		t.seen.at = m.at
	}
}

// handOver begins to publish the batch, at most BatchSize events of it.
func (t *stream) handOver(ctx context.Context) {
	batch, result := t.batch, make(chan error, 1)
	t.batch, t.bytes, t.sent, t.published = make([]logread.Event, 0, min(len(batch), t.r.out.BatchSize)), 0, mark{t.seen.clone(), t.seen.at}, result
	go func() { result <- t.r.publishAll(ctx, batch) }()
}

// publishAll publishes a batch. The rows of an event of the log may be more than BatchSize.
func (r *Reader) publishAll(ctx context.Context, batch []logread.Event) error {
	for len(batch) > 0 {
		n := r.next(batch)
		if err := r.out.All(ctx, batch[:n:n]); err != nil {
			return err
		}
		batch = batch[n:]
	}
	return nil
}

// next is how many events of a list the next call of Publish gets.
func (r *Reader) next(list []logread.Event) (n int) {
	for bytes := 0; n < min(len(list), r.out.BatchSize); n++ {
		if bytes += list[n].Size(); n > 0 && bytes > r.out.BatchBytes {
			break
		}
	}
	return n
}

// current is the position to store.
func (t *stream) current() mark {
	if t.published == nil && len(t.batch) == 0 {
		return t.seen
	}
	return t.done
}

// keep stores the position if it is time, and lets the server hear from the session.
func (t *stream) keep(ctx context.Context) error {
	ctx, cancel := outlive(ctx, silence*t.r.cfg.Keepalive)
	defer cancel()
	if t.news || time.Since(t.stored) >= storeIdle {
		if err := t.store(ctx, t.current()); err != nil {
			return err
		}
	}
	if time.Since(t.heard) < t.r.cfg.Keepalive {
		return nil
	}
	t.heard = time.Now()
	if err := t.session.conn.PingContext(ctx); err != nil {
		return fmt.Errorf("binlog: keeping the lock: %w", err)
	}
	return nil
}

// goodbye is how long a store of the position may take after the end of the reader's context. A store that is
// cancelled would end the session, and events would be published again.
const goodbye = 5 * time.Second

// outlive returns a context that ends after a limit, or after the goodbye when ctx has ended.
func outlive(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(goodbye, cancel) })
	return longer, func() { stop(); cancel() }
}

// store stores the position, unless it is stored.
func (t *stream) store(ctx context.Context, at mark) error {
	now := stored{at.String(), at.at.Unix()}
	if now != t.storedAs {
		if err := t.session.store(ctx, now); err != nil {
			return err
		}
		t.storedAs, t.heard = now, time.Now()
	}
	t.stored, t.news = time.Now(), false
	return nil
}

// end waits for the batch that is being published, and stores what is published.
func (t *stream) end(ctx context.Context) {
	at := t.current()
	if t.published != nil && <-t.published == nil {
		t.published, t.done, t.news = nil, t.sent, true
		at = t.current()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	if t.news {
		_ = t.store(ctx, at) // else the next reader publishes some events again
	}
}
