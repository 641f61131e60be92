package echomw

import (
	"bytes"
	"io"
	"net/http"
)

// readAhead reads up to limit bytes of the request's body, and returns a body
// that has them and what comes after them. An error is the reader's to find, at
// the place where it happened.
func readAhead(r *http.Request, limit int64) io.ReadCloser {
	if limit == 0 || r.Body == nil || r.Body == http.NoBody {
		return r.Body
	}
	read, err := io.ReadAll(io.LimitReader(r.Body, limit))
	rest := io.Reader(r.Body)
	if err != nil {
		rest = brokenReader{err}
	}
	return &aheadBody{Reader: io.MultiReader(bytes.NewReader(read), rest), Closer: r.Body}
}

// aheadBody is a body whose beginning was read.
type aheadBody struct {
	io.Reader
	io.Closer
}

// brokenReader fails again as the body has.
type brokenReader struct{ err error }

func (b brokenReader) Read([]byte) (int, error) { return 0, b.err }
