package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/outboxkit/outbox-go/outbox"
)

// ErrNoEndpoint is the error of [Endpoints].Get for an endpoint that does not exist any more. A delivery that
// waits for it ends.
var ErrNoEndpoint = errors.New("webhook: there is no such endpoint")

// Endpoints knows the endpoints, such as a table of the service. Several goroutines call the methods at
// once. An error is an error of the event's delivery, which is repeated.
type Endpoints interface {
	// For returns the ids of the endpoints that get an event. Ids are not empty, have at most 128
	// characters, and are unique in all endpoints.
	For(ctx context.Context, env outbox.Envelope) (ids []string, err error)
	// Get reads an endpoint. Get is called before each request. It returns [ErrNoEndpoint] when there is
	// no such endpoint.
	Get(ctx context.Context, id string) (Endpoint, error)
	// Disable is called when an endpoint has answered 410 Gone: the endpoint wants no more requests. Get
	// should then return an endpoint that is Disabled, and For should leave it out.
	Disable(ctx context.Context, id, reason string) error
}

// Endpoint is where requests go. Printed and logged, an Endpoint shows the host of the URL alone.
type Endpoint struct {
	// URL is an https URL, without a user and a password.
	URL string
	// Secrets sign each request: a receiver may know any of them. To change a secret, add the new secret,
	// tell the receiver, and remove the old secret later. At least one.
	Secrets []Secret
	// Headers are further headers of the requests, such as Authorization. May be nil.
	Headers map[string]string
	// Paused defers the deliveries by a minute each time, without an attempt.
	Paused bool
	// Disabled makes the deliveries dead letters, which can be replayed when the endpoint is back.
	Disabled bool
}

// String returns the scheme and host of the URL.
func (e Endpoint) String() string {
	u, err := url.Parse(e.URL)
	if err != nil {
		return "(a URL that cannot be read)"
	}
	return u.Scheme + "://" + u.Host
}

// GoString is [Endpoint.String].
func (e Endpoint) GoString() string { return e.String() }

// check finds what keeps a request from being sent. It names no secret.
func (e *Endpoint) check(allowHTTP bool) (*url.URL, error) {
	u, err := url.Parse(e.URL)
	switch {
	case err != nil:
		return nil, errors.New("its URL cannot be read")
	case u.Scheme != "https" && (u.Scheme != "http" || !allowHTTP):
		return nil, fmt.Errorf("its URL has the scheme %q; use https", cut(u.Scheme, 20))
	case u.Host == "":
		return nil, errors.New("its URL has no host")
	case u.User != nil:
		return nil, errors.New("its URL has a user; use the header Authorization")
	case len(e.Secrets) == 0:
		return nil, errors.New("it has no secret")
	}
	for name := range e.Headers {
		if canonical := textproto.CanonicalMIMEHeaderKey(name); reserved[canonical] || strings.HasPrefix(canonical, "Webhook-") {
			return nil, fmt.Errorf("its header %s is set by the library; leave it out", canonical)
		}
	}
	return u, nil
}

// reserved are the headers that belong to the request and to the connection.
var reserved = map[string]bool{
	"Connection": true, "Content-Length": true, "Content-Type": true, "Expect": true, "Host": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true,
	"Trailer": true, "Transfer-Encoding": true, "Upgrade": true,
}

// secrets are the parts of a request that must not be in a text, the longest first: the secrets, the headers, the
// path and the query, as a whole and in parts. Many servers answer the path that they do not know.
func (e *Endpoint) secrets() (list []string) {
	for _, s := range e.Secrets {
		list = append(list, string(s), strings.TrimPrefix(strings.TrimPrefix(string(s), sharedPrefix), privatePrefix))
	}
	for _, value := range e.Headers {
		_, credentials, _ := strings.Cut(value, " ") // behind the scheme of an Authorization
		list = append(list, value, credentials)
	}
	if u, err := url.Parse(e.URL); err == nil {
		list = append(list, u.RequestURI(), u.Path, u.EscapedPath(), u.RawQuery)
		for _, part := range strings.Split(u.EscapedPath(), "/") {
			unescaped, _ := url.PathUnescape(part)
			list = append(list, part, unescaped)
		}
		for _, part := range strings.Split(u.RawQuery, "&") {
			_, value, _ := strings.Cut(part, "=")
			unescaped, _ := url.QueryUnescape(value)
			list = append(list, value, unescaped)
		}
	}
	list = slices.DeleteFunc(list, func(s string) bool { return len(s) < shortSecret })
	slices.SortFunc(list, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return list
}

// shortSecret is from how many bytes on a part of a request is taken for a secret.
const shortSecret = 8

// longestSecret is the length of the longest of the secrets.
func (e *Endpoint) longestSecret() int {
	if list := e.secrets(); len(list) > 0 {
		return len(list[0])
	}
	return 0
}

// readable is the beginning of a text of the receiver, without the secrets, and without bytes and signs that a
// screen does not show as they are. The secrets become as many zero bytes first: a secret that the end of the
// text cuts is hidden too.
func (e *Endpoint) readable(text string) string {
	for _, s := range e.secrets() {
		text = strings.ReplaceAll(text, s, strings.Repeat("\x00", len(s)))
	}
	text = strings.ToValidUTF8(text[:min(len(text), maxAnswer)], "\uFFFD")
	hidden := false
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		was := hidden
		hidden = r == 0
		switch {
		case hidden && was:
			return -1
		case hidden:
			return '…'
		case unicode.IsPrint(r):
			return r
		}
		return ' '
	}, text))
}

// Static are endpoints that do not change, by id. Each of them gets all events.
type Static map[string]Endpoint

// For returns the ids of the endpoints that are not Disabled.
func (s Static) For(context.Context, outbox.Envelope) ([]string, error) {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s)), func(id string) bool { return s[id].Disabled }), nil
}

// Get returns an endpoint.
func (s Static) Get(_ context.Context, id string) (Endpoint, error) {
	e, ok := s[id]
	if !ok {
		return Endpoint{}, ErrNoEndpoint
	}
	return e, nil
}

// Disable does nothing.
func (Static) Disable(context.Context, string, string) error { return nil }
