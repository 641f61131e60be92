package outbox_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The lines of a listeners' log: a kind, the key, the event and the delivery. The
// number of an event within its key ends its id.
//
// A delivery writes that it began, and asks the table then whether its process still
// has the event's lease. If so, no other process had the event as the line was
// written, so the lines of confirmed deliveries are in the order of the deliveries.
// If not, the process stood still for so long, between its own look at the lease and
// the line, that another one took the event over: docs/how-to/order-by-key.md, "A suspended
// process". Such a delivery has no place in the order, and neither has one whose
// process was killed before it had asked.
const (
	began     = "began"
	confirmed = "confirmed"
	overtaken = "overtaken"
	stopped   = "stopped"
	succeeded = "succeeded"
)

// checkedKeys is what a listeners' log shows.
type checkedKeys struct {
	wrong []string
	keys  map[string]*checkedKey
	// deliveries are those that were confirmed; again counts those of them that are
	// of the event delivered last, or of an earlier one.
	deliveries, again, overtaken, stops int
}

type checkedKey struct {
	last      int // the event whose delivery began last; -1: none
	succeeded map[int]bool
}

// keyLine is a line of the log.
type keyLine struct {
	text                string
	kind, key, delivery string
	event               int
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
	lines, inOrder := c.parse(log)
	for _, line := range lines {
		key := c.keys[line.key]
		if key == nil {
			key = &checkedKey{last: -1, succeeded: map[int]bool{-1: true}}
			c.keys[line.key] = key
		}
		switch line.kind {
		case overtaken:
			c.overtaken++
		case stopped:
			c.stops++
		case succeeded:
			key.succeeded[line.event] = true
		case began:
			if inOrder[line.delivery] {
				c.delivered(key, line)
			}
		}
	}
	for name, key := range c.keys {
		if key.last != events-1 {
			c.wrong = append(c.wrong, fmt.Sprintf("%s : the last delivery was that of %d", name, key.last))
		}
		if n := len(key.succeeded) - 1; n != events {
			c.wrong = append(c.wrong, fmt.Sprintf("%s : %d of %d events succeeded", name, n, events))
		}
	}
	return c
}

// parse returns the lines, and which deliveries were confirmed.
func (c *checkedKeys) parse(log string) (lines []keyLine, inOrder map[string]bool) {
	inOrder = map[string]bool{}
	for i, text := range strings.Split(strings.TrimSpace(log), "\n") {
		line := keyLine{text: fmt.Sprintf("line %d, %q", i+1, text)}
		var id string
		if _, err := fmt.Sscan(text, &line.kind, &line.key, &id, &line.delivery); err != nil {
			c.wrong = append(c.wrong, fmt.Sprintf("%s: %v", line.text, err))
			continue
		}
		line.event, _ = strconv.Atoi(id[strings.LastIndex(id, "-")+1:])
		lines = append(lines, line)
		if line.kind == confirmed {
			inOrder[line.delivery] = true
		}
	}
	return lines, inOrder
}

// delivered takes note of a delivery.
func (c *checkedKeys) delivered(key *checkedKey, line keyLine) {
	c.deliveries++
	if line.event <= key.last {
		c.again++
	} else if line.event != key.last+1 || !key.succeeded[key.last] {
		c.wrong = append(c.wrong, fmt.Sprintf("%s: the delivery before was that of %d", line.text, key.last))
	}
	key.last = line.event
}

// The checker finds what it is for. In these logs a number is a delivery that was
// confirmed; ! is the success of the last one, - follows one that was overtaken, and ?
// one whose process was killed before it was confirmed.
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
		"one that was overtaken":        {"0 0! 1 1! 2 1- 2!", 0},
		"overtaken, and later":          {"0 0! 2- 1 1! 2 2!", 0},
		"killed at once":                {"0 0! 1 1! 0? 2 2!", 0},
		"a gap":                         {"0 0! 2 2! 1 1! 2", 1},
		"behind a failure":              {"0 1 0 0! 1 1! 2 2!", 1},
		"behind one that was overtaken": {"0 0! 1- 2 2! 1 1! 2", 1},
		"behind one that was not made":  {"0 0! 1? 2 2! 1 1! 2", 1},
		"an early one after a late one": {"0 0! 1 1! 2 2! 1 1!", 1},
		"a late one after going on":     {"0 0! 1 0 0! 2 2! 1 1! 2", 1},
		"a takeover that misses one":    {"0 0! 2 2! 1 1!", 2},
		"the last one only overtaken":   {"0 0! 1 1! 2- 2!", 1},
		"one never succeeds":            {"0 0! 1 1! 2", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Len(t, checkKeys(logOf(c.log), 3).wrong, c.wrong)
		})
	}
}

// logOf writes the log of one key.
func logOf(short string) string {
	var log strings.Builder
	for i, word := range strings.Fields(short) {
		event := word[:1]
		for _, kind := range map[string][]string{"": {began, confirmed}, "!": {succeeded}, "-": {began, overtaken}, "?": {began}}[word[1:]] {
			fmt.Fprintf(&log, "%s k k-0000%s process-1/%d\n", kind, event, i)
		}
	}
	return log.String()
}
