package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// idleSystem does nothing.
type idleSystem struct{ listen func(n int) error }

func (*idleSystem) Write(context.Context, int, int) error { return nil }
func (*idleSystem) Pending(context.Context) (int, error)  { return 0, nil }
func (*idleSystem) Close() error                          { return nil }
func (s *idleSystem) Deliver(_ context.Context, d delivery) (func() error, error) {
	s.listen = d.listen
	return func() error { return nil }, nil
}

// fakeRunner has one contender of each name, peers but for the first, for one work.
func fakeRunner(w work, names ...string) runner {
	w.on, w.figures = everywhere, perSecond
	r := runner{
		options: options{rounds: 1, scale: 1}, pattern: regexp.MustCompile(""), who: regexp.MustCompile(""),
		works: []work{w}, cpu: func() cpu { return cpu{} },
	}
	for i, name := range names {
		r.contenders = append(r.contenders, contender{
			name: name, on: everywhere, works: []string{w.name}, peer: i > 0,
			open: func(context.Context, *database) (system, error) { return &idleSystem{}, nil },
		})
	}
	return r
}

// steals reads as much steal during each sample as it is given, in percent.
func steals(percent ...float64) func() cpu {
	var now cpu
	reads := 0
	return func() cpu {
		if reads%2 == 1 {
			now.total += 100
			now.steal += percent[reads/2]
		}
		reads++
		return now
	}
}

func TestADisturbedSampleIsRepeated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		steal     []float64
		kept      number64
		disturbed int
	}{
		"not when it is quiet":    {[]float64{5}, 1, 0},
		"once":                    {[]float64{40, 2}, 2, 0},
		"twice, least disturbed":  {[]float64{40, 20, 30}, 2, 1},
		"twice, until it is calm": {[]float64{40, 20, 0}, 3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			samples := 0.0
			r := fakeRunner(work{name: "drain", variants: []variant{{measure: func(context.Context, *sample) ([]float64, error) {
				samples++
				return []float64{samples}, nil
			}}}}, "outbox")
			r.cpu = steals(c.steal...)
			results, err := r.run(t.Context(), []testdb.Kind{testdb.SQLite})
			require.NoError(t, err)
			require.EqualValues(t, len(c.steal), samples)
			require.Equal(t, c.kept, results[0].Lines[0].Cells[0].Median)
			require.Equal(t, c.disturbed, results[0].Disturbed)
		})
	}
}

func TestAPeerThatFailsInAQuickRunIsTriedAgain(t *testing.T) {
	t.Parallel()
	samples := 0
	r := fakeRunner(work{name: "drain"}, "outbox", "River")
	r.quick = true
	r.works[0].variants = []variant{{measure: func(context.Context, *sample) ([]float64, error) {
		if samples++; samples == 2 {
			return nil, errors.New("it waits")
		}
		return []float64{1}, nil
	}}}
	results, err := r.run(t.Context(), []testdb.Kind{testdb.SQLite})
	require.NoError(t, err)
	require.Equal(t, []number64{1}, results[0].Lines[1].Cells[0].Samples)
}

func TestAnEventThatArrivesTwiceFailsThisLibraryAndIsNotedForPeers(t *testing.T) {
	t.Parallel()
	r := fakeRunner(work{name: "drain", variants: []variant{{measure: func(ctx context.Context, s *sample) ([]float64, error) {
		s.next.Store(1)
		err := s.deliver(ctx, delivery{})
		for range 2 {
			_ = s.system.(*idleSystem).listen(0)
		}
		return []float64{1}, errors.Join(err, s.settle(ctx))
	}}}}, "outbox", "River")
	result, err := r.measure(t.Context(), testdb.SQLite, r.works[0])
	require.EqualError(t, err, "sqlite, drain/, outbox: it delivered an event again 1 time")
	require.Equal(t, map[string]int{"River": 1}, result.Again)
}

func TestAWorkThatFailsKeepsItsTableAndTheOthersAreWritten(t *testing.T) {
	t.Parallel()
	docs := t.TempDir()
	file := filepath.Join(docs, "BENCHMARKS.md")
	require.NoError(t, os.WriteFile(file, []byte(beginMark+endMark), 0o600))
	round := 0
	value := func(context.Context, *sample) ([]float64, error) { return []float64{float64(round)}, nil }
	r := fakeRunner(work{name: "drain", variants: []variant{{measure: value}}}, "outbox")
	r.contenders[0].works = append(r.contenders[0].works, "write")
	fails := r.works[0]
	fails.name = "write"
	fails.variants = []variant{{measure: func(ctx context.Context, s *sample) ([]float64, error) {
		if round == 22 {
			return nil, errors.New("no room")
		}
		return value(ctx, s)
	}}}
	r.works = append(r.works, fails)
	r.write, r.quick = docs, true // quick: without the machine
	for _, round = range []int{11, 22} {
		err := r.bench(t.Context(), []testdb.Kind{testdb.SQLite})
		if round == 11 {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, "these works keep their old tables:\nsqlite, write/, outbox: no room")
		}
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Regexp(t, `(?s)SQLite: write.*\| outbox \| 11\.0 \|.*SQLite: drain.*\| outbox \| 22\.0 \|`, string(text))
}

func TestAQuickRunHasEveryContenderInEveryWork(t *testing.T) {
	t.Parallel()
	all := runner{pattern: regexp.MustCompile(""), who: regexp.MustCompile("")}
	quick := all
	quick.quick = true
	for _, kind := range everywhere {
		for _, w := range works() {
			all.contenders, quick.contenders = contenders(), contenders()
			names := func(r runner) (names []string) {
				for _, c := range r.part(kind, w, r.variants(kind, w)) {
					names = append(names, c.name)
				}
				return names
			}
			require.Equal(t, names(all), names(quick), "%s, %s", kind, w.name)
		}
	}
}
