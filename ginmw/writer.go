package ginmw

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

// writer is gin's writer on top of a writer that holds the response back. Like gin's own writer, it
// remembers a status until something is written.
type writer struct {
	gin.ResponseWriter                     // gin's own, for methods that do not write
	held               http.ResponseWriter // the exchange's
	initial            int                 // the status that outer handlers chose
	status             int
	size               int  // -1 until the header is written
	now                bool // the handler wrote the header
}

var errWritten = errors.New("ginmw: the response body is written already")

// below is the writer that the exchange writes to. A status without a body stays a status that the
// middlewares outside can replace, unless the handler wrote the header.
type below struct{ x *exchange }

// Unwrap is for [http.ResponseController].
func (b below) Unwrap() http.ResponseWriter { return b.x.outer }

func (b below) Header() http.Header            { return b.x.outer.Header() }
func (b below) Write(data []byte) (int, error) { return b.x.outer.Write(data) }

func (b below) WriteHeader(status int) {
	b.x.outer.WriteHeader(status)
	if b.x.writer.now {
		b.x.outer.WriteHeaderNow()
	}
}

// Unwrap is for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.held }

func (w *writer) Header() http.Header { return w.held.Header() }
func (w *writer) Status() int         { return w.status }
func (w *writer) Size() int           { return w.size }
func (w *writer) Written() bool       { return w.size >= 0 }

func (w *writer) WriteHeader(status int) {
	if status > 0 && !w.Written() {
		w.status = status
	}
}

func (w *writer) WriteHeaderNow() {
	if !w.Written() {
		w.size, w.now = 0, true
		w.held.WriteHeader(w.status)
	}
}

// writeStatus passes on a status that a handler chose without writing the header, or that gin chose
// because it has no route.
func (w *writer) writeStatus() {
	if !w.Written() && (w.status != w.initial || w.initial != http.StatusOK) {
		w.held.WriteHeader(w.status)
	}
}

func (w *writer) Write(data []byte) (int, error) {
	w.WriteHeaderNow()
	n, err := w.held.Write(data)
	w.size += n
	return n, err
}

func (w *writer) WriteString(s string) (int, error) {
	w.WriteHeaderNow()
	n, err := io.WriteString(w.held, s)
	w.size += n
	return n, err
}

// FlushError is the method that [http.ResponseController] calls.
func (w *writer) FlushError() error {
	w.WriteHeaderNow()
	return http.NewResponseController(w.held).Flush()
}

func (w *writer) Flush() { _ = w.FlushError() }

func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.size > 0 {
		return nil, nil, errWritten
	}
	conn, buffered, err := http.NewResponseController(w.held).Hijack()
	if err == nil {
		w.size = max(w.size, 0)
	}
	return conn, buffered, err
}
