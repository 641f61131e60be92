package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

const (
	maxAnswer = 1 << 10  // bytes of an answer that a dead letter shows
	maxDrain  = 64 << 10 // bytes of an answer that are read, so that the connection is used again
	// bodyTime is how long the body of an answer is read. A receiver that answers 200 and then sends a byte now and
	// then holds a worker no longer, and no failure would pause it.
	bodyTime = time.Second
	// pausedFor is how long a delivery to a paused endpoint is deferred.
	pausedFor = time.Minute
)

// deliver sends a request to an endpoint.
func (h *Hooks) deliver(ctx context.Context, env outbox.Envelope) error {
	id := env.AggregateID
	endpoint, err := h.cfg.Endpoints.Get(ctx, id)
	if errors.Is(err, ErrNoEndpoint) || endpoint.Disabled {
		h.slow.forget(id)
	}
	switch {
	case errors.Is(err, ErrNoEndpoint):
		h.cfg.Logger.InfoContext(ctx, "webhook: a delivery ends, because its endpoint does not exist any more", "endpoint", id, "webhook_id", env.Headers[headerID])
		return nil
	case err != nil:
		return fmt.Errorf("webhook: reading the endpoint: %w", err)
	case endpoint.Disabled:
		return outbox.Dead(errors.New("webhook: the endpoint is disabled"))
	case endpoint.Paused:
		return outbox.PauseKeyFor(pausedFor, errors.New("webhook: the endpoint is paused"))
	}
	c := h.slow.begin(id)
	if c == nil {
		return outbox.PauseKeyFor(slowFor, errSlow)
	}
	defer c.end()
	sending, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	defer time.AfterFunc(h.slow.after, func() {
		if !c.late() {
			giveUp(errGivenUp)
		}
	}).Stop()
	response, answer, err := h.send(sending, &endpoint, env)
	if err != nil {
		if errors.Is(context.Cause(sending), errGivenUp) {
			return outbox.PauseKeyFor(slowFor, errGivenUp)
		}
		return err
	}
	return h.outcome(ctx, id, endpoint.String(), response, answer)
}

// send sends a request, and returns the response with the beginning of the body. There is no http.Client, which
// would follow redirects.
func (h *Hooks) send(ctx context.Context, e *Endpoint, env outbox.Envelope) (*http.Response, string, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	request, err := h.request(ctx, e, env)
	if err != nil {
		return nil, "", fmt.Errorf("webhook: the endpoint cannot be used: %w", err)
	}
	response, err := h.transport.RoundTrip(request)
	if err != nil {
		return nil, "", &failure{fmt.Sprintf("webhook: %s: %s", e, e.readable(err.Error())), err}
	}
	defer time.AfterFunc(bodyTime, cancel).Stop()
	return response, e.readable(read(response, maxAnswer+e.longestSecret())), nil
}

// failure is the error of a request, with a text in which secrets are hidden.
type failure struct {
	text string
	err  error
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.err }

// request makes the request of a delivery.
func (h *Hooks) request(ctx context.Context, e *Endpoint, env outbox.Envelope) (*http.Request, error) {
	u, err := e.check(h.cfg.AllowHTTP)
	if err != nil {
		return nil, err
	}
	body, id, now := env.Payload.Bytes(), env.Headers[headerID], time.Now()
	signatures, err := sign(e.Secrets, id, now, body)
	if err != nil {
		return nil, err
	}
	request := (&http.Request{Method: http.MethodPost, URL: u, Host: u.Host, Header: http.Header{}}).WithContext(ctx)
	request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	request.Body, _ = request.GetBody()
	request.ContentLength = int64(len(body))
	// An endpoint closes idle connections. With this entry, which is not sent, the transport repeats a request that
	// meets such an end on a further connection, as the receiver drops an id that it has seen.
	request.Header["Idempotency-Key"] = nil
	request.Header.Set("User-Agent", h.cfg.UserAgent)
	for name, value := range e.Headers {
		request.Header.Set(name, value)
	}
	request.Header.Set("Content-Type", env.Payload.ContentType())
	request.Header.Set(headerID, id)
	request.Header.Set(headerTimestamp, strconv.FormatInt(now.Unix(), 10))
	request.Header.Set(headerSignature, signatures)
	return request, nil
}

// read reads the beginning of an answer, and closes it. An answer that does not come whole is an answer
// nevertheless: the status has decided. The body of a 101 is the connection, whose end no context brings about.
func read(response *http.Response, most int) string {
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusSwitchingProtocols {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, int64(most)))
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxDrain))
	return string(text)
}

// outcome says what an answer means for the delivery.
func (h *Hooks) outcome(ctx context.Context, id, host string, response *http.Response, answer string) error {
	status := response.StatusCode
	if status >= 200 && status < 300 {
		return nil
	}
	text := fmt.Sprintf("webhook: %s answered %d %s", host, status, http.StatusText(status))
	if status >= 300 && status < 400 {
		text += ", and redirects are not followed"
	}
	if answer != "" {
		text += ": " + answer
	}
	err := errors.New(text)
	if status == http.StatusGone {
		if failed := h.cfg.Endpoints.Disable(ctx, id, text); failed != nil {
			return fmt.Errorf("%w; disabling the endpoint: %w", err, failed)
		}
		h.cfg.Logger.WarnContext(ctx, "webhook: an endpoint answered 410 Gone and is disabled", "endpoint", id)
		return outbox.Dead(err)
	}
	if wait, ok := retryAfter(response.Header.Get("Retry-After"), time.Now()); ok && (status == http.StatusTooManyRequests || status >= 500) {
		return outbox.PauseKeyFor(min(max(wait, minPause), h.cfg.MaxRetryAfter), err)
	}
	return err
}

// retryAfter reads a Retry-After (RFC 9110, 10.2.3): seconds, or a time.
func retryAfter(text string, now time.Time) (wait time.Duration, ok bool) {
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(text)
	return at.Sub(now), err == nil
}

// delay is the wait after a number of failures.
func delay(attempt int) time.Duration {
	d := schedule[min(max(attempt, 1), len(schedule))-1]
	return d + time.Duration(rand.Int64N(int64(d)/10)) //nolint:gosec // it need not be secret
}

func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}
