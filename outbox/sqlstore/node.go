package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// nodeKept is how long the row of a node that died stays.
const nodeKept = time.Hour

// nodeRow is the value of a row of the control table, in which a node reports.
type nodeRow struct {
	Mode     string    `json:"mode"`
	Version  string    `json:"version,omitempty"`
	Started  time.Time `json:"started"`
	LastPoll time.Time `json:"last_poll,omitzero"`
	Hot      int       `json:"hot"`
	Cold     int       `json:"cold"`
	Leases   int       `json:"leases,omitzero"`
	Totals   *totals   `json:"totals,omitempty"`
	// The kinds are pairs of aggregate type and event type.
	Kinds   [][2]string `json:"kinds,omitzero"`
	Unheard [][2]string `json:"unheard,omitempty"`
	// MaxDueAges are limits of lateness.
	MaxDueAges []ageRow `json:"max_due_ages,omitempty"`
	// Log are the fields of an [outbox.LogLag], in their order.
	Log *[3]int64 `json:"log,omitempty"`
	// For is how long the report counts, in microseconds: the report ends at expires_at.
	For int64 `json:"for"`
}

// ageRow is how long an event of a kind may be due, in microseconds.
type ageRow struct {
	Kind [2]string `json:"kind"`
	Age  int64     `json:"age"`
}

// totals are an [outbox.Totals].
type totals struct {
	Written   int64   `json:"written"`
	Delivered int64   `json:"delivered"`
	Failed    int64   `json:"failed"`
	Latencies []int64 `json:"latencies,omitempty"`
	// Kinds are deliveries by kind.
	Kinds []kindTotals `json:"kinds,omitempty"`
}

// kindTotals are an [outbox.KindTotals].
type kindTotals struct {
	Kind      [2]string `json:"kind"`
	Delivered int64     `json:"delivered"`
	Failed    int64     `json:"failed,omitempty"`
}

// totalsOf and public convert totals; nil stays nil.
func totalsOf(t *outbox.Totals) *totals {
	if t == nil {
		return nil
	}
	row := &totals{Written: t.Written, Delivered: t.Delivered, Failed: t.Failed, Latencies: t.Latencies}
	for _, k := range t.Kinds {
		row.Kinds = append(row.Kinds, kindTotals{pairsOf([]outbox.EventKind{k.Kind})[0], k.Delivered, k.Failed})
	}
	return row
}

func (t *totals) public() *outbox.Totals {
	if t == nil {
		return nil
	}
	p := &outbox.Totals{Written: t.Written, Delivered: t.Delivered, Failed: t.Failed, Latencies: t.Latencies}
	for _, k := range t.Kinds {
		p.Kinds = append(p.Kinds, outbox.KindTotals{Kind: kindsOf([][2]string{k.Kind})[0], Delivered: k.Delivered, Failed: k.Failed})
	}
	return p
}

// Announce implements [outbox.Store].
func (s *Store) Announce(ctx context.Context, db outbox.DB, node outbox.Node, d time.Duration) error {
	const what = "reporting a node"
	value, err := json.Marshal(nodeRow{
		node.Mode, node.Version, node.Started.UTC(), node.LastPoll.UTC(), node.HotDepth, node.ColdDepth, node.Leases, totalsOf(node.Totals),
		pairsOf(node.Kinds), pairsOf(node.Unheard), agesOf(node.MaxDueAges), logOf(node.Log), d.Microseconds(),
	})
	if err != nil {
		return s.fail(what, err)
	}
	q := s.query(256)
	q.add("INSERT INTO ").control(s).add(" (kind, name, value, expires_at) VALUES ('node', ").arg(node.Owner).add(", ").arg(string(value)).
		add(", ").fromNow(d).add(")").orReplace("value", "expires_at")
	if _, err = s.changed(ctx, func() (int, error) { return s.exec(ctx, db, what, q) }); err != nil {
		return err
	}
	return s.forgetEnded(ctx, db)
}

// pairsOf and kindsOf keep nil apart from an empty list.
func pairsOf(kinds []outbox.EventKind) (pairs [][2]string) {
	if kinds != nil {
		pairs = make([][2]string, len(kinds))
	}
	for i, kind := range kinds {
		pairs[i] = [2]string{string(kind.AggregateType), string(kind.EventType)}
	}
	return pairs
}

func kindsOf(pairs [][2]string) (kinds []outbox.EventKind) {
	if pairs != nil {
		kinds = make([]outbox.EventKind, len(pairs))
	}
	for i, pair := range pairs {
		kinds[i] = outbox.EventKind{AggregateType: outbox.AggregateType(pair[0]), EventType: outbox.EventType(pair[1])}
	}
	return kinds
}

func agesOf(ages []outbox.KindAge) (rows []ageRow) {
	for _, a := range ages {
		rows = append(rows, ageRow{pairsOf([]outbox.EventKind{a.Kind})[0], a.MaxDueAge.Microseconds()})
	}
	return rows
}

func logOf(lag *outbox.LogLag) *[3]int64 {
	if lag == nil {
		return nil
	}
	return &[3]int64{lag.Behind, lag.Kept, lag.Left}
}

