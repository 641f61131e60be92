package httptx

import (
	"bytes"
	"io"
	"net/http"
	"sync"
)

// body is the body of a request, for each attempt of the request.
type body struct {
	rest io.ReadCloser
	// limit is how many bytes are kept for another attempt. Zero: the only attempt reads rest.
	limit int

	reading sync.Mutex // is held while rest is read, which may take as long as the client likes

	mu      sync.Mutex
	kept    []byte // read from rest so far
	lost    bool   // more than limit bytes were read
	reads   int    // that are running
	current *opened
}

// set is called once. read is the whole body if it was read before; else the first ahead bytes are read.
func (b *body) set(r *http.Request, read []byte, ahead int64, limit int) {
	b.rest = r.Body
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	if read == nil && ahead > 0 {
		var err error
		if read, err = io.ReadAll(io.LimitReader(r.Body, ahead)); err != nil {
			b.rest = broken{err, r.Body}
		}
	}
	switch {
	case limit > 0:
		b.kept, b.limit = read, max(limit, len(read))
	case read != nil:
		b.rest = &aheadBody{Reader: io.MultiReader(bytes.NewReader(read), b.rest), Closer: r.Body}
	}
}

// open returns the body from its beginning. A body that was opened before is not read any more.
func (b *body) open() io.ReadCloser {
	if b.limit == 0 {
		return b.rest
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current = &opened{body: b}
	return b.current
}

// isLost reports whether the beginning of the body is lost, so that the request cannot be run again. A
// goroutine that still reads would take a part of the body.
func (b *body) isLost() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost || b.reads > 0
}

// opened is the body of an attempt.
type opened struct {
	body *body
	at   int // bytes that were read
}

func (o *opened) Read(p []byte) (int, error) {
	if n, err, done := o.begin(p); done {
		return n, err
	}
	o.body.reading.Lock()
	n, err := o.body.rest.Read(p)
	o.body.reading.Unlock()
	o.end(p[:n])
	return n, err
}

// begin reads the kept part, or begins a read of the rest.
func (o *opened) begin(p []byte) (n int, err error, done bool) { //nolint:revive // the error is not the failure of begin
	b := o.body
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current != o {
		return 0, http.ErrBodyReadAfterClose, true
	}
	if o.at < len(b.kept) {
		n = copy(p, b.kept[o.at:])
		o.at += n
		return n, nil, true
	}
	b.reads++
	return 0, nil, false
}

// end keeps a part of the rest that was read.
func (o *opened) end(read []byte) {
	b := o.body
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads--
	o.at += len(read)
	if b.lost = b.lost || o.at > b.limit; b.lost {
		b.kept = nil
	} else {
		b.kept = append(b.kept, read...)
	}
}

// Close leaves the rest to the server, because another attempt may read it.
func (o *opened) Close() error {
	o.body.mu.Lock()
	defer o.body.mu.Unlock()
	if o.body.current == o {
		o.body.current = nil
	}
	return nil
}

// aheadBody is a request body whose beginning has been read.
type aheadBody struct {
	io.Reader
	io.Closer
}

// broken returns the error that the body returned once.
type broken struct {
	err error
	io.Closer
}

func (b broken) Read([]byte) (int, error) { return 0, b.err }
