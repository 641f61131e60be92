package operjson

import (
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// States are the names of the states that Choose knows.
var States = []string{"WAITING", "DUE", "DELAYED", "LEASED", "NEW", "RETRY", "DONE", "DEAD"}

var statuses = map[string]outbox.Status{
	"NEW": outbox.StatusNew, "RETRY": outbox.StatusRetry, "DONE": outbox.StatusDone, "DEAD": outbox.StatusDead,
}

// Choose makes a filter choose the events in one of several states. WAITING is NEW and RETRY. DUE, DELAYED
// and LEASED are NEW and RETRY too, and stand alone: they narrow the filter. isKnown is false if a name is
// unknown, or if a name that stands alone is not alone.
func Choose(f *outbox.EventFilter, names []string, now time.Time) (isKnown bool) {
	waiting := []outbox.Status{outbox.StatusNew, outbox.StatusRetry}
	for _, name := range names {
		status, isStatus := statuses[name]
		chosen := []outbox.Status{status}
		switch {
		case isStatus:
		case name == "WAITING":
			chosen = waiting
		case len(names) > 1:
			return false
		case name == "DUE":
			chosen, f.DueBefore = waiting, now
		case name == "DELAYED":
			chosen, f.DueAfter = waiting, now
		case name == "LEASED":
			chosen, f.Leased = waiting, true
		default:
			return false
		}
		for _, status := range chosen {
			if !slices.Contains(f.Statuses, status) {
				f.Statuses = append(f.Statuses, status)
			}
		}
	}
	return true
}

// Search says how a page of events was found.
type Search struct {
	// Looked is how many rows of the table the search looked at.
	Looked int `json:"looked_at"`
	// Missing is the index that would have made the search quick; left out: none.
	Missing *MissingIndex `json:"missing_index,omitempty"`
}

// MissingIndex is an [outbox.MissingIndex].
type MissingIndex struct {
	For    string `json:"for"`
	Option string `json:"option,omitempty"`
	DDL    string `json:"ddl"`
}

// SearchOf says how a page was found.
func SearchOf(page *outbox.Page[outbox.EventRow]) Search {
	s := Search{Looked: page.Looked}
	if m := page.Missing; m != nil {
		s.Missing = &MissingIndex{m.For, m.Option, m.DDL}
	}
	return s
}
