package shares

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// list are the shares of all processes, as the row has them. Times are microseconds since 1970, by
// the database's clock.
type list struct {
	// Of says to people whose limits these are.
	Of string `json:"of,omitempty"`
	// Kind is Options.Kind, and Limits are the limits, of the process that last replaced the row.
	Kind   [2]string `json:"k,omitzero"`
	Limits Limits    `json:"l,omitzero"`
	// Freed is when a process last stopped to act on parts that it gave up. Since then, the parts that
	// are free have got tokens.
	Freed int64 `json:"f,omitempty"`
	// Members in the order in which they get parts.
	Members []member `json:"m,omitempty"`
}

// member is a process.
type member struct {
	Name  string `json:"n"`
	Parts int    `json:"p,omitempty"`
	Of    int    `json:"o"` // the parts of the limits, as this process knows the limits
	Wants bool   `json:"w,omitempty"`
	Until int64  `json:"t"` // the end of the share
}

// farthest is later than the end of any share: a share that ends later was not set by a process, and
// would last for ever.
const farthest = 24 * time.Hour

func readList(value string) (l list, err error) {
	if value == "" {
		return list{}, nil
	}
	if err := json.Unmarshal([]byte(value), &l); err != nil {
		return list{}, fmt.Errorf("the row has no valid value (%d bytes); delete the row", len(value))
	}
	return l, nil
}

// text is the value of the row.
func (l list) text() string {
	value, err := json.Marshal(l)
	if err != nil {
		panic(err) // texts and numbers
	}
	return string(value)
}

// at is the list without the members whose shares have ended.
func (l list) at(now time.Time) list {
	first, last := now.UnixMicro(), now.Add(farthest).UnixMicro()
	alive := list{Of: l.Of, Kind: l.Kind, Limits: l.Limits, Freed: l.Freed}
	for _, m := range l.Members {
		switch {
		case m.Until >= first && m.Until <= last:
			alive.Members = append(alive.Members, m)
		case m.Parts > 0:
			alive.Freed = max(alive.Freed, min(m.Until, first))
		}
	}
	return alive
}

// place is the index of a member; negative if the list does not have it.
func (l list) place(name string) int {
	return slices.IndexFunc(l.Members, func(m member) bool { return m.Name == name })
}

// free is how many of total parts no other member has. The parts of a member that knows other limits
// are rounded up.
func (l list) free(name string, total int) int {
	taken := 0
	for _, m := range l.Members {
		if m.Name != name && m.Of > 0 {
			taken += (m.Parts*total + m.Of - 1) / m.Of
		}
	}
	return max(total-taken, 0)
}

// fair is the fair share of a member that wants a share: the parts go to the members that want some,
// in order. short: there are fewer parts than such members.
func (l list) fair(name string, total int) (parts int, short bool) {
	wanting, before := 0, 0
	for _, m := range l.Members {
		if m.Name == name {
			before = wanting
		}
		if m.Wants {
			wanting++
		}
	}
	parts = total / max(wanting, 1)
	if before < total%max(wanting, 1) {
		parts++
	}
	return parts, total < wanting
}

// wait reports whether a member that wants a share has no part.
func (l list) wait() bool {
	return slices.ContainsFunc(l.Members, func(m member) bool { return m.Wants && m.Parts == 0 })
}

// toTheEnd moves a member to the end, and returns its new index.
func (l list) toTheEnd(i int) int {
	m := l.Members[i]
	copy(l.Members[i:], l.Members[i+1:])
	l.Members[len(l.Members)-1] = m
	return len(l.Members) - 1
}
