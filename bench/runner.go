package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// runner measures works with contenders.
type runner struct {
	options
	pattern, who *regexp.Regexp
	works        []work
	contenders   []contender
	cpu          func() cpu // readCPU, but for tests
}

// The longest time that a sample may take.
const (
	sampleTime      = 5 * time.Minute
	quickSampleTime = 20 * time.Second
)

// A sample is repeated when the machine's host took more than disturbed percent of the
// processors meanwhile; in -quick when a peer failed.
const (
	disturbed = 5
	tries     = 3
)

// run measures every work on every database. run returns the works of which every sample succeeded,
// and the errors of the other works.
func (r runner) run(ctx context.Context, kinds []testdb.Kind) ([]workResult, error) {
	var mu sync.Mutex
	var results []workResult
	var errs []error
	var wg sync.WaitGroup
	for _, kind := range kinds {
		wg.Go(func() {
			for _, w := range r.works {
				if ctx.Err() != nil {
					return
				}
				result, err := r.measure(ctx, kind, w)
				if len(result.Lines) == 0 {
					continue
				}
				result.compare()
				mu.Lock()
				if err == nil {
					results = append(results, result)
				}
				if err == nil || !r.quick {
					fmt.Print(result.text(r.quick))
				}
				errs = append(errs, err)
				mu.Unlock()
			}
		})
		if !r.quick { // in -quick, times do not matter
			wg.Wait()
		}
	}
	wg.Wait()
	return results, errors.Join(append(errs, ctx.Err())...)
}

// measure takes the samples of every contender, interleaved: each round has every contender.
func (r runner) measure(ctx context.Context, kind testdb.Kind, w work) (workResult, error) {
	rounds := r.rounds
	if w.rounds > 0 {
		rounds = min(rounds, w.rounds)
	}
	variants := r.variants(kind, w)
	part := r.part(kind, w, variants)
	result := newWorkResult(kind, w, variants, part, rounds)
	var errs []error
	for round := range rounds {
		for _, t := range turns(w, variants, part, round) {
			where, began := fmt.Sprintf("%s, %s/%s, %s", kind, w.name, t.variant.name, t.contender.name), time.Now()
			m, err := r.take(ctx, kind, t, where)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", where, err))
				fmt.Fprintln(os.Stderr, "failed:", errs[len(errs)-1])
			} else {
				result.add(round, t, m)
			}
			if r.verbose {
				fmt.Fprintf(os.Stderr, "%.1fs: %s\n", time.Since(began).Seconds(), where)
			}
			if ctx.Err() != nil {
				return result, errors.Join(append(errs, fmt.Errorf("%s: %w", where, ctx.Err()))...)
			}
		}
	}
	return result, errors.Join(errs...)
}

// variants are the variants to measure.
func (r runner) variants(kind testdb.Kind, w work) []variant {
	var variants []variant
	for _, v := range w.variants {
		if w.supports(v, kind) && (!v.full || !r.quick) && r.pattern.MatchString(w.name+"/"+v.name) {
			variants = append(variants, v)
		}
	}
	return variants
}

// part are the contenders that take part.
func (r runner) part(kind testdb.Kind, w work, variants []variant) []contender {
	var part []contender
	for _, c := range r.contenders {
		takesPart := func(v variant) bool { return c.takesPart(w.name, v.name) }
		if slices.Contains(c.on, kind) && r.who.MatchString(c.name) && slices.ContainsFunc(variants, takesPart) {
			part = append(part, c)
		}
	}
	return part
}

// turn is a contender at a variant.
type turn struct {
	contender
	variant
}

// turns are the samples of a round. No contender is first in every round, and samples that are
// compared follow each other.
func turns(w work, variants []variant, part []contender, round int) []turn {
	var turns []turn
	add := func(c contender, v variant) {
		if c.takesPart(w.name, v.name) {
			turns = append(turns, turn{c, v})
		}
	}
	first := round % max(len(part), 1)
	part = slices.Concat(part[first:], part[:first])
	if w.ratioToFirst {
		for _, c := range part {
			for _, v := range variants {
				add(c, v)
			}
		}
		return turns
	}
	for _, v := range variants {
		for _, c := range part {
			add(c, v)
		}
	}
	return turns
}

// measurement is the result of a sample.
type measurement struct {
	values []float64
	steal  float64 // percent
	again  int     // deliveries of an event beyond the first
}

// take takes a sample, repeats the sample if it says little, and returns the least disturbed
// measurement.
func (r runner) take(ctx context.Context, kind testdb.Kind, t turn, where string) (measurement, error) {
	var best measurement
	for try := 1; ; try++ {
		before := r.cpu()
		m, err := r.sample(ctx, kind, t)
		m.steal = r.cpu().stealSince(before)
		if err == nil && (best.values == nil || m.steal < best.steal) {
			best = m
		}
		repeat := err == nil && !r.quick && m.steal > disturbed ||
			err != nil && r.quick && t.peer // a peer may wait for transactions of other programs
		if !repeat || try == tries || ctx.Err() != nil {
			return best, err
		}
		fmt.Fprintf(os.Stderr, "repeated: %s: steal %.0f %%, error %v\n", where, m.steal, err)
	}
}

// sample measures once, on a separate database.
func (r runner) sample(ctx context.Context, kind testdb.Kind, t turn) (m measurement, err error) {
	cleanup := context.WithoutCancel(ctx)
	limit := sampleTime
	if r.quick {
		limit = quickSampleTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	db, err := createDatabase(ctx, kind)
	if err != nil {
		return m, err
	}
	defer func() { err = firstError(err, db.drop(cleanup)) }()
	opened, err := t.open(ctx, db)
	if err != nil {
		return m, err
	}
	defer func() { err = firstError(err, opened.Close()) }()
	s := &sample{system: opened, db: db, scale: r.scale, slice: r.slice, heard: newArrivals()}
	runtime.GC()
	m.values, err = t.measure(ctx, s)
	err = firstError(err, s.stop())
	m.again = int(s.heard.again.Load())
	if err == nil && m.again > 0 && !t.peer {
		err = fmt.Errorf("it delivered an event again %s", plural(m.again, "time"))
	}
	return m, err
}
