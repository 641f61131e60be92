package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// named returns a change that gives an event an id.
func named(id string) func(env *outbox.Envelope) {
	return func(env *outbox.Envelope) { env.EventID = id }
}

// findsSet is finds, in any order.
func (s *storeSuite) findsSet(what string, f outbox.EventFilter, want ...string) {
	s.t.Helper()
	page := s.page(outbox.EventQuery{EventFilter: f})
	got := eventIDs(page.Rows)
	slices.Sort(got)
	slices.Sort(want)
	s.sameIDs(what, got, want)
	if page.Next != "" {
		s.t.Fatalf("%s: the only page has the next place %q", what, page.Next)
	}
}

// inspectPrefixes finds ids by their beginnings, in which no character is a wildcard.
func inspectPrefixes(s *storeSuite) {
	ids := []string{
		"a%1", "a%2", "a_1", `a\1`, `a\\2`, "a|1", "a'1", `a"1`, "a-1", "a b", "A%1", "a", "ab", "abc", "b",
		"é1", "é2", "e\u03011", "日本1", "日本2", "\uE0001", "\U0010FFFF1", "\U0010FFFF\U0010FFFF2", "a😀1", "a😀😀2", "\U0010FFFE1", "z",
	}
	for i, id := range ids {
		s.as(outbox.Status(i%4), time.Duration(i)*time.Second, named(id), func(env *outbox.Envelope) { env.AggregateID = "o-1" })
	}
	for _, prefix := range append(slices.Clone(ids),
		"a%", "a_", `a\`, `a\\`, "a|", "a'", `a"`, "a ", "a%1 ", "é", "e", "e\u0301", "日", "日本", "\uD7FF", "\uE000", "a😀", "a\uFFFD", "\U0010FFFE", "\U0010FFFF",
		"%", "_", `\`, "' OR '1'='1", "no such", "abcd",
	) {
		var want []string
		for _, id := range ids {
			if strings.HasPrefix(id, prefix) {
				want = append(want, id)
			}
		}
		s.findsSet(fmt.Sprintf("ids that begin with %q", prefix), outbox.EventFilter{IDPrefix: prefix}, want...)
		s.findsSet(fmt.Sprintf("ids of an aggregate that begin with %q", prefix), outbox.EventFilter{IDPrefix: prefix, AggregateID: "o-1"}, want...)
		s.findsSet(fmt.Sprintf("ids of another aggregate that begin with %q", prefix), outbox.EventFilter{IDPrefix: prefix, AggregateID: "o-2"})
		for status := outbox.StatusNew; status <= outbox.StatusDead; status++ {
			of := slices.DeleteFunc(slices.Clone(want), func(id string) bool { return outbox.Status(slices.Index(ids, id)%4) != status })
			s.findsSet(fmt.Sprintf("%s ids that begin with %q", status, prefix), outbox.EventFilter{IDPrefix: prefix, Statuses: []outbox.Status{status}}, of...)
		}
	}
	for _, limit := range []int{1, 2, 3} {
		filter := outbox.EventFilter{IDPrefix: "a"}
		want := eventIDs(s.page(outbox.EventQuery{EventFilter: filter}).Rows)
		s.count("ids that begin with a", len(want), 15)
		s.sameIDs(fmt.Sprintf("pages of %d", limit), s.walk(outbox.EventQuery{EventFilter: filter, Limit: limit}, func() {}), want)
	}
}

// inspectErrors finds errors by a part of their text, in which no character is a wildcard.
func inspectErrors(s *storeSuite) {
	errs := []string{
		"connection refused", "Connection REFUSED by 10.0.0.1", "100% of the quota", "100 of the quota", "a_b", "axb", `C:\temp`, `C:\\temp`, "it's | quoted \"x\"",
		"CAFÉ closed", "café closed", "кафе закрыто", "КАФЕ ЗАКРЫТО", "straße", "STRASSE", "日本語", "two\nlines", "",
		strings.Repeat("é", outbox.MaxErrorLength-3) + "end", strings.Repeat("é", outbox.MaxErrorLength) + "far",
	}
	ids := make([]string, len(errs))
	for i, text := range errs {
		ids[i] = s.as(outbox.Status(i%4), time.Duration(i)*time.Second)
		s.edit(ids[i], func(row *RawRow) { row.LastError = text })
	}
	for search, want := range map[string][]int{
		"refused": {0, 1}, "REFUSED": {0, 1}, "connection": {0, 1}, "10.0.0.1": {1}, "10x0": nil,
		"100%": {2}, "100": {2, 3}, "%": {2}, "_": {4}, "a_b": {4}, "A_B": {4}, `\t`: {6, 7}, `\\`: {7}, "|": {8}, "it's": {8}, `"x"`: {8},
		"café": {10}, "CAFÉ": {9}, "caf": {9, 10}, "CLOSED": {9, 10}, "кафе": {11}, "КАФЕ": {12}, "straße": {13}, "strasse": {14}, "日本": {15}, "two\nlines": {16},
		"end": {18}, "éend": {18}, "far": nil, "' OR '1'='1": nil,
	} {
		for _, statuses := range [][]outbox.Status{nil, liveStatuses, doneStatuses, deadStatuses} {
			var of []string
			for _, i := range want {
				if len(statuses) == 0 || slices.Contains(statuses, outbox.Status(i%4)) {
					of = append(of, ids[i])
				}
			}
			s.findsSet(fmt.Sprintf("%v errors that contain %q", statuses, search), outbox.EventFilter{ErrorText: search, Statuses: statuses}, of...)
		}
	}
}

func inspectLeased(s *storeSuite) {
	free := s.as(outbox.StatusNew, time.Second, named("n-free"))
	leased := s.as(outbox.StatusRetry, 2*time.Second, named("n-leased"))
	s.edit(leased, func(row *RawRow) { row.LockedBy, row.LockedAt = "node/1", suiteTime })
	s.as(outbox.StatusDone, 3*time.Second)
	for _, f := range []outbox.EventFilter{{}, {Statuses: liveStatuses}, {IDPrefix: "n-"}, {IDPrefix: "n-", Statuses: liveStatuses}} {
		f.Leased = true
		s.finds(fmt.Sprintf("leased of %+v", f), f, leased)
	}
	s.finds("free and leased", outbox.EventFilter{IDPrefix: "n-"}, leased, free)
}

// inspectDue finds events by the time at which they are due, in each order.
func inspectDue(s *storeSuite) {
	at := func(seconds int) time.Time { return suiteTime.Add(time.Duration(seconds) * time.Second) }
	var ids [4]string
	for i := range ids {
		ids[i] = s.as(outbox.Status(i%2*2), time.Duration(i)*time.Second, named(fmt.Sprintf("due-%d", i)), func(env *outbox.Envelope) { env.AggregateID = "o-due" })
	}
	for name, test := range map[string]struct {
		after, before time.Time
		want          []string
	}{
		"due after, inclusive":  {after: at(2), want: ids[2:]},
		"due before, exclusive": {before: at(2), want: ids[:2]},
		"both":                  {after: at(1), before: at(3), want: ids[1:3]},
	} {
		f := outbox.EventFilter{DueAfter: test.after, DueBefore: test.before, Statuses: liveStatuses}
		s.finds(name, f, test.want...)
		byID := slices.Clone(test.want)
		slices.Reverse(byID)
		f.IDPrefix = "due-"
		s.finds(name+", of ids", f, byID...)
		f.IDPrefix, f.AggregateID = "", "o-due"
		s.findsSet(name+", of an aggregate", f, test.want...)
		f.Statuses = nil
		s.finds(name+", by id", f, byID...)
	}
}

// inspectLooked counts the rows that a page looked at.
func inspectLooked(s *storeSuite) {
	for range 9 {
		s.as(outbox.StatusNew, time.Second, func(env *outbox.Envelope) { env.TenantID = "many" })
	}
	s.as(outbox.StatusNew, 2*time.Second, func(env *outbox.Envelope) { env.TenantID = "few" })
	for _, statuses := range [][]outbox.Status{nil, liveStatuses} {
		for tenant, want := range map[string]int{"few": 10, "none": 10} {
			page := s.page(outbox.EventQuery{EventFilter: outbox.EventFilter{Statuses: statuses, TenantID: tenant}, Limit: 3})
			s.count(fmt.Sprintf("%v rows looked at for tenant %s", statuses, tenant), page.Looked, want)
		}
		first := s.page(outbox.EventQuery{EventFilter: outbox.EventFilter{Statuses: statuses}, Limit: 3})
		s.count(fmt.Sprintf("%v rows looked at for three", statuses), first.Looked, 3)
		rest := s.page(outbox.EventQuery{EventFilter: outbox.EventFilter{Statuses: statuses}, Limit: 100, After: first.Next})
		s.count(fmt.Sprintf("%v rows looked at behind a place", statuses), rest.Looked, 7)
	}
}
