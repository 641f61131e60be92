package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// measured is a work on PostgreSQL with the samples of each contender by round; the first
// is the limit.
func measured(w work, samples map[string][][]float64, names ...string) workResult {
	var part []contender
	for i, name := range names {
		part = append(part, contender{name: name, limit: i == 0})
	}
	r := newWorkResult(testdb.Postgres, w, w.variants, part, len(samples[names[0]]))
	for _, c := range part {
		for round, values := range samples[c.name] {
			for i, v := range w.variants {
				if !math.IsNaN(values[i]) {
					r.add(round, turn{c, v}, measurement{values: values[i : i+1]})
				}
			}
		}
	}
	r.compare()
	return r
}

func draining100k() work {
	return work{name: "drain", title: "Draining", figures: perSecond, variants: []variant{{name: "100k"}}}
}

// lines are the table.
func lines(r workResult) []string {
	var lines []string
	for _, l := range r.Lines {
		lines = append(lines, l.Contender+": "+strings.Join(l.cells(), " | "))
	}
	return lines
}

func TestARatioIsTheMedianOfThoseOfEachRound(t *testing.T) {
	t.Parallel()
	// The machine was half as fast in the second round, for all. The medians' ratio
	// would be 0.55 and 0.29.
	r := measured(draining100k(), map[string][][]float64{
		"bare":   {{100}, {50}, {110}},
		"outbox": {{50}, {30}, {55}},
		"River":  {{25}, {15}, {math.NaN()}},
	}, "bare", "outbox", "River")
	require.Equal(t, []string{"bare: 100 ±50%", "outbox: 50.0 ±40% (0.50 ±20%)", "River: 20.0 ±25% (0.28 ±9%)"}, lines(r))
}

func TestARatioToTheFirstVariantIsOfTheSameRound(t *testing.T) {
	t.Parallel()
	w := work{name: "done", figures: perSecond, ratioToFirst: true, variants: []variant{{name: "write only"}, {name: "1 ms"}}}
	r := measured(w, map[string][][]float64{
		"bare":   {{100, 80}, {50, 40}},
		"outbox": {{100, 90}, {50, 50}},
	}, "bare", "outbox")
	require.Equal(t, []string{"bare: 75.0 ±33% | 60.0 ±33% (0.80)", "outbox: 75.0 ±33% | 70.0 ±29% (0.95 ±5%)"}, lines(r))
}

func TestAContenderIsComparedWithTheLimitWhereTheOneThatItNamesIsMissing(t *testing.T) {
	t.Parallel()
	r := measured(draining100k(), map[string][][]float64{
		"bare": {{100}}, "by hand": {{50}}, "named": {{25}}, "outbox": {{25}},
	}, "bare", "by hand", "named", "outbox")
	r.Lines[2].Against, r.Lines[3].Against = "by hand", "absent"
	r.compare()
	require.Equal(t, []string{"bare: 100", "by hand: 50.0 (0.50)", "named: 25.0 (0.50)", "outbox: 25.0 (0.25)"}, lines(r))
	r.Lines[1].Cells[0].Samples = []number64{missing}
	r.compare()
	require.Equal(t, "named: 25.0 (0.25)", lines(r)[2])
}

func TestAFigureThatADatabaseDoesNotHaveIsADash(t *testing.T) {
	t.Parallel()
	w := work{name: "cost", figures: []figure{{Name: "statements"}, {Name: "HOT"}}, variants: []variant{{name: "backlog"}}}
	c := contender{name: "outbox"}
	r := newWorkResult(testdb.SQLite, w, w.variants, []contender{c}, 1)
	r.add(0, turn{c, w.variants[0]}, measurement{values: []float64{4, math.NaN()}})
	r.compare()
	require.Equal(t, []string{"outbox: 4.00 | –"}, lines(r))
}

func TestResultsAreTheSameAfterTheyWereStored(t *testing.T) {
	t.Parallel()
	r := measured(draining100k(), map[string][][]float64{
		"bare": {{100}, {50}}, "outbox": {{50}, {math.NaN()}},
	}, "bare", "outbox")
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.Contains(t, string(text), `"samples":[50,null]`)
	var again workResult
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, lines(r), lines(again))
}

func TestTheNoteSaysHowTheRoundsWent(t *testing.T) {
	t.Parallel()
	w := draining100k()
	c := contender{name: "River", peer: true}
	r := newWorkResult(testdb.Postgres, w, w.variants, []contender{c}, 2)
	r.add(0, turn{c, w.variants[0]}, measurement{values: []float64{1}, steal: 9, again: 2})
	r.add(1, turn{c, w.variants[0]}, measurement{values: []float64{1}, steal: 2, again: 1})
	require.Regexp(t, `^2 rounds on \d{4}-\d\d-\d\d, steal at most 9\.0 %\. 1 sample had more than 5 % in each of 3 tries\. River delivered an event again 3 times\.$`, r.rounds())
}
