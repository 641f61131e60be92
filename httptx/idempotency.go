package httptx

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/outboxkit/outbox-go/idempotency"
	"github.com/outboxkit/outbox-go/outbox"
)

// KeyHeader is the header with the key that the client chose; see [Idempotency].
const KeyHeader = "Idempotency-Key"

// ReplayedHeader with the value "true" is the header of an answer that was stored with a key and is sent again.
const ReplayedHeader = "Idempotent-Replayed"

// DefaultMaxKeyedBody is the default of [Idempotency].MaxBody: 1 MiB.
const DefaultMaxKeyedBody = 1 << 20

// KeyUse is the use of a request's key.
type KeyUse int

// The uses of keys.
const (
	KeyOptional KeyUse = iota // a request without a key runs as if there were no keys
	KeyRequired               // a request without a key is answered 400
	KeyIgnored                // a key is not looked at
)

// Idempotency lets a client send a request again that got no answer. The client chooses a key for each
// request and sends it in the header Idempotency-Key, as a string in quotes or without quotes. The key
// and the answer are stored in the transaction of the request. The same request with the same key gets
// the stored answer, with the header Idempotent-Replayed. A request that was rolled back stores nothing,
// so that the client may send it again.
//
// Another request with the same key is answered 422, and the same request while the first is running and
// does not end in time is answered 409 with Retry-After. See the [draft] of the IETF.
//
// [draft]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/
type Idempotency struct {
	// Keys stores keys and answers: the result of [idempotency.New]. Required.
	Keys *idempotency.Keys
	// Use says whether a request needs a key. Nil: keys are optional.
	Use func(r *http.Request) KeyUse
	// Scope is whose key it is: the tenant, or the user. Two scopes never share a key. Without Scope, a
	// client that guesses a key and the request gets the answer of another client.
	Scope func(r *http.Request) string
	// Headers of the request are a part of the request. The method, the path, the query and the body are in
	// any case.
	Headers []string
	// AnswerHeaders are the headers of the response that are stored. Nil means headers that describe the
	// body, Location and caching. Cookies are not stored by default.
	AnswerHeaders []string
	// MaxBody is how many bytes the body of a request with a key has at most. The body is read into memory
	// before the transaction begins. A longer body is answered 413. Defaults to [DefaultMaxKeyedBody].
	MaxBody int64
	// StoreFailure says whether the answer of a request that was rolled back is stored all the same, by
	// status, such as 402. An answer without a body, which a middleware outside may write, is not stored.
	// Nil: never, since nothing happened.
	StoreFailure func(r *http.Request, status int) bool
	// WithoutBody sends the status and the headers alone when a request is repeated whose body was not
	// stored: the handler streamed, took over the connection, or wrote more than MaxBuffer. By default
	// the answer is 409.
	WithoutBody bool
	// ErrorHandler answers a request that is refused because of the key. Defaults to a problem document
	// (RFC 9457).
	ErrorHandler func(w http.ResponseWriter, r *http.Request, err *KeyError)
}

// KeyError says why the key of a request refuses the request.
type KeyError struct {
	// Status of the response: 400, 409, 413 or 422.
	Status int
	// Detail is for the client.
	Detail string
	// RetryAfter is the value of the header Retry-After, in seconds; zero: no such header.
	RetryAfter int

	done bool // the request was done before
}

// Error implements the error interface.
func (e *KeyError) Error() string { return "httptx: " + e.Detail }

// answerHeaders is the default of [Idempotency].AnswerHeaders.
var answerHeaders = []string{
	"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Type",
	"ETag", "Expires", "Last-Modified", "Link", "Location", "Vary",
}

// withDefaults checks a copy of the config.
func (config *Idempotency) withDefaults() (*Idempotency, error) {
	if config == nil {
		return nil, nil
	}
	c := *config
	var problems []error
	add := func(field, problem string) {
		problems = append(problems, &outbox.FieldError{Field: "TransactionConfig.Idempotency." + field, Problem: problem})
	}
	if c.Keys == nil {
		add("Keys", "is required; give what idempotency.New returns")
	}
	if c.MaxBody < 0 {
		add("MaxBody", fmt.Sprintf("is %d; it must be positive, or zero for %d", c.MaxBody, DefaultMaxKeyedBody))
	}
	if c.MaxBody == 0 {
		c.MaxBody = DefaultMaxKeyedBody
	}
	c.MaxBody = min(c.MaxBody, math.MaxInt64-1) // a reader is limited to one byte more
	if c.AnswerHeaders == nil {
		c.AnswerHeaders = answerHeaders
	}
	c.Headers, c.AnswerHeaders = slices.Clone(c.Headers), slices.Clone(c.AnswerHeaders)
	if c.ErrorHandler == nil {
		c.ErrorHandler = answerProblem
	}
	return &c, errors.Join(problems...)
}

