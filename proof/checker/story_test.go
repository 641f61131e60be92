package checker_test

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/proof/checker"
)

// lease is that of all stories, and step the time between two of their records.
const (
	lease = 100 * time.Millisecond
	step  = time.Millisecond

	expires = time.Minute
	delay   = 50 * time.Millisecond
)

// story builds a history record by record. The first letter of an event's id says what it
// is: e has one listener; m has two, mail and stock; o has an effect that happens once;
// k1, k2 … are the events of one key, and k1-late is delayed; u1, u2 … have the same unique key;
// x1, x2 … are the events of one key, and expire after the time expires; n has endless attempts;
// w is due after the time delay, and can be taken back; l1, l2 … are states of one unique key.
type story struct {
	h    checker.History
	now  time.Time
	call int64
	open map[string][]checker.Record // deliveries under way, by process and target
	// failed are the attempts of each target.
	failed map[string]int
	// contents are the contents of events that were replaced.
	contents map[string]string
}

// tell begins a story in a mode.
func tell(mode string) *story {
	return &story{
		now: time.Unix(1_700_000_000, 0), open: map[string][]checker.Record{}, failed: map[string]int{}, contents: map[string]string{},
		h: checker.History{
			Promise: checker.Promise{
				Mode: mode, MaxAttempts: 3, Lease: lease,
				Expires: map[string]time.Duration{"x": expires}, Endless: map[string]bool{"n": true},
				Listeners: map[string][]string{"m": {"mail", "stock"}}, Once: map[string]bool{"o": true},
			},
			Orders: map[string]bool{}, Rows: map[checker.Target]checker.Row{}, Effects: map[checker.Target]int{},
		},
	}
}

// target reads "m1/mail" as event m1 and listener mail.
func target(text string) checker.Target {
	event, listener, _ := strings.Cut(text, "/")
	return checker.Target{Event: event, Listener: listener}
}

func events(ids []string) (events []checker.Event) {
	for _, id := range ids {
		e := checker.Event{ID: id, Type: id[:1]}
		if e.Type == "k" {
			e.Key, e.Seq, e.Delayed = "k", int(id[1]-'0'), strings.HasSuffix(id, "-late")
		}
		if e.Type == "x" {
			e.Key, e.Seq = "x", int(id[1]-'0')
		}
		if e.Type == "b" { // "b1a" and "b1b" have the key "b1"
			e.Key, e.Seq = id[:2], int(id[2])
		}
		if e.Type == "u" {
			e.Unique = "u"
		}
		if e.Type == "l" {
			e.Unique, e.Latest = "l", true
		}
		events = append(events, e)
	}
	return events
}

func (s *story) add(r checker.Record) *story {
	if r.At.IsZero() {
		s.now = s.now.Add(step)
		r.At = s.now
	}
	s.h.Records = append(s.h.Records, r)
	return s
}

func (s *story) wait(d time.Duration) *story {
	s.now = s.now.Add(d)
	return s
}

// write writes events in a transaction that goes on.
func (s *story) write(tx string, ids ...string) *story {
	written := events(ids)
	for i := range written {
		if written[i].Type == "x" {
			written[i].Occurred = s.now
		}
		if written[i].Type == "w" {
			written[i].Due = s.now.Add(delay)
		}
	}
	return s.add(checker.Record{Process: "w", Op: checker.OpWrite, Tx: tx, Events: written})
}

// ended ends a transaction, as its writer sees it.
func (s *story) ended(tx string, op checker.Op) *story {
	return s.add(checker.Record{Process: "w", Op: op, Tx: tx})
}

// keptOut is a transaction that commits, and whose event another event keeps out.
func (s *story) keptOut(tx, id, by string) *story {
	return s.write(tx, id).add(checker.Record{Process: "w", Op: checker.OpKeptOut, Tx: tx, Events: events([]string{id}), Event: by}).
		ended(tx, checker.OpCommit).ended(tx, checker.OpCommitted).stands(tx)
}

