package fibermw

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/valyala/fasthttp"

	"github.com/outboxkit/outbox-go/httptx"
)

// requestOf is Fiber's request for code of net/http, whose body is in the memory of fasthttp. Fasthttp uses
// the memory of a request again, so all strings are copies.
func requestOf(c fiber.Ctx) *http.Request {
	own := c.Request()
	request := &http.Request{
		Method: strings.Clone(c.Method()), RequestURI: string(own.Header.RequestURI()), Host: string(own.Host()),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		RemoteAddr: c.RequestCtx().RemoteAddr().String(), TLS: c.RequestCtx().TLSConnectionState(),
		Header: http.Header{}, Body: http.NoBody,
	}
	for name, value := range own.Header.All() {
		request.Header.Add(string(name), string(value))
	}
	request.Header.Del("Host") // as in net/http
	var err error
	if request.URL, err = url.ParseRequestURI(request.RequestURI); err != nil {
		request.URL = &url.URL{Path: strings.Clone(c.Path())}
	}
	return request.WithContext(c.Context())
}

// withBody gives the request its body.
func withBody(request *http.Request, c fiber.Ctx) *http.Request {
	if own := c.Request(); own.IsBodyStream() {
		request.ContentLength = int64(max(own.Header.ContentLength(), -1))
		request.Body = io.NopCloser(&stream{rest: own.BodyStream(), left: request.ContentLength})
	} else if body := own.Body(); len(body) > 0 {
		request.ContentLength, request.Body = int64(len(body)), io.NopCloser(bytes.NewReader(body))
	}
	return request
}

// stream is a body whose client may leave, which fasthttp does not report.
type stream struct {
	rest io.Reader
	left int64 // negative: not known
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.rest.Read(b)
	if s.left >= 0 {
		if s.left -= int64(n); s.left > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		s.left = max(s.left, 0)
	}
	return n, err
}

// withForm gives the request a body for the fingerprint. Fasthttp may have taken a form apart, and would
// put the parts together in any order. A stream is not taken apart: it is read as it comes.
func withForm(request *http.Request, c fiber.Ctx) *http.Request {
	own := c.Request()
	if own.IsBodyStream() || !strings.HasPrefix(strings.ToLower(string(own.Header.ContentType())), "multipart/form-data") {
		return withBody(request, c)
	}
	request.ContentLength, request.Body = -1, io.NopCloser(&lazyBody{open: func() io.Reader {
		form, err := own.MultipartForm()
		if err != nil { // the handler gets the body as it came
			return bytes.NewReader(own.Body())
		}
		return parts(form)
	}})
	return request
}

// lazyBody is a body that is opened at the first Read.
type lazyBody struct {
	open func() io.Reader
	body io.Reader
}

func (l *lazyBody) Read(b []byte) (int, error) {
	if l.body == nil {
		l.body = l.open()
	}
	return l.body.Read(b)
}

// parts are the fields and the files of a form, in the order of their names.
func parts(form *multipart.Form) io.Reader {
	var list []io.Reader
	for _, field := range slices.Sorted(maps.Keys(form.Value)) {
		for _, value := range form.Value[field] {
			list = append(list, strings.NewReader(fmt.Sprintf("%q %q\n", field, value)))
		}
	}
	for _, field := range slices.Sorted(maps.Keys(form.File)) {
		for _, file := range form.File[field] {
			list = append(list, strings.NewReader(fmt.Sprintf("%q %q %d\n", field, file.Filename, file.Size)), &lazyFile{header: file})
		}
	}
	return io.MultiReader(list...)
}

// lazyFile opens a file at the first Read, and closes the file at the end.
type lazyFile struct {
	header *multipart.FileHeader
	file   multipart.File
}

func (l *lazyFile) Read(b []byte) (n int, err error) {
	if l.file == nil {
		if l.file, err = l.header.Open(); err != nil {
			return 0, err
		}
	}
	if n, err = l.file.Read(b); err != nil {
		_ = l.file.Close()
	}
	return n, err
}

// headerOf is a copy of a response's headers.
func headerOf(own *fasthttp.ResponseHeader) http.Header {
	header := http.Header{}
	for name, value := range own.All() {
		header.Add(string(name), string(value))
	}
	return header
}

// writer writes the answers of code of net/http to Fiber's response. After a handler of Fiber, the
// response is complete without the writer, unless the exchange replaces it by a stored answer.
type writer struct {
	c       fiber.Ctx
	header  http.Header
	handled bool // a handler of Fiber has run
	passed  bool // the handler has passed on a stored answer of another service
	written bool
	ignored bool
}

func (w *writer) Header() http.Header { return w.header }

// Flush lets the exchange end the transaction of a stream, which fasthttp sends later.
func (w *writer) Flush() {}

func (w *writer) WriteHeader(status int) {
	if w.written || status < http.StatusOK {
		return
	}
	w.written = true
	if w.ignored = w.handled && (w.passed || w.header.Get(httptx.ReplayedHeader) == ""); w.ignored {
		return
	}
	response := w.c.Response()
	response.ResetBody()
	if w.handled {
		response.Header.Reset() // the writer's headers include the headers of the middlewares outside
	}
	for name, values := range w.header {
		response.Header.Del(name)
		for _, value := range values {
			response.Header.Add(name, value)
		}
	}
	response.SetStatusCode(status)
}

func (w *writer) Write(b []byte) (int, error) {
	if w.WriteHeader(http.StatusOK); !w.ignored {
		w.c.Response().AppendBody(b)
	}
	return len(b), nil
}

// Handler runs a handler of net/http, such as the dashboard, whose responses may stream. The handler gets
// a copy of the request, whose context is c.Context() and carries the transaction. Fiber's own adaptor
// gives a handler the memory of fasthttp, which the next request uses while a stream goes on.
func Handler(h http.Handler) fiber.Handler {
	return func(c fiber.Ctx) error {
		request, stream := requestOf(c), c.Request().IsBodyStream()
		if !stream {
			request.Body = io.NopCloser(bytes.NewReader(bytes.Clone(c.Request().Body())))
		}
		return adaptor.HTTPHandlerFunc(func(w http.ResponseWriter, converted *http.Request) {
			if stream {
				request.Body = converted.Body
			}
			h.ServeHTTP(w, request)
		})(c)
	}
}

// handler runs a handler of net/http that does not stream. The handler's context is c.Context().
func handler(h http.Handler) fiber.Handler {
	return func(c fiber.Ctx) error {
		h.ServeHTTP(&writer{c: c, header: http.Header{}}, withBody(requestOf(c), c))
		return nil
	}
}
