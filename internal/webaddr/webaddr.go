// Package webaddr reads addresses of requests.
package webaddr

import (
	"net"
	"net/http"
)

// Client is the address that the request came from, without the port: of the client, or of the last proxy
// before the service.
func Client(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
