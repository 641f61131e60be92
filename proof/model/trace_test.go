package model_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/proof/model"
)

var replayed = model.Leases{MaxAttempts: 3}

// The events of traces. The writer is node 0 and writes under lease "w".

func at(kind model.Kind, node int, lease string) model.Record {
	return model.Record{Event: model.Event{Kind: kind, Node: node}, LockedBy: lease}
}

func claimed(node int, lease string, attempts uint8) model.Record {
	r := at(model.Claimed, node, lease)
	r.Attempts = attempts
	return r
}

func began(node int, attempts uint8) model.Record {
	r := at(model.Began, node, "")
	r.Attempts = attempts
	return r
}

func ended(node int, o model.Outcome) model.Record {
	r := at(model.Ended, node, "")
	r.Outcome = o
	return r
}

func marked(node int, lease string, o model.Outcome, changed bool) model.Record {
	r := at(model.Marked, node, lease)
	r.Outcome, r.Changed = o, changed
	return r
}

func released(node int, lease string, changed bool) model.Record {
	r := at(model.Released, node, lease)
	r.Changed = changed
	return r
}

var (
	wrote      = at(model.Wrote, 0, "w")
	written    = []model.Record{wrote, at(model.Committing, 0, ""), at(model.Committed, 0, "")}
	expiredW   = at(model.Expired, 0, "w")
	rolledBack = at(model.RolledBack, 0, "")
)

func after(before []model.Record, rest ...model.Record) []model.Record {
	return slices.Concat(before, rest)
}

// hot is a delivery by the writer, up to its outcome.
func hot(o model.Outcome) []model.Record { return after(written, began(0, 0), ended(0, o)) }

func TestTracesThatTheModelAllows(t *testing.T) {
	t.Parallel()
	for name, trace := range map[string][]model.Record{
		"delivered by the writer": after(hot(model.OutcomeDone), marked(0, "w", model.OutcomeDone, true)),
		"the answer to the mark is lost": after(hot(model.OutcomeRetry), marked(0, "w", model.OutcomeRetry, true),
			at(model.AnswerLost, 0, "w"), marked(0, "w", model.OutcomeRetry, false)),
		"no room in the hot queue": after(written, released(0, "w", true), claimed(1, "b", 0), began(1, 0),
			ended(1, model.OutcomeDone), marked(1, "b", model.OutcomeDone, true)),
		"taken over": after(written, began(0, 0), expiredW, claimed(1, "b", 1), began(1, 1), ended(0, model.OutcomeDone),
			marked(0, "w", model.OutcomeDone, false), ended(1, model.OutcomeDone), marked(1, "b", model.OutcomeDone, true)),
		"claimed again by the node that has it": after(written, began(0, 0), expiredW, claimed(0, "b", 1),
			ended(0, model.OutcomeDone), marked(0, "b", model.OutcomeDone, true)),
		"a mark that comes late": after(hot(model.OutcomeRetry), at(model.GaveUp, 0, "w"), marked(0, "w", model.OutcomeRetry, true),
			claimed(1, "b", 1), began(1, 1)),
		"in doubt": after([]model.Record{wrote}, at(model.Committing, 0, ""), at(model.InDoubt, 0, ""),
			released(0, "w", true), claimed(0, "a", 0), began(0, 0)),
		"dead and replayed": after(hot(model.OutcomeDead), marked(0, "w", model.OutcomeDead, true), at(model.Replayed, 0, ""),
			claimed(1, "b", 0), began(1, 0)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states, err := replayed.Replay(trace)
			require.NoError(t, err)
			require.Positive(t, states)
		})
	}
}

// Each trace ends with what must not happen.
func TestForgedTracesAreRejected(t *testing.T) {
	t.Parallel()
	done := marked(0, "w", model.OutcomeDone, true)
	for name, trace := range map[string][]model.Record{
		"delivered before the commit":             {wrote, began(0, 0)},
		"delivered after the rollback":            {wrote, rolledBack, began(0, 0)},
		"delivered by a node without a claim":     after(written, began(1, 0)),
		"delivered by the hot path in doubt":      after([]model.Record{wrote}, at(model.Committing, 0, ""), at(model.InDoubt, 0, ""), began(0, 0)),
		"claimed while another has the lease":     after(written, claimed(1, "b", 0)),
		"taken over before the lease expired":     after(written, claimed(1, "b", 1)),
		"taken over without an attempt":           after(written, expiredW, claimed(1, "b", 0)),
		"claimed when done":                       after(hot(model.OutcomeDone), done, claimed(1, "b", 0)),
		"marked without a delivery":               after(written, done),
		"marked as the listener did not end":      after(hot(model.OutcomeRetry), done),
		"marked under a lease that was lost":      after(hot(model.OutcomeDone), expiredW, claimed(1, "b", 1), done),
		"refused under a lease that holds":        after(hot(model.OutcomeDone), marked(0, "w", model.OutcomeDone, false)),
		"marked twice with effect":                after(hot(model.OutcomeRetry), marked(0, "w", model.OutcomeRetry, true), at(model.AnswerLost, 0, "w"), marked(0, "w", model.OutcomeRetry, true)),
		"marked again although it was answered":   after(hot(model.OutcomeRetry), marked(0, "w", model.OutcomeRetry, true), marked(0, "w", model.OutcomeRetry, false)),
		"delivered again by the node that has it": after(written, began(0, 0), expiredW, claimed(0, "b", 1), began(0, 1)),
		"given back while a listener has it":      after(written, began(0, 0), released(0, "w", true)),
		"delivered with fewer attempts":           after(hot(model.OutcomeRetry), marked(0, "w", model.OutcomeRetry, true), claimed(1, "b", 0)),
		"delivered when its attempts are used up": after(written, expiredW, claimed(1, "b", 1), at(model.Expired, 0, "b"), claimed(0, "c", 2),
			at(model.Expired, 0, "c"), claimed(1, "d", 3), began(0, 0), began(1, 3)),
		"renewed by a node that does not have it": after(written, expiredW, claimed(1, "b", 1), at(model.Renewed, 0, "b")),
		"one name for two claims": after(hot(model.OutcomeRetry), marked(0, "w", model.OutcomeRetry, true),
			claimed(1, "b", 1), began(1, 1), ended(1, model.OutcomeRetry), marked(1, "b", model.OutcomeRetry, true), claimed(1, "b", 2)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := replayed.Replay(trace[:len(trace)-1])
			require.NoError(t, err, "up to the last event")
			_, err = replayed.Replay(trace)
			require.ErrorContains(t, err, "is not possible")
		})
	}
}
