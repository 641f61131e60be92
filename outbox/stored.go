package outbox

import (
	"encoding/base64"
	"errors"
	"maps"
)

// A row has headers and the text of a payload. Bytes are a JSON string in base64, and the
// content type of bytes is a header that only the row has.

// StoredHeaders are the headers that a store writes for an event, beside the text of
// [Payload.String]: the headers of the event, and [HeaderContentType] for bytes.
func StoredHeaders(env *Envelope) map[string]string {
	if env.Payload.IsJSON() {
		return env.Headers
	}
	headers := make(map[string]string, len(env.Headers)+1)
	maps.Copy(headers, env.Headers)
	headers[HeaderContentType] = env.Payload.ContentType()
	return headers
}

// ReadStored sets the headers and the payload of an event from the headers and the text of a
// row, which [StoredHeaders] and [Payload.String] gave. It takes the map over. With an error, which
// quotes nothing of the row, the event has both as they are in the row.
func ReadStored(env *Envelope, headers map[string]string, payload string) error {
	env.Headers, env.Payload = headers, Payload{data: payload}
	contentType, isBytes := headers[HeaderContentType]
	if !isBytes {
		return nil
	}
	data, ok := bytesOf(payload)
	if !ok || contentType == "" {
		return errNotBytes
	}
	env.Payload = Payload{data: data, contentType: contentType}
	if delete(headers, HeaderContentType); len(headers) == 0 {
		env.Headers = nil
	}
	return nil
}

var errNotBytes = errors.New("payload is no JSON string in base64, or the header " + HeaderContentType + " is empty")

// storedBytes is the JSON string that holds bytes.
func storedBytes(data string) string {
	text := make([]byte, 0, len(`""`)+base64.StdEncoding.EncodedLen(len(data)))
	text = append(text, '"')
	text = base64.StdEncoding.AppendEncode(text, []byte(data))
	return string(append(text, '"'))
}

func bytesOf(text string) (data string, ok bool) {
	if len(text) < len(`""`) || text[0] != '"' || text[len(text)-1] != '"' {
		return "", false
	}
	decoded, err := base64.StdEncoding.DecodeString(text[1 : len(text)-1])
	return string(decoded), err == nil
}
