package webhook

import (
	"errors"
	"sync"
	"time"
)

// slow bounds the requests to slow endpoints together, so that workers are left for the other endpoints however
// many endpoints hang. An endpoint is slow from the moment when a request is late until a request is not late. A
// request to a slow endpoint needs a place to begin, and a request that is late needs a place to go on. So a
// request without a place holds its worker no longer than `after`.
type slow struct {
	after time.Duration // how long a request runs until it is late
	most  int           // places

	mu   sync.Mutex
	of   map[string]*pace // endpoints that are slow, or have a request
	busy int              // places that are taken
}

// pace is how fast an endpoint is.
type pace struct {
	slow    bool
	running int
}

// call is a request to an endpoint.
type call struct {
	s        *slow
	id       string
	hasPlace bool
	isLate   bool
	ended    bool
}

const (
	// slowFor is how long an endpoint waits when the requests to other slow endpoints have all places.
	slowFor = 30 * time.Second
	// maxSlow is how many endpoints are remembered. Of more endpoints, each request begins as to a fast endpoint.
	maxSlow = 100_000
)

var (
	errSlow    = errors.New("webhook: the endpoint is slow, and waits for the requests to other slow endpoints")
	errGivenUp = errors.New("webhook: the endpoint did not answer soon, and the request was given up, because requests to other slow endpoints have all places")
)

// begin notes that a request begins; nil: the request has to wait.
func (s *slow) begin(id string) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &call{s: s, id: id}
	p := s.of[id]
	if p != nil && p.slow && !c.takePlace() {
		return nil
	}
	if p == nil {
		p = &pace{}
		s.of[id] = p
	}
	p.running++
	return c
}

// late notes that the request has run for long, and reports whether the request may go on.
func (c *call) late() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.ended {
		return true
	}
	c.isLate, c.s.of[c.id].slow = true, true
	return c.takePlace()
}

func (c *call) takePlace() bool {
	if !c.hasPlace && c.s.busy < c.s.most {
		c.hasPlace = true
		c.s.busy++
	}
	return c.hasPlace
}

// end notes that the request ended.
func (c *call) end() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.ended = true
	if c.hasPlace {
		c.s.busy--
	}
	p := c.s.of[c.id]
	p.running--
	p.slow = c.isLate
	if p.running == 0 && (!p.slow || len(c.s.of) > maxSlow) {
		delete(c.s.of, c.id)
	}
}

// forget forgets an endpoint that is gone, unless a request runs.
func (s *slow) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.of[id]; p != nil && p.running == 0 {
		delete(s.of, id)
	}
}