// forgetEnded deletes the rows of nodes that died and of pauses that ended. The names are read first,
// because MySQL would lock all rows of a kind to delete by time.
func (s *Store) forgetEnded(ctx context.Context, db outbox.DB) error {
	q := s.query(256)
	q.add("SELECT kind, name FROM ").control(s).add(" WHERE kind = 'node' AND expires_at NOT BETWEEN ").fromNow(-nodeKept).add(" AND ").fromNow(farthest).
		add(" OR kind IN ('pause', 'pause-key') AND expires_at <= ").now()
	var died []string
	var ended [][2]string
	err := s.rows(ctx, db, "looking for nodes that died and pauses that ended", q, func(rows *sql.Rows) error {
		var kind, name string
		err := rows.Scan(&kind, &name)
		if kind == "node" {
			died = append(died, name)
		} else {
			ended = append(ended, [2]string{kind, name})
		}
		return err
	})
	for _, name := range died {
		if err == nil {
			err = s.Withdraw(ctx, db, name)
		}
	}
	for _, row := range ended {
		if err == nil {
			err = s.forgetPause(ctx, db, row[0], row[1])
		}
	}
	return err
}

// Withdraw implements [outbox.Store].
func (s *Store) Withdraw(ctx context.Context, db outbox.DB, owner string) error {
	q := s.query(128)
	q.add("DELETE FROM ").control(s).add(" WHERE kind = 'node' AND name = ").arg(owner)
	_, err := s.changed(ctx, func() (int, error) { return s.exec(ctx, db, "withdrawing a node", q) })
	return err
}

// Nodes implements [outbox.Store]. On MySQL it reads up to SearchLimit due rows of each status.
func (s *Store) Nodes(ctx context.Context, db outbox.DB) ([]outbox.Node, error) {
	nodes, reported := map[string]outbox.Node{}, map[string]int{}
	if err := s.reports(ctx, db, nodes, reported); err != nil {
		return nil, err
	}
	ranges, err := s.Ranges(ctx, db)
	if err != nil {
		return nil, err
	}
	if holder := ranges.Holder(); holder != "" {
		node := nodes[holder]
		node.Holds = true
		nodes[holder] = node
	}
	all, err := s.leaseOwners(ctx, db, nodes)
	if err != nil {
		return nil, err
	}
	var list []outbox.Node
	for _, owner := range slices.Sorted(maps.Keys(nodes)) {
		node := nodes[owner]
		node.Owner = owner
		if !all {
			node.Leases = max(node.Leases, reported[owner])
		}
		list = append(list, node)
	}
	return list, nil
}

// reports reads the reports of nodes, and how many leases each node reported.
func (s *Store) reports(ctx context.Context, db outbox.DB, nodes map[string]outbox.Node, leases map[string]int) error {
	q := s.query(256)
	q.add("SELECT name, value, ").timeColumn("expires_at").add(", CASE WHEN ").unexpired().add(" THEN 1 ELSE 0 END FROM ").
		control(s).add(" WHERE kind = 'node'")
	return s.rows(ctx, db, "reading what nodes reported", q, func(rows *sql.Rows) error {
		var owner string
		var value sql.NullString
		var expires timestamp
		var node outbox.Node
		if err := rows.Scan(&owner, &value, &expires, &node.Live); err != nil {
			return err
		}
		var report nodeRow
		if err := json.Unmarshal([]byte(value.String), &report); err != nil {
			node.Problem = fmt.Sprintf("its row of the control table, with kind 'node', has no valid value (%d bytes): delete the row", len(value.String))
			nodes[owner] = node
			return nil
		}
		node.Mode, node.Version, node.Started, node.LastPoll, node.HotDepth, node.ColdDepth = report.Mode, report.Version, report.Started, report.LastPoll, report.Hot, report.Cold
		node.Totals = report.Totals.public()
		node.Kinds, node.Unheard = kindsOf(report.Kinds), kindsOf(report.Unheard)
		for _, a := range report.MaxDueAges {
			node.MaxDueAges = append(node.MaxDueAges, outbox.KindAge{Kind: kindsOf([][2]string{a.Kind})[0], MaxDueAge: time.Duration(a.Age) * time.Microsecond})
		}
		if lag := report.Log; lag != nil {
			node.Log = &outbox.LogLag{Behind: lag[0], Kept: lag[1], Left: lag[2]}
		}
		if !expires.IsZero() {
			node.SeenAt = expires.Add(-time.Duration(report.For) * time.Microsecond)
		}
		nodes[owner], leases[owner] = node, report.Leases
		return nil
	})
}

// leaseOwners counts the leases of the first due rows, by owner. all reports whether these are all
// due rows.
func (s *Store) leaseOwners(ctx context.Context, db outbox.DB, nodes map[string]outbox.Node) (all bool, err error) {
	all = true
	for _, pending := range s.pending() {
		q := s.query(512)
		q.ordered().add("SELECT locked_by, ").timeColumn("locked_at").add(" FROM ").table(s).
			add(" WHERE ", pending, " AND available_at <= ").time(time.Now()).add(dueOrder).limit(outbox.SearchLimit, "")
		read := 0
		err := s.rows(ctx, db, "reading who has leases", q, func(rows *sql.Rows) error {
			var lease sql.NullString
			var at timestamp
			if err := rows.Scan(&lease, &at); err != nil {
				return err
			}
			if read++; !lease.Valid {
				return nil
			}
			owner := lease.String
			if i := strings.LastIndexByte(owner, '/'); i >= 0 {
				owner = owner[:i]
			}
			node := nodes[owner]
			if node.Leases++; node.OldestLease.IsZero() || !at.IsZero() && at.Before(node.OldestLease) {
				node.OldestLease = at.Time
			}
			nodes[owner] = node
			return nil
		})
		if err != nil {
			return false, err
		}
		all = all && read < outbox.SearchLimit
	}
	return all, nil
}
