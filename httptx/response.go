package httptx

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/outboxkit/outbox-go/idempotency"
)

// heldResponse is a writer that holds the response back until the transaction has ended. It has no
// Unwrap method, because [http.ResponseController] would then bypass it.
type heldResponse struct {
	http.ResponseWriter             // the writer below
	initial             http.Header // the headers before the handler ran
	maxBuffer           int
	attempt             *attempt

	status int         // zero until a status is written
	header http.Header // a copy of the headers, made when the status was written
	body   bytes.Buffer
	sent   bool  // writes go to the writer below
	err    error // writes are refused with this error
}

var errAnswered = errors.New("httptx: the request has been answered already")

// holding reports whether the response still waits for the end of the
// transaction.
func (h *heldResponse) holding() bool { return !h.sent && h.err == nil }

// WriteHeader implements [http.ResponseWriter]. Informational responses are not
// held back.
func (h *heldResponse) WriteHeader(status int) {
	switch {
	case h.err != nil:
	case h.sent:
		if h.status == 0 && status >= 200 {
			h.status = status
		}
		h.ResponseWriter.WriteHeader(status)
	case status < 100 || status > 999:
		// net/http would panic too, but only after the commit.
		panic(fmt.Sprintf("httptx: invalid status %d", status))
	case status < 200 && status != http.StatusSwitchingProtocols:
		h.ResponseWriter.WriteHeader(status)
	case h.status == 0:
		h.status, h.header = status, h.Header().Clone()
	}
}

// Write implements [http.ResponseWriter]. A body that outgrows the buffer ends
// the transaction.
func (h *heldResponse) Write(b []byte) (int, error) {
	if h.holding() {
		if h.status == 0 {
			h.WriteHeader(http.StatusOK)
		}
		if h.body.Len()+len(b) <= h.maxBuffer {
			return h.body.Write(b)
		}
		if err := h.release(http.StatusOK); err != nil {
			return 0, err
		}
	}
	if h.err != nil {
		return 0, h.err
	}
	if h.status == 0 {
		h.status = http.StatusOK
	}
	return h.ResponseWriter.Write(b)
}

// release ends the transaction and sends the held-back response. The status is for a response that
// has no status yet.
func (h *heldResponse) release(status int) error {
	if !h.holding() {
		return h.err
	}
	if h.status != 0 {
		status = h.status
	}
	if h.err = h.attempt.end(status); h.err != nil {
		return h.err
	}
	h.sent = true
	if h.status == 0 {
		return nil
	}
	var late http.Header
	if !maps.EqualFunc(h.header, h.Header(), slices.Equal) {
		late = maps.Clone(h.Header())
		h.setHeader(h.header)
	}
	h.ResponseWriter.WriteHeader(h.status)
	var err error
	if h.body.Len() > 0 {
		_, err = h.ResponseWriter.Write(h.body.Bytes())
		h.body = bytes.Buffer{}
	}
	maps.Copy(h.Header(), late) // the late headers include the trailers
	return err
}

// drop drops the held-back response, including the headers.
func (h *heldResponse) drop() {
	h.status, h.body = 0, bytes.Buffer{}
	h.setHeader(h.initial)
}

// replace replaces the held-back response by the stored answer of another request.
func (h *heldResponse) replace(answer *idempotency.Answer) {
	h.drop()
	h.status, h.header = answer.Status, h.Header().Clone()
	withStored(h.header, *answer)
	h.setHeader(h.header)
	h.body.Write(answer.Body)
}

// setHeader fills the header map, which belongs to the writer below.
func (h *heldResponse) setHeader(header http.Header) {
	clear(h.Header())
	maps.Copy(h.Header(), header)
}

// FlushError is the method that [http.ResponseController] calls. It ends the transaction first. If
// the writer below cannot flush, FlushError does not end the transaction: the response stays held
// back, and the error is [http.ErrNotSupported].
func (h *heldResponse) FlushError() error {
	if h.holding() && !can[interface{ Flush() }](h.ResponseWriter) && !can[interface{ FlushError() error }](h.ResponseWriter) {
		return http.ErrNotSupported
	}
	if err := h.release(http.StatusOK); err != nil {
		return err
	}
	if h.status == 0 {
		h.status = http.StatusOK
	}
	return http.NewResponseController(h.ResponseWriter).Flush()
}

// Flush implements [http.Flusher].
func (h *heldResponse) Flush() { _ = h.FlushError() }

// Hijack implements [http.Hijacker]. It ends the transaction first, except on a connection that
// cannot be hijacked, such as an HTTP/2 connection: the handler can still answer with an error
// then.
func (h *heldResponse) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if !can[http.Hijacker](h.ResponseWriter) {
		return nil, nil, http.ErrNotSupported
	}
	if err := h.release(http.StatusSwitchingProtocols); err != nil {
		return nil, nil, err
	}
	return http.NewResponseController(h.ResponseWriter).Hijack()
}

// can reports whether the innermost writer has a method. Writers around the innermost writer have
// most methods, whatever the innermost writer can do.
func can[T any](w http.ResponseWriter) bool {
	for {
		switch v := w.(type) {
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		case *heldResponse:
			w = v.ResponseWriter
		default:
			_, ok := w.(T)
			return ok
		}
	}
}

// SetReadDeadline is for [http.ResponseController].
func (h *heldResponse) SetReadDeadline(deadline time.Time) error {
	return http.NewResponseController(h.ResponseWriter).SetReadDeadline(deadline)
}

// SetWriteDeadline is for [http.ResponseController].
func (h *heldResponse) SetWriteDeadline(deadline time.Time) error {
	return http.NewResponseController(h.ResponseWriter).SetWriteDeadline(deadline)
}

// EnableFullDuplex is for [http.ResponseController].
func (h *heldResponse) EnableFullDuplex() error {
	return http.NewResponseController(h.ResponseWriter).EnableFullDuplex()
}
