package httptx

import (
	"bytes"
	"io"
	"net/http"
)

// aheadBody is a request body whose beginning has been read.
type aheadBody struct {
	io.Reader
	io.Closer
}

// readAhead reads up to limit bytes of the request's body, and returns a body that starts with
// these bytes. The handler gets an error of reading where it occurred.
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

// brokenReader returns the error that the body returned once.
type brokenReader struct{ err error }

func (b brokenReader) Read([]byte) (int, error) { return 0, b.err }
