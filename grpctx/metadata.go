package grpctx

import (
	"context"
	"maps"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Carrier is the metadata of a call as OpenTelemetry's propagators read it.
type Carrier metadata.MD

func carrierOf(ctx context.Context) Carrier {
	md, _ := metadata.FromIncomingContext(ctx)
	return Carrier(md)
}

// Get returns the first value of the key, or "".
func (c Carrier) Get(key string) string {
	if values := metadata.MD(c).Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Values returns all values of the key.
func (c Carrier) Values(key string) []string { return metadata.MD(c).Get(key) }

// Set sets the only value of the key.
func (c Carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

// Keys returns the keys.
func (c Carrier) Keys() []string { return slices.Collect(maps.Keys(c)) }

// heldMetadata holds the headers and trailers that a handler sets back until the
// transaction has ended.
type heldMetadata struct {
	grpc.ServerTransportStream // for Method

	mu              sync.Mutex
	header, trailer metadata.MD
	released        bool
}

// hold returns a context whose headers and trailers are held back, and a function that releases
// them. A call outside of a server, as in a test, has no headers and trailers.
func hold(ctx context.Context) (held context.Context, release func()) {
	stream := grpc.ServerTransportStreamFromContext(ctx)
	if stream == nil {
		return ctx, func() {}
	}
	h := &heldMetadata{ServerTransportStream: stream}
	return grpc.NewContextWithServerTransportStream(ctx, h), h.release
}

// release sends the metadata. An error means that the client has gone.
func (h *heldMetadata) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.released = true
	_ = h.ServerTransportStream.SetHeader(h.header)
	_ = h.ServerTransportStream.SetTrailer(h.trailer)
}

// SetHeader is for grpc.SetHeader.
func (h *heldMetadata) SetHeader(md metadata.MD) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return h.ServerTransportStream.SetHeader(md)
	}
	h.header = metadata.Join(h.header, md)
	return nil
}

// SendHeader is for grpc.SendHeader. The headers leave after the commit.
func (h *heldMetadata) SendHeader(md metadata.MD) error { return h.SetHeader(md) }

// SetTrailer is for grpc.SetTrailer.
func (h *heldMetadata) SetTrailer(md metadata.MD) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return h.ServerTransportStream.SetTrailer(md)
	}
	h.trailer = metadata.Join(h.trailer, md)
	return nil
}