// changes is a transaction that changes events, and goes on.
func (s *story) changes(tx string, c checker.Change, ids ...string) *story {
	for _, id := range ids {
		if c.Content != "" && c.Changed > 0 {
			s.contents[id] = c.Content
		}
		if c.Does == checker.Cancel && c.Changed == len(ids) {
			s.noRow(id)
		}
	}
	return s.add(checker.Record{Process: "w", Op: checker.OpChanged, Tx: tx, Events: events(ids), Change: &c})
}

// changed is a transaction that changes events, and commits.
func (s *story) changed(tx string, c checker.Change, ids ...string) *story {
	return s.changes(tx, c, ids...).ended(tx, checker.OpCommit).ended(tx, checker.OpCommitted).stands(tx)
}

// cancelled is a transaction that cancels an event, and commits.
func (s *story) cancelled(tx, id string) *story {
	return s.changed(tx, checker.Change{Does: checker.Cancel, Changed: 1}, id)
}

// moved is a transaction that makes an event due after a time from now on, and commits.
func (s *story) moved(tx, id string, after time.Duration) *story {
	return s.changed(tx, checker.Change{Does: checker.Reschedule, Changed: 1, Due: s.now.Add(after)}, id)
}

// replaced is a transaction that replaces the content of an event by that of another, and commits.
func (s *story) replaced(tx, id, content string) *story {
	return s.changed(tx, checker.Change{Does: checker.Replace, Changed: 1, Content: content}, id)
}

// latest is a transaction whose event replaces the event that waits with the same unique key.
func (s *story) latest(tx, id, replaces string) *story {
	return s.write(tx, id).add(checker.Record{Process: "w", Op: checker.OpKeptOut, Tx: tx, Events: events([]string{id}), Event: replaces}).
		changed(tx, checker.Change{Does: checker.Replace, Changed: 1, Content: id, Only: true}, replaces)
}

// stands puts the order's row into the table, and the events' rows as DONE.
func (s *story) stands(tx string, ids ...string) *story {
	s.h.Orders[tx] = true
	for _, id := range ids {
		s.row(id, checker.Row{Status: "DONE"})
		if id[0] == 'o' {
			s.effects(id, 1)
		}
	}
	return s
}

// commit is a transaction that commits, and whose events are DONE at the end.
func (s *story) commit(tx string, ids ...string) *story {
	return s.write(tx, ids...).ended(tx, checker.OpCommit).ended(tx, checker.OpCommitted).stands(tx, ids...)
}

// expired is an event whose row becomes DEAD as expired.
func (s *story) expired(id string) *story {
	return s.add(checker.Record{Process: "database", Op: checker.OpExpired, Events: rows([]string{id})}).
		row(id, checker.Row{Status: "DEAD", LastError: "expired: not delivered within 1m0s after it occurred"})
}

func (s *story) row(to string, row checker.Row) *story {
	s.h.Rows[target(to)] = row
	return s
}

// dead is a DEAD row after all attempts.
func (s *story) dead(to string) *story {
	return s.row(to, checker.Row{Status: "DEAD", Attempts: 3, LastError: "the listener failed"})
}

func (s *story) noRow(to string) *story {
	delete(s.h.Rows, target(to))
	return s
}

func (s *story) effects(to string, n int) *story {
	s.h.Effects[target(to)] = n
	return s
}

func (s *story) begin(process, to string) *story {
	s.call++
	t := target(to)
	r := checker.Record{Process: process, Op: checker.OpBegan, Event: t.Event, Listener: t.Listener, Call: s.call, Attempt: s.failed[to]}
	if to[0] == 'w' || to[0] == 'l' {
		if r.Content = s.contents[to]; r.Content == "" {
			r.Content = to
		}
	}
	s.open[process+" "+to] = append(s.open[process+" "+to], r)
	return s.add(r)
}