// answerProblem is the default ErrorHandler.
func answerProblem(w http.ResponseWriter, _ *http.Request, err *KeyError) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(err.Status)
	_ = json.NewEncoder(w).Encode(struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(err.Status), err.Status, err.Detail})
}

// keyOf is the key of a request; empty: the request has no key.
func (config *Idempotency) keyOf(r *http.Request) (string, *KeyError) {
	use := KeyOptional
	if config.Use != nil {
		use = config.Use(r)
	}
	values := r.Header.Values(KeyHeader)
	switch {
	case use == KeyIgnored, use == KeyOptional && len(values) == 0:
		return "", nil
	case len(values) == 0:
		return "", &KeyError{Status: http.StatusBadRequest, Detail: "the header " + KeyHeader + " is required: a string that the client chooses, and repeats when it sends the request again"}
	case len(values) > 1:
		return "", &KeyError{Status: http.StatusBadRequest, Detail: fmt.Sprintf("there are %d headers %s; send one", len(values), KeyHeader)}
	}
	key, ok := parseKey(values[0])
	if !ok || key == "" || len(key) > idempotency.MaxKeyLength {
		return "", &KeyError{Status: http.StatusBadRequest, Detail: fmt.Sprintf("the header %s (%d bytes) is not valid; send 1 to %d visible ASCII characters, with or without quotes", KeyHeader, len(values[0]), idempotency.MaxKeyLength)}
	}
	return key, nil
}

// parseKey reads a string of RFC 9651, or the characters themselves, as most clients send them.
func parseKey(value string) (key string, ok bool) {
	value = strings.Trim(value, " \t")
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return "", false
		}
	}
	quoted, isQuoted := strings.CutPrefix(value, `"`)
	if !isQuoted {
		return value, !strings.Contains(value, `"`)
	}
	var b strings.Builder
	for i := 0; i < len(quoted); i++ {
		switch c := quoted[i]; c {
		case '"':
			return b.String(), i == len(quoted)-1
		case '\\':
			if i++; i == len(quoted) || quoted[i] != '"' && quoted[i] != '\\' {
				return "", false
			}
			b.WriteByte(quoted[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

// readBody reads the body, which is a part of the request's fingerprint.
func (config *Idempotency) readBody(r *http.Request) ([]byte, *KeyError) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, config.MaxBody+1))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &KeyError{Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("the body of a request has %d bytes at most", tooLarge.Limit)}
	case err == nil && int64(len(body)) > config.MaxBody:
		return nil, &KeyError{Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("the body of a request with the header %s has %d bytes at most", KeyHeader, config.MaxBody)}
	case err != nil:
		return nil, &KeyError{Status: http.StatusBadRequest, Detail: "the body of the request ended early"}
	}
	return body, nil
}

// fingerprint is a hash of the request. A form that a middleware outside has parsed is the body that
// the middleware has read.
func (config *Idempotency) fingerprint(r *http.Request, body []byte) []byte {
	h := sha256.New()
	add(h, r.Method)
	uri := r.RequestURI // of the client, before middlewares cut off a prefix
	if uri == "" {
		uri = r.URL.RequestURI()
	}
	add(h, uri)
	add(h, r.PostForm.Encode())
	for _, name := range config.Headers {
		values := r.Header.Values(name)
		if http.CanonicalHeaderKey(name) == "Host" { // net/http takes it out of the headers
			values = []string{r.Host}
		}
		add(h, strconv.Itoa(len(values)))
		for _, value := range values {
			add(h, value)
		}
	}
	h.Write(body)
	return h.Sum(nil)
}

// add adds a text with its length, so that two texts are not mistaken for two others.
func add(h hash.Hash, text string) {
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text))))
	io.WriteString(h, text) //nolint:errcheck // a hash has no errors
}

// request is the request with the key, whose body is read; empty: no key.
func (config *Idempotency) request(r *http.Request) (request idempotency.Request, body []byte, err *KeyError) {
	key, err := config.keyOf(r)
	if key == "" {
		return request, nil, err
	}
	if body, err = config.readBody(r); err != nil {
		return request, nil, err
	}
	request.Key, request.Fingerprint = key, config.fingerprint(r, body)
	if config.Scope != nil {
		request.Scope = config.Scope(r)
	}
	return request, body, nil
}

