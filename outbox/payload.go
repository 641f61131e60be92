package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Codec turns values into JSON text and back. It must be safe for concurrent
// use, and what Marshal returns must be valid JSON in UTF-8. An error of Unmarshal is
// final: a topic's listener makes the event dead at once, whatever the error is.
type Codec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

// DefaultCodec is encoding/json.
var DefaultCodec Codec = stdCodec{}

type stdCodec struct{}

func (stdCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (stdCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// Payload is the JSON text of an event. Make one with [JSON], [JSONWith] or
// [RawJSON]; the zero value is no payload, which sealing refuses. A Payload
// does not change and is safe for concurrent use.
type Payload struct {
	text    string
	codec   Codec // nil is DefaultCodec
	err     error // of marshalling; reported by Envelope.Validate and Write
	trusted bool  // text is known to be valid JSON
}

// JSON marshals v with [DefaultCodec], once, here. An error is kept and surfaces
// from [Envelope.Validate] and from Write.
func JSON(v any) Payload {
	return JSONWith(nil, v)
}

// JSONWith is [JSON] with another codec, which also decodes the payload on the
// hot path. A nil codec is [DefaultCodec].
func JSONWith(codec Codec, v any) Payload {
	used := codecOr(codec)
	data, err := used.Marshal(v)
	if err != nil {
		return Payload{codec: codec, err: fmt.Errorf("marshalling %T: %w", v, err)}
	}
	_, std := used.(stdCodec)
	return Payload{text: string(data), codec: codec, trusted: std}
}

// RawJSON takes JSON text as it is. Sealing checks that it is valid.
func RawJSON[T ~string | ~[]byte](text T) Payload {
	return Payload{text: string(text)}
}

// RawJSONWith is [RawJSON] with the codec that [Payload.Decode] is to use.
// Stores call it for what they read. A nil codec is [DefaultCodec].
func RawJSONWith[T ~string | ~[]byte](codec Codec, text T) Payload {
	return Payload{text: string(text), codec: codec}
}

// Decode unmarshals the payload into v, a pointer. The text of its error quotes
// nothing of the payload, because errors go to logs, traces and the table. The
// error wraps the codec's.
func (p Payload) Decode(v any) error {
	if p.err != nil {
		return p.err
	}
	if p.text == "" {
		return errors.New("outbox: the payload is empty")
	}
	if err := codecOr(p.codec).Unmarshal([]byte(p.text), v); err != nil {
		return &decodeError{err}
	}
	return nil
}

// String is the JSON text.
func (p Payload) String() string { return p.text }

// Bytes is a copy of the JSON text.
func (p Payload) Bytes() []byte { return []byte(p.text) }

// Len is the length of the JSON text in bytes.
func (p Payload) Len() int { return len(p.text) }

// IsZero reports whether there is no payload.
func (p Payload) IsZero() bool { return p.text == "" && p.err == nil }

// MarshalJSON gives the text as it is, null when there is none.
func (p Payload) MarshalJSON() ([]byte, error) {
	if p.err != nil {
		return nil, p.err
	}
	if p.text == "" {
		return []byte("null"), nil
	}
	return []byte(p.text), nil
}

func codecOr(c Codec) Codec {
	if c == nil {
		return DefaultCodec
	}
	return c
}
