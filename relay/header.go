package relay

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Header is a header of a message as a broker gets it.
type Header struct{ Key, Value string }

// HeaderList are the message's headers for a protocol: the attributes of the CloudEvent with the
// protocol's prefix, such as "ce-"; the content type under the key contentType, unless this key is
// empty; and the event's own headers, sorted. An attribute comes before a header of the same key,
// which is left out.
func (m Message) HeaderList(prefix, contentType string) []Header {
	list := make([]Header, 0, len(m.Attributes)+len(m.Headers)+1)
	for _, a := range m.Attributes {
		if a.Name == "datacontenttype" && contentType != "" {
			continue // the content type says it
		}
		list = append(list, Header{prefix + a.Name, a.Value})
	}
	if contentType != "" {
		list = append(list, Header{contentType, m.ContentType})
	}
	own := len(list)
	for _, key := range slices.Sorted(maps.Keys(m.Headers)) {
		if !slices.ContainsFunc(list[:own], func(h Header) bool { return strings.EqualFold(h.Key, key) }) {
			list = append(list, Header{key, m.Headers[key]})
		}
	}
	return list
}

// CheckHeaders refuses headers that a protocol of text lines cannot carry: a key with
// anything but printable ASCII, or with a colon, and a value with a line break or a NUL.
func CheckHeaders(list []Header) error {
	for _, h := range list {
		for _, c := range []byte(h.Key) {
			if c <= ' ' || c >= 0x7f || c == ':' {
				return fmt.Errorf("%w: the header %q has a character in its key that the protocol cannot carry", ErrRefused, h.Key)
			}
		}
		if strings.ContainsAny(h.Value, "\r\n\x00") {
			return fmt.Errorf("%w: the value of the header %q has a line break or a NUL", ErrRefused, h.Key)
		}
	}
	return nil
}
