package sqstest

import (
	"bytes"
	"io"
	"net/http"
	"testing"
)

// Client is an HTTP client for the SDK. It reads an answer to its end. The SDK closes the body of a request
// when the answer begins. If that is sooner than net/http has seen the end of the request's body, net/http
// closes the connection, and the rest of the answer is lost. Only a server on the same machine is so fast.
type Client struct{ client http.Client }

// NewClient makes a client with connections that are closed when the test ends.
func NewClient(t testing.TB) *Client {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 50
	t.Cleanup(transport.CloseIdleConnections)
	return &Client{http.Client{Transport: transport}}
}

// Do sends a request.
func (c *Client) Do(r *http.Request) (*http.Response, error) {
	answer, err := c.client.Do(r)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	answer.Body = io.NopCloser(bytes.NewReader(text))
	return answer, nil
}
