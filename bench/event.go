package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// payloadBytes is the length of every event's payload.
const payloadBytes = 200

var pad = strings.Repeat("x", payloadBytes)

// payload is the JSON of an event. The number is the first run of digits in the payload, also after
// a database has formatted the payload.
func payload(n int) string {
	head := `{"n":` + strconv.Itoa(n) + `,"pad":"`
	return head + pad[:payloadBytes-len(head)-2] + `"}`
}

// number is the number of the event that has the payload.
func number(payload string) int {
	start := strings.IndexAny(payload, "0123456789")
	n := 0
	for i := max(start, 0); i < len(payload) && payload[i] >= '0' && payload[i] <= '9'; i++ {
		n = 10*n + int(payload[i]-'0')
	}
	return n
}

// eventID is the id of an event that is written by hand. The ids sort by number, as ids made by
// time do.
func eventID(n int) string { return fmt.Sprintf("01BENCH%019d", n) }

// maxEvents is the most events of a sample.
const maxEvents = 1 << 21

// arrivals knows which events arrived.
type arrivals struct {
	seen  [maxEvents / 32]atomic.Uint32
	got   atomic.Int64
	again atomic.Int64 // deliveries of an event beyond the first
	want  atomic.Int64
	all   chan struct{}
}

func newArrivals() *arrivals {
	a := &arrivals{all: make(chan struct{}, 1)}
	a.want.Store(math.MaxInt64)
	return a
}

// hear counts the event and reports whether it is the first time.
func (a *arrivals) hear(n int) bool {
	bit := uint32(1) << (n % 32)
	if a.seen[n/32].Or(bit)&bit != 0 {
		a.again.Add(1)
		return false
	}
	if a.got.Add(1) >= a.want.Load() {
		select {
		case a.all <- struct{}{}:
		default:
		}
	}
	return true
}

func (a *arrivals) listen(n int) error { a.hear(n); return nil }

// wait returns when so many different events have arrived.
func (a *arrivals) wait(ctx context.Context, want int) error {
	a.want.Store(int64(want))
	for int(a.got.Load()) < want {
		select {
		case <-a.all:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d events arrived: %w", a.got.Load(), want, ctx.Err())
		}
	}
	return nil
}

// waitStored returns when no event is pending.
func waitStored(ctx context.Context, s system) error {
	for {
		n, err := s.Pending(ctx)
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d events are still pending: %w", n, ctx.Err())
		}
	}
}
