package echomw

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"sync"
	"time"
)

// gateState says what becomes of what is written.
type gateState uint8

const (
	holding gateState = iota // it waits for the commit
	passing                  // the transaction has ended: it goes through
	failed                   // the commit has failed: it is refused
)

// gate is the writer under the response: it holds the response back until the
// transaction has ended. There is no Unwrap, or http.ResponseController would
// write around it.
type gate struct {
	http.ResponseWriter // the one below
	x                   *exchange

	state  gateState
	deaf   bool        // what is written from now on is not heard
	status int         // zero: none yet
	header http.Header // as it was when the status was said
	body   *[]byte
	err    error // of the commit, when failed
}

var (
	_ http.Flusher  = (*gate)(nil)
	_ http.Hijacker = (*gate)(nil)
	_ http.Pusher   = (*gate)(nil)
)

// keptBuffer is the largest buffer that goes back to the pool.
const keptBuffer = 64 << 10

var buffers = sync.Pool{New: func() any { return new([]byte) }}

var errOver = errors.New("echomw: the request has been answered already")

func (g *gate) statusOr(status int) int {
	if g.status != 0 {
		return g.status
	}
	return status
}

// WriteHeader implements [http.ResponseWriter]. Informational answers are not
// held back.
func (g *gate) WriteHeader(status int) {
	switch {
	case g.deaf || g.state == failed:
	case g.state == passing:
		g.ResponseWriter.WriteHeader(status)
	case status < 100 || status > 999:
		// net/http would say so after the commit.
		panic(fmt.Sprintf("echomw: invalid status %d", status))
	case status < 200 && status != http.StatusSwitchingProtocols:
		g.ResponseWriter.WriteHeader(status)
	default:
		g.answer(status)
	}
}

// answer holds the status, if it is the first, and the headers as they are now:
// what is set later is not for the client, as without the middleware.
func (g *gate) answer(status int) {
	if g.status == 0 {
		g.status, g.header = status, g.Header().Clone()
	}
}

// Write implements [http.ResponseWriter].
func (g *gate) Write(b []byte) (int, error) {
	switch {
	case g.state == failed:
		return 0, g.err
	case g.deaf:
		return len(b), nil
	case g.state == passing:
		return g.ResponseWriter.Write(b)
	}
	g.answer(http.StatusOK)
	if g.held()+len(b) > g.x.config.MaxBuffer {
		if err := g.open(); err != nil {
			return 0, err
		}
		return g.ResponseWriter.Write(b)
	}
	if g.body == nil {
		g.body = buffers.Get().(*[]byte)
	}
	*g.body = append(*g.body, b...)
	return len(b), nil
}

func (g *gate) held() int {
	if g.body == nil {
		return 0
	}
	return len(*g.body)
}

// open ends the transaction and lets what was held back through.
func (g *gate) open() error { return g.openWith(http.StatusOK) }

// openWith is open with the status that it is when nobody has said one.
func (g *gate) openWith(status int) error {
	switch g.state {
	case passing:
		return nil
	case failed:
		return g.err
	case holding:
	}
	if err := g.x.endEarly(g.statusOr(status)); err != nil {
		g.drop()
		g.state, g.err = failed, err
		return err
	}
	return g.release()
}

// release lets what was held back through.
func (g *gate) release() error {
	g.state = passing
	if g.status == 0 {
		return nil
	}
	trailers := trailersOf(g.header, g.Header())
	replace(g.Header(), g.header)
	g.ResponseWriter.WriteHeader(g.status)
	// Something may have answered without Echo's knowledge, as Timeout does.
	g.x.res.Committed, g.x.res.Status = true, g.status
	var err error
	if g.held() != 0 {
		_, err = g.ResponseWriter.Write(*g.body)
		g.drop()
	}
	maps.Copy(g.Header(), trailers) // only now: a writer below may not have sent the headers before
	return err
}

// drop forgets what is held back.
func (g *gate) drop() {
	g.status, g.header = 0, nil
	if g.body == nil {
		return
	}
	if cap(*g.body) <= keptBuffer {
		*g.body = (*g.body)[:0]
		buffers.Put(g.body)
	}
	g.body = nil
}

// close refuses whatever a goroutine that outlives the handler may write.
func (g *gate) close() {
	g.drop()
	if g.state != failed {
		g.state, g.err = failed, errOver
	}
}

// FlushError is what [http.ResponseController] calls. It commits first.
func (g *gate) FlushError() error {
	if g.deaf {
		return nil
	}
	if !can[http.Flusher](g.ResponseWriter) && !can[interface{ FlushError() error }](g.ResponseWriter) {
		return http.ErrNotSupported
	}
	if err := g.open(); err != nil {
		return err
	}
	return http.NewResponseController(g.ResponseWriter).Flush()
}

// Flush implements [http.Flusher] as FlushError does.
func (g *gate) Flush() { _ = g.FlushError() }

// Hijack implements [http.Hijacker]. It commits first.
func (g *gate) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if !can[http.Hijacker](g.ResponseWriter) { // as under HTTP/2
		return nil, nil, http.ErrNotSupported
	}
	if err := g.openWith(http.StatusSwitchingProtocols); err != nil {
		return nil, nil, err
	}
	return http.NewResponseController(g.ResponseWriter).Hijack()
}

// can says whether a writer, or one that it wraps, implements T: what cannot be
// done is no reason to commit.
func can[T any](w http.ResponseWriter) bool {
	for {
		if _, ok := w.(T); ok {
			return true
		}
		wrapper, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = wrapper.Unwrap()
	}
}

// SetReadDeadline is for [http.ResponseController].
func (g *gate) SetReadDeadline(deadline time.Time) error {
	return http.NewResponseController(g.ResponseWriter).SetReadDeadline(deadline)
}

// SetWriteDeadline is for [http.ResponseController].
func (g *gate) SetWriteDeadline(deadline time.Time) error {
	return http.NewResponseController(g.ResponseWriter).SetWriteDeadline(deadline)
}

// EnableFullDuplex is for [http.ResponseController].
func (g *gate) EnableFullDuplex() error {
	return http.NewResponseController(g.ResponseWriter).EnableFullDuplex()
}

// Push implements [http.Pusher].
func (g *gate) Push(target string, opts *http.PushOptions) error {
	if pusher, ok := g.ResponseWriter.(http.Pusher); ok {
		return pusher.Push(target, opts)
	}
	return http.ErrNotSupported
}
