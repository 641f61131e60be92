// Package operjson has the JSON shapes that operators get from both the admin handlers and
// the command line.
package operjson

import (
	"encoding/json"

	"github.com/outboxkit/outbox-go/outbox"
)

// Disclosed is the content of an event, which not every operator may read. For a payload that is
// not JSON, Disclosed has the content type and the bytes.
type Disclosed struct {
	Headers map[string]string `json:"headers,omitempty"`
	Payload json.RawMessage   `json:"payload,omitempty"`
	// Version is the version of the payload's format, left out for 1.
	Version     int    `json:"payload_version,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	Bytes       []byte `json:"payload_base64,omitempty"`
}

// Disclose is the content of an event.
func Disclose(env *outbox.Envelope) Disclosed {
	d := Disclosed{Headers: env.Headers}
	if v := env.Payload.Version(); v > 1 {
		d.Version = v
	}
	if !env.Payload.IsJSON() {
		d.ContentType, d.Bytes = env.Payload.ContentType(), env.Payload.Bytes()
		return d
	}
	d.Payload = env.Payload.Bytes()
	if !json.Valid(d.Payload) { // another program wrote the payload: it becomes a string
		d.Payload, _ = json.Marshal(env.Payload.String())
	}
	return d
}
