package webhook

import (
	"cmp"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"time"

	"code.dny.dev/ssrf"

	"github.com/outboxkit/outbox-go/outbox"
)

// phase bounds connecting and the TLS handshake.
const phase = 5 * time.Second

// maxHeaderBytes is how many bytes the headers of an answer may have.
const maxHeaderBytes = 16 << 10

// Hooks sends events to endpoints, and is safe for concurrent use.
type Hooks struct {
	cfg       Config
	transport *http.Transport
	slow      slow
}

// New makes hooks. If fields are invalid, New reports all of them together, each as an
// [outbox.FieldError].
func New(cfg Config) (*Hooks, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	h := &Hooks{cfg: cfg, transport: transport(&cfg)}
	h.slow = slow{after: cfg.Timeout / 10, most: cfg.SlowRequests, of: map[string]*pace{}}
	return h, nil
}

// azure is the WireServer of Azure, which gives a machine its certificates. The address is public, and in each
// network of Azure it is the platform.
var azure = netip.MustParsePrefix("168.63.129.16/32")

// byVersion are the networks of IPv4 and of IPv6.
func byVersion(networks []netip.Prefix) (v4, v6 []netip.Prefix) {
	for _, p := range networks {
		if p.Addr().Is4() {
			v4 = append(v4, p)
		} else {
			v6 = append(v6, p)
		}
	}
	return v4, v6
}

// transport refuses addresses that are not public when it dials them. It uses no proxy: a proxy
// would dial for it.
func transport(cfg *Config) *http.Transport {
	tlsConfig := cfg.TLS.Clone()
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	tlsConfig.MinVersion = max(tlsConfig.MinVersion, tls.VersionTLS12)
	allow4, allow6 := byVersion(cfg.AllowNetworks)
	deny4, deny6 := byVersion(cfg.DenyNetworks)
	guard := ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(allow4...), ssrf.WithAllowedV6Prefixes(allow6...),
		ssrf.WithDeniedV4Prefixes(append(deny4, azure)...), ssrf.WithDeniedV6Prefixes(deny6...))
	dialer := &net.Dialer{Timeout: min(phase, cfg.Timeout), Control: guard.Safe}
	// Several endpoints may have the same host. A connection that is not kept costs a TLS handshake for the
	// next request.
	idle := cmp.Or(cfg.Rules.Concurrency, defaultConcurrency)
	return &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: tlsConfig, TLSHandshakeTimeout: min(phase, cfg.Timeout), ForceAttemptHTTP2: true,
		DisableCompression: true, MaxResponseHeaderBytes: maxHeaderBytes, MaxIdleConns: idle, MaxIdleConnsPerHost: idle, IdleConnTimeout: time.Minute,
		// Without pings, requests go to a connection of HTTP/2 that has died for as long as TCP has patience.
		HTTP2: &http.HTTP2Config{SendPingTimeout: cfg.Timeout / 2, PingTimeout: min(phase, cfg.Timeout/2)},
	}
}

// Bindings are the listeners, for [outbox.Outbox.Register]: of the kinds whose events go to endpoints, and of
// the deliveries.
func (h *Hooks) Bindings(kinds ...outbox.EventKind) []outbox.Binding {
	var bindings []outbox.Binding
	for _, kind := range kinds {
		var named []outbox.BindingOption
		if h.cfg.Listener != "" {
			named = append(named, outbox.Named(h.cfg.Listener))
		}
		bindings = append(bindings, outbox.On(kind.AggregateType, kind.EventType, outbox.ListenerFunc(h.fanOut), named...))
	}
	return append(bindings, outbox.On(Kind.AggregateType, Kind.EventType, outbox.ListenerFunc(h.deliver), h.cfg.defaultRules(), h.cfg.Rules))
}

// Close closes the connections that wait for a further request. Close the outbox first.
func (h *Hooks) Close() { h.transport.CloseIdleConnections() }