// counts adds attempts to a target for which there was no delivery.
func (s *story) counts(to string, n int) *story {
	s.failed[to] += n
	return s
}

func (s *story) end(process, to, result string) *story {
	open := s.open[process+" "+to]
	r := open[0]
	s.open[process+" "+to] = open[1:]
	r.Op, r.Result, r.At = checker.OpEnded, result, time.Time{}
	if result == checker.Failed {
		s.failed[to]++
	}
	return s.add(r)
}

// try is a delivery with a result.
func (s *story) try(process, to, result string) *story {
	return s.begin(process, to).end(process, to, result)
}

// done are successful deliveries, one after the other.
func (s *story) done(process string, to ...string) *story {
	for _, t := range to {
		s.try(process, t, checker.Done)
	}
	return s
}

// fails are several deliveries that fail.
func (s *story) fails(process, to string, n int) *story {
	for range n {
		s.try(process, to, checker.Failed)
	}
	return s
}

// fault does something to a process for a time from now on.
func (s *story) fault(kind, process string, d time.Duration) *story {
	from := s.now.Add(step)
	s.add(checker.Record{Process: process, Op: checker.OpFault, Fault: kind, At: from, Until: from.Add(d)})
	s.now = from
	return s
}

// pauses is what a process has learned of the types that are paused.
func (s *story) pauses(process string, types ...string) *story {
	return s.add(checker.Record{Process: process, Op: checker.OpPauses, Types: types})
}

func (s *story) draining(process string) *story {
	return s.add(checker.Record{Process: process, Op: checker.OpDraining})
}

// drained ends a Drain of at most three events.
func (s *story) drained(process string, done, failed int) *story {
	return s.add(checker.Record{Process: process, Op: checker.OpDrained, Drained: &checker.Drained{Most: 3, Done: done, Failed: failed}})
}

func (s *story) closed(process, err string) *story {
	return s.add(checker.Record{Process: process, Op: checker.OpClosed, Error: err})
}

// rows are the ids of dead letters: of events, and of their listeners.
func rows(of []string) (ids []checker.Event) {
	for _, to := range of {
		id := to
		if t := target(to); t.Listener != "" {
			sum := sha256.Sum256([]byte(t.Event + "\x00" + t.Listener))
			id = base32.HexEncoding.EncodeToString(sum[:20])
		}
		ids = append(ids, checker.Event{ID: id})
	}
	return ids
}

func (s *story) replayed(of ...string) *story {
	return s.add(checker.Record{Process: "operator", Op: checker.OpReplayed, Events: rows(of)})
}

func (s *story) deleted(of ...string) *story {
	return s.add(checker.Record{Process: "operator", Op: checker.OpDeleted, Events: rows(of)})
}

func (s *story) restored(of ...string) *story {
	return s.add(checker.Record{Process: "operator", Op: checker.OpRestored, Events: rows(of)})
}

// promise changes what the run promises.
func (s *story) promise(change func(*checker.Promise)) *story {
	change(&s.h.Promise)
	return s
}

// handled is an execution of the request with the key, in the transaction tx, which ends as
// op says.
func (s *story) handled(key, tx, asks string, op checker.Op) *story {
	s.add(checker.Record{Process: "w", Op: checker.OpHandled, Tx: tx, Request: &checker.Request{Key: key, Asks: asks}})
	s.ended(tx, op)
	s.h.Orders[tx] = op == checker.OpCommitted
	return s
}

// asked is a request that a client sends, and the answer.
func (s *story) asked(key, asks string, status int, answer string, replayed bool) *story {
	r := checker.Request{Key: key, Asks: asks}
	s.add(checker.Record{Process: "clients", Op: checker.OpSent, Request: &r})
	answered := r
	answered.Status, answered.Answer, answered.Replayed = status, answer, replayed
	return s.add(checker.Record{Process: "clients", Op: checker.OpAnswered, Request: &answered})
}
