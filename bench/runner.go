package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"time"

	"github.com/outboxkit/outbox-go/internal/testdb"
)

// runner measures one work on one database.
type runner struct {
	options
	pattern, who *regexp.Regexp
	kind         testdb.Kind
	work         work
}

// The most that one sample may take.
const (
	sampleTime      = 5 * time.Minute
	quickSampleTime = 20 * time.Second
)

// peerTries is how often a peer is tried in -quick.
const peerTries = 3

// measure runs every contender's variants, interleaved: each round has them all.
func (r runner) measure(ctx context.Context) (workResult, []error) {
	result := newWorkResult(r.kind, r.work, r.selected())
	if len(result.variants) == 0 {
		return result, nil
	}
	rounds := r.rounds
	if r.work.rounds > 0 {
		rounds = min(rounds, r.work.rounds)
	}
	result.Rounds, result.Taken = rounds, time.Now().UTC().Truncate(time.Second)
	var errs []error
	for round := range rounds {
		for _, v := range result.variants {
			var part []contender
			for _, c := range contenders() {
				if c.takesPart(r.work.name, v.name) && supports(c, r.kind) && r.who.MatchString(c.name) {
					part = append(part, c)
				}
			}
			for i := range part {
				c := part[(i+round)%len(part)] // nobody is always first
				where := fmt.Sprintf("%s, %s/%s, %s", r.kind, r.work.name, v.name, c.name)
				before, began := readCPU(), time.Now()
				values, err := r.sample(ctx, c, v)
				for try := 1; err != nil && c.peer && r.quick && try < peerTries && ctx.Err() == nil; try++ {
					fmt.Fprintf(os.Stderr, "%s: tried again: %v\n", where, err)
					values, err = r.sample(ctx, c, v)
				}
				if ctx.Err() != nil {
					return result, errs
				}
				if err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", where, err))
					fmt.Fprintln(os.Stderr, "failed:", err)
					continue
				}
				result.add(c, v, values)
				if r.verbose {
					fmt.Fprintf(os.Stderr, "%.1fs: %s\n", time.Since(began).Seconds(), where)
				}
				result.Steal = max(result.Steal, readCPU().stealSince(before))
			}
		}
	}
	return result, errs
}

// selected are the variants to run.
func (r runner) selected() []variant {
	var selected []variant
	for _, v := range r.work.variants {
		if r.work.supports(v, r.kind) && (!v.full || !r.quick) && r.pattern.MatchString(r.work.name+"/"+v.name) {
			selected = append(selected, v)
		}
	}
	return selected
}

func supports(c contender, kind testdb.Kind) bool {
	for _, k := range c.on {
		if k == kind {
			return true
		}
	}
	return false
}

// sample measures once, on a database of its own.
func (r runner) sample(ctx context.Context, c contender, v variant) (values []float64, err error) {
	cleanup := context.WithoutCancel(ctx)
	limit := sampleTime
	if r.quick {
		limit = quickSampleTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	db, err := createDatabase(ctx, r.kind)
	if err != nil {
		return nil, err
	}
	defer func() { err = firstError(err, db.drop(cleanup)) }()
	s, err := c.open(ctx, db)
	if err != nil {
		return nil, err
	}
	defer func() { err = firstError(err, s.Close()) }()
	runtime.GC()
	return v.measure(ctx, &sample{system: s, db: db, scale: r.scale, slice: r.slice})
}