// refusal is the answer to a request whose key was refused; nil: another error.
func refusal(err error) *KeyError {
	switch {
	case errors.Is(err, idempotency.ErrRunning):
		return &KeyError{Status: http.StatusConflict, RetryAfter: 1, Detail: "a request with this key is still running; send the request again later"}
	case errors.Is(err, idempotency.ErrNotKept):
		return &KeyError{Status: http.StatusConflict, done: true, Detail: "the request was done before, and its answer was not stored"}
	case errors.Is(err, idempotency.ErrOtherRequest):
		return &KeyError{Status: http.StatusUnprocessableEntity, Detail: "this key was used for another request; use a key once"}
	default:
		return nil
	}
}

// refuse answers a request that is refused. When the ErrorHandler writes nothing, the answer has the
// status alone.
func (config *Idempotency) refuse(w http.ResponseWriter, r *http.Request, err *KeyError) {
	if err.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(err.RetryAfter))
	}
	if err.done {
		w.Header().Set(ReplayedHeader, "true")
	}
	noted := &notedWriter{ResponseWriter: w}
	if config.ErrorHandler(noted, r, err); !noted.written {
		w.WriteHeader(err.Status)
	}
}

// notedWriter notes whether something was written.
type notedWriter struct {
	http.ResponseWriter
	written bool
}

func (n *notedWriter) WriteHeader(status int) {
	n.written = true
	n.ResponseWriter.WriteHeader(status)
}

func (n *notedWriter) Write(b []byte) (int, error) {
	n.written = true
	return n.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (n *notedWriter) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// replay sends the answer of a request that was done before.
func (config *Idempotency) replay(w http.ResponseWriter, r *http.Request, answer idempotency.Answer) {
	if answer.Body == nil && (!config.WithoutBody || answer.Status == http.StatusSwitchingProtocols) {
		config.refuse(w, r, refusal(idempotency.ErrNotKept))
		return
	}
	withStored(w.Header(), answer)
	w.WriteHeader(answer.Status)
	if len(answer.Body) > 0 {
		_, _ = w.Write(answer.Body) // the client sends the request again
	}
}

const setCookie = "Set-Cookie"

// withStored adds the headers of a stored answer to the headers of middlewares outside. Cookies come
// beside those of such middlewares, which are not stored; other headers replace them.
func withStored(header http.Header, answer idempotency.Answer) {
	for name, values := range answer.Headers {
		if name == setCookie {
			values = append(slices.Clone(header[name]), values...)
		}
		header[name] = values
	}
	header.Set(ReplayedHeader, "true")
}

// keyed is the transaction of a request with a key.
type keyed struct {
	attempt *idempotency.Attempt
	answer  idempotency.Answer
	failed  bool                // the answer is stored although the transaction is rolled back
	other   *idempotency.Answer // of another process that was faster than the answer to a failure
}

func (k *keyed) Commit() error { return k.attempt.Commit(k.answer) }

func (k *keyed) Rollback() error {
	if !k.failed {
		return k.attempt.Rollback()
	}
	stored, own, err := k.attempt.Refuse(k.answer)
	if err == nil && !own {
		k.other = &stored
	}
	return err
}

// keep notes the answer that is to be stored. A body that is not complete is not stored, and neither
// are headers of middlewares outside, which set their headers again.
func (config *Idempotency) keep(k *keyed, r *http.Request, h *heldResponse, status int, complete, rollsBack bool) {
	header := h.header
	if h.status == 0 {
		header = h.Header()
	}
	k.answer = idempotency.Answer{Status: status, Headers: map[string][]string{}}
	for _, name := range config.AnswerHeaders {
		name = http.CanonicalHeaderKey(name)
		values := header[name]
		if initial := h.initial[name]; name == setCookie && len(initial) <= len(values) && slices.Equal(values[:len(initial)], initial) {
			values = values[len(initial):]
		}
		if len(values) > 0 && !slices.Equal(values, h.initial[name]) && (complete || name != "Content-Length") {
			k.answer.Headers[name] = values
		}
	}
	if complete {
		if k.answer.Body = h.body.Bytes(); k.answer.Body == nil {
			k.answer.Body = []byte{}
		}
	}
	k.failed = rollsBack && h.body.Len() > 0 && complete && config.StoreFailure != nil && config.StoreFailure(r, status)
}
