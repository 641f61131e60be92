// Package ulid makes ULIDs (https://github.com/ulid/spec): 48 bits of
// milliseconds and 80 random bits, as 26 characters of Crockford's base 32,
// which sort by time.
package ulid

import (
	"crypto/rand"
	"encoding/binary"
	"strings"
	"sync"
	"time"
)

const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// Generator makes ULIDs, each greater than the ULID before. A Generator is safe for concurrent use;
// the zero value is ready.
type Generator struct {
	mu   sync.Mutex
	ms   uint64
	high uint16 // the upper 16 of the 80 random bits
	low  uint64 // the lower 64 bits
}

var process Generator

// Time is the time in a ULID, to the millisecond; false: the text is no ULID as New writes it.
func Time(id string) (time.Time, bool) {
	if len(id) != 26 || id[0] > '7' {
		return time.Time{}, false
	}
	var ms uint64
	for i := range len(id) {
		digit := strings.IndexByte(alphabet, id[i])
		if digit < 0 {
			return time.Time{}, false
		}
		if i < 10 {
			ms = ms<<5 | uint64(digit)
		}
	}
	return time.UnixMilli(int64(ms)).UTC(), true //nolint:gosec // 48 bits
}

// New makes a ULID for the time, greater than every ULID made before in this process.
func New(now time.Time) string { return process.New(now) }

// New makes a ULID for the time. When the time did not advance since the last ULID, or went back,
// the next ULID is the last ULID plus one.
func (g *Generator) New(now time.Time) string {
	ms := uint64(max(now.UnixMilli(), 0))
	g.mu.Lock()
	if ms > g.ms {
		g.ms = ms
		g.seed()
	} else {
		g.low++
		if g.low == 0 {
			g.high++
			if g.high == 0 { // the random part is used up: borrow from the time
				g.ms++
				g.seed()
			}
		}
	}
	ms, high, low := g.ms, g.high, g.low
	g.mu.Unlock()
	return encode(ms, high, low)
}

func (g *Generator) seed() {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	g.high = binary.BigEndian.Uint16(b[:2])
	g.low = binary.BigEndian.Uint64(b[2:])
}

func encode(ms uint64, high uint16, low uint64) string {
	var b [26]byte
	for i := 9; i >= 0; i-- {
		b[i] = alphabet[ms&31]
		ms >>= 5
	}
	for i := 25; i >= 14; i-- { // 12 characters are 60 bits of low
		b[i] = alphabet[low&31]
		low >>= 5
	}
	rest := uint64(high)<<4 | low // the 20 bits that are left
	for i := 13; i >= 10; i-- {
		b[i] = alphabet[rest&31]
		rest >>= 5
	}
	return string(b[:])
}
