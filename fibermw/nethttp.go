package fibermw

import (
	"bytes"
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

// requestOf is Fiber's request for code of net/http. Fasthttp uses the memory of a request again, so
// all strings are copies.
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
	if form, err := own.MultipartForm(); err == nil {
		request.PostForm, request.Body = form.Value, io.NopCloser(files(form))
	} else if own.IsBodyStream() {
		request.Body = io.NopCloser(own.BodyStream())
	} else if body := own.Body(); len(body) > 0 {
		request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	return request.WithContext(c.Context())
}

// files are the files of a form, in the order of the fields' names. Fasthttp has taken the form apart,
// and would put the parts together in any order.
func files(form *multipart.Form) io.Reader {
	var parts []io.Reader
	for _, field := range slices.Sorted(maps.Keys(form.File)) {
		for _, file := range form.File[field] {
			parts = append(parts, strings.NewReader(fmt.Sprintf("%q %q %d\n", field, file.Filename, file.Size)), &lazyFile{header: file})
		}
	}
	return io.MultiReader(parts...)
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
	if w.ignored = w.handled && w.header.Get(httptx.ReplayedHeader) == ""; w.ignored {
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
		request := requestOf(c)
		return adaptor.HTTPHandlerFunc(func(w http.ResponseWriter, _ *http.Request) { h.ServeHTTP(w, request) })(c)
	}
}

// handler runs a handler of net/http that does not stream. The handler's context is c.Context().
func handler(h http.Handler) fiber.Handler {
	return func(c fiber.Ctx) error {
		h.ServeHTTP(&writer{c: c, header: http.Header{}}, requestOf(c))
		return nil
	}
}
