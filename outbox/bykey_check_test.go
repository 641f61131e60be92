package outbox_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The lines of a listeners' log: a kind, the key, the event and the process. The
// number of an event within its key ends its id.
const (
	began     = "began"
	succeeded = "succeeded"
	stopped   = "stopped"
)

// checkedKeys is what a listeners' log shows.
type checkedKeys struct {
	wrong                    []string
	keys                     map[string]*checkedKey
	deliveries, again, stops int
}

type checkedKey struct {
	last      int // the event whose delivery began last; -1: none
	succeeded map[int]bool
}

// checkKeys checks the order within each key of a log, to which all processes append:
//
//   - A delivery is that of the event behind the one that was delivered last, and that
//     one has succeeded; or it repeats that one or an earlier event, and then the
//     events behind it come again.
//   - The last delivery of a key is that of its last event, and all events succeeded.
//
// So an event is delivered first when all earlier ones have succeeded, and the last
// deliveries of the events are in order too.
func checkKeys(log string, events int) checkedKeys {
	c := checkedKeys{keys: map[string]*checkedKey{}}
	for i, line := range strings.Split(strings.TrimSpace(log), "\n") {
		var kind, name, id string
		var process int
		if _, err := fmt.Sscan(line, &kind, &name, &id, &process); err != nil {
			c.wrong = append(c.wrong, fmt.Sprintf("line %d, %q: %v", i+1, line, err))
			continue
		}
		number, _ := strconv.Atoi(id[strings.LastIndex(id, "-")+1:])
		key := c.keys[name]
		if key == nil {
			key = &checkedKey{last: -1, succeeded: map[int]bool{-1: true}}
			c.keys[name] = key
		}
		switch kind {
		case stopped:
			c.stops++
		case succeeded:
			key.succeeded[number] = true
		default:
			c.deliveries++
			if number <= key.last {
				c.again++
			} else if number != key.last+1 || !key.succeeded[key.last] {
				c.wrong = append(c.wrong, fmt.Sprintf("line %d, %q: the delivery before was that of %d", i+1, line, key.last))
			}
			key.last = number
		}
	}
	for name, key := range c.keys {
		if key.last != events-1 {
			c.wrong = append(c.wrong, fmt.Sprintf("%s: the last delivery was that of %d", name, key.last))
		}
		if n := len(key.succeeded) - 1; n != events {
			c.wrong = append(c.wrong, fmt.Sprintf("%s: %d of %d events succeeded", name, n, events))
		}
	}
	return c
}

// The checker finds what it is for.
func TestTheCheckerOfOrderFindsInversions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		log   string
		wrong int
	}{
		"in order":                      {"0 0! 1 1! 2 2!", 0},
		"a failure":                     {"0 0! 1 1 1! 2 2!", 0},
		"from an earlier one on":        {"0 0! 1 1! 2 0 0! 1 1! 2 2!", 0},
		"a late answer":                 {"0 0! 1 1! 2 2 2! 2!", 0},
		"a gap":                         {"0 0! 2 2! 1 1! 2", 1},
		"behind a failure":              {"0 1 0 0! 1 1! 2 2!", 1},
		"an early one after a late one": {"0 0! 1 1! 2 2! 1 1!", 1},
		"a late one after going on":     {"0 0! 1 0 0! 2 2! 1 1! 2", 1},
		"one never succeeds":            {"0 0! 1 1! 2", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log strings.Builder
			for _, event := range strings.Fields(c.log) {
				number, done := strings.CutSuffix(event, "!")
				fmt.Fprintln(&log, map[bool]string{false: began, true: succeeded}[done], "k", "k-0000"+number, 1)
			}
			require.Len(t, checkKeys(log.String(), 3).wrong, c.wrong)
		})
	}
}
