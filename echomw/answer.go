package echomw

import (
	"io"
	"net/http"
)

// overrule is before an answer of a handler, or of an Error that a context of the
// application's has in the place of [heldContext.Error]: one that tells a failure
// after a success was written takes the place of the success, instead of being
// appended to it.
func (h *heldContext) overrule(status int) {
	if status >= http.StatusBadRequest && h.x.gate.state == holding {
		h.x.takeBack(status, h.x.reported)
	}
}

// overruled follows the answer.
func (h *heldContext) overruled(err error) error {
	h.x.deafen()
	return err
}

// Render implements [echo.Context].
func (h *heldContext) Render(code int, name string, data any) error {
	h.overrule(code)
	return h.overruled(h.Context.Render(code, name, data))
}

// HTML implements [echo.Context].
func (h *heldContext) HTML(code int, html string) error {
	h.overrule(code)
	return h.overruled(h.Context.HTML(code, html))
}

// HTMLBlob implements [echo.Context].
func (h *heldContext) HTMLBlob(code int, b []byte) error {
	h.overrule(code)
	return h.overruled(h.Context.HTMLBlob(code, b))
}

// String implements [echo.Context].
func (h *heldContext) String(code int, s string) error {
	h.overrule(code)
	return h.overruled(h.Context.String(code, s))
}

// JSON implements [echo.Context].
func (h *heldContext) JSON(code int, i any) error {
	h.overrule(code)
	return h.overruled(h.Context.JSON(code, i))
}

// JSONPretty implements [echo.Context].
func (h *heldContext) JSONPretty(code int, i any, indent string) error {
	h.overrule(code)
	return h.overruled(h.Context.JSONPretty(code, i, indent))
}

// JSONBlob implements [echo.Context].
func (h *heldContext) JSONBlob(code int, b []byte) error {
	h.overrule(code)
	return h.overruled(h.Context.JSONBlob(code, b))
}

// JSONP implements [echo.Context].
func (h *heldContext) JSONP(code int, callback string, i any) error {
	h.overrule(code)
	return h.overruled(h.Context.JSONP(code, callback, i))
}

// JSONPBlob implements [echo.Context].
func (h *heldContext) JSONPBlob(code int, callback string, b []byte) error {
	h.overrule(code)
	return h.overruled(h.Context.JSONPBlob(code, callback, b))
}

// XML implements [echo.Context].
func (h *heldContext) XML(code int, i any) error {
	h.overrule(code)
	return h.overruled(h.Context.XML(code, i))
}

// XMLPretty implements [echo.Context].
func (h *heldContext) XMLPretty(code int, i any, indent string) error {
	h.overrule(code)
	return h.overruled(h.Context.XMLPretty(code, i, indent))
}

// XMLBlob implements [echo.Context].
func (h *heldContext) XMLBlob(code int, b []byte) error {
	h.overrule(code)
	return h.overruled(h.Context.XMLBlob(code, b))
}

// Blob implements [echo.Context].
func (h *heldContext) Blob(code int, contentType string, b []byte) error {
	h.overrule(code)
	return h.overruled(h.Context.Blob(code, contentType, b))
}

// Stream implements [echo.Context].
func (h *heldContext) Stream(code int, contentType string, r io.Reader) error {
	h.overrule(code)
	return h.overruled(h.Context.Stream(code, contentType, r))
}

// NoContent implements [echo.Context].
func (h *heldContext) NoContent(code int) error {
	h.overrule(code)
	return h.overruled(h.Context.NoContent(code))
}
