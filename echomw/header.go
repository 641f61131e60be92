package echomw

import (
	"maps"
	"net/http"
	"net/textproto"
	"strings"
)

// trailersOf are those of the headers as they are now that are trailers: sent
// declared them before the body, or their names have [http.TrailerPrefix].
func trailersOf(sent, now http.Header) http.Header {
	var trailers http.Header
	add := func(name string) {
		if values, ok := now[name]; ok {
			if trailers == nil {
				trailers = http.Header{}
			}
			trailers[name] = values
		}
	}
	for _, names := range sent["Trailer"] {
		for name := range strings.SplitSeq(names, ",") {
			add(http.CanonicalHeaderKey(textproto.TrimString(name)))
		}
	}
	for name := range now {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			add(name)
		}
	}
	return trailers
}

// replace makes the headers, whose map is the writer's own, what with is.
func replace(header, with http.Header) {
	clear(header)
	maps.Copy(header, with)
}
