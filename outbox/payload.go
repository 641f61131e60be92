package outbox

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"reflect"
	"strconv"
	"strings"
)

// Codec turns values into JSON text and back. A codec must be safe for concurrent use, and the
// result of Marshal must be valid JSON in UTF-8. A codec of another format is a [BinaryCodec]. An
// error of Unmarshal is final: a topic's listener makes the event dead at once, whatever the error
// is.
type Codec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

// BinaryCodec is a codec of a format that is not JSON, such as Protobuf. [Encode] and a topic
// make payloads of [Bytes] with the content type that the codec names. [Payload.Decode] gives
// the codec only payloads of that type; parameters of the type, such as a charset, may differ.
type BinaryCodec interface {
	Codec
	ContentType() string
}

// DefaultCodec is encoding/json. A codec that replaces it must make JSON, because stores
// encode headers with DefaultCodec.
var DefaultCodec Codec = stdCodec{}

type stdCodec struct{}

func (stdCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (stdCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

// Payload is the content of an event: JSON text, made by [JSON], [RawJSON] or [Encode],
// or bytes of another content type, made by [Bytes] or by [Encode] with a [BinaryCodec].
// The zero value is no payload, which sealing refuses. A Payload does not change and is
// safe for concurrent use.
type Payload struct {
	data        string
	contentType string // of bytes; empty: JSON
	codec       Codec  // nil is DefaultCodec
	err         error  // of marshalling; reported by Envelope.Validate and Write
	trusted     bool   // data is known to be valid
	version     int    // 0: version 1
}

// ContentTypeJSON is the content type of JSON payloads.
const ContentTypeJSON = "application/json"

// JSON marshals v with [DefaultCodec], once, here. An error is kept and surfaces
// from [Envelope.Validate] and from Write.
func JSON(v any) Payload {
	return Encode(nil, v)
}

// Encode is [JSON] with another codec, which also decodes the payload on the
// hot path. A nil codec is [DefaultCodec].
func Encode(codec Codec, v any) Payload {
	used := codecOr(codec)
	data, err := used.Marshal(v)
	if err != nil {
		return Payload{codec: codec, err: fmt.Errorf("marshalling %T: %w", v, err)}
	}
	if binary, ok := used.(BinaryCodec); ok {
		return Bytes(binary.ContentType(), data).WithCodec(codec)
	}
	_, std := used.(stdCodec)
	return Payload{data: string(data), codec: codec, trusted: std}
}

// owned is a copy of the text, also of a string; see Envelope.own.
func owned[T ~string | ~[]byte](text T) string {
	if reflect.TypeFor[T]().Kind() == reflect.String {
		return strings.Clone(string(text))
	}
	return string(text)
}

// RawJSON takes JSON text as it is. Sealing checks that it is valid.
func RawJSON[T ~string | ~[]byte](text T) Payload {
	return Payload{data: owned(text)}
}

// Bytes takes data that is not JSON as it is, such as Protobuf or Avro. The content type
// is a MIME type of at most 255 bytes, other than [ContentTypeJSON]. The data may be empty.
//
// A row has the data as a JSON string in base64, a third longer, and the content type in the
// header [HeaderContentType]. Listeners and relays get the data itself.
func Bytes[T ~string | ~[]byte](contentType string, data T) Payload {
	if contentType == "" {
		return Payload{err: errNoContentType}
	}
	return Payload{data: owned(data), contentType: strings.Clone(contentType)}
}

var errNoContentType = errors.New(`bytes need a content type, such as "application/protobuf"`)

// WithCodec is the payload with the codec that [Payload.Decode] uses. A nil codec is
// [DefaultCodec].
func (p Payload) WithCodec(codec Codec) Payload {
	p.codec = codec
	return p
}

// WithVersion is the payload with the version of its format, at least 1. A [Topic] sets the version
// of the payloads that it makes; see [Topic.WithVersion].
//
// A row has the version in the header [HeaderVersion], unless the version is 1. Relays send the
// version as the attribute dataversion of CloudEvents.
func (p Payload) WithVersion(version int) Payload {
	switch {
	case version < 1 && p.err == nil:
		return Payload{err: fmt.Errorf("the version is %d; versions begin with 1", version)}
	case version == 1:
		p.version = 0
	default:
		p.version = version
	}
	return p
}

// Version is the version of the payload's format: 1, unless [Payload.WithVersion] set another.
func (p Payload) Version() int { return max(p.version, 1) }

// Decode unmarshals the payload into v, a pointer. The text of the error quotes nothing of the
// payload, because errors go to logs, traces and the table. The error wraps the codec's error.
func (p Payload) Decode(v any) error {
	if p.err != nil {
		return p.err
	}
	if p.IsZero() {
		return errors.New("outbox: the payload is empty")
	}
	codec := codecOr(p.codec)
	if is, reads := p.ContentType(), contentTypeOf(codec); is != reads && mediaType(is) != mediaType(reads) {
		return fmt.Errorf("outbox: the payload is %.255q (%d bytes), and the codec reads %.255q; use a codec for it, or Payload.Bytes in a listener made by outbox.On",
			is, len(p.data), reads)
	}
	if err := codec.Unmarshal([]byte(p.data), v); err != nil {
		return &decodeError{err}
	}
	return nil
}

// contentTypeOf is the content type that a codec writes and reads.
func contentTypeOf(codec Codec) string {
	if binary, ok := codec.(BinaryCodec); ok {
		return binary.ContentType()
	}
	return ContentTypeJSON
}

// mediaType is a content type without parameters. A text that is no content type is like no
// other text.
func mediaType(contentType string) string {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return contentType
	}
	return media
}

// ContentType is the type of the content: [ContentTypeJSON], or the content type of the bytes.
func (p Payload) ContentType() string {
	if p.contentType == "" {
		return ContentTypeJSON
	}
	return p.contentType
}

// IsJSON reports whether the payload is JSON text and not bytes of another type.
func (p Payload) IsJSON() bool { return p.contentType == "" }

// String is the JSON text as the table has it. For bytes, the text is a JSON string with the bytes
// in base64.
func (p Payload) String() string {
	if p.contentType == "" {
		return p.data
	}
	return storedBytes(p.data)
}

// Bytes is a copy of the JSON text, or of the bytes that the payload was made of.
func (p Payload) Bytes() []byte { return []byte(p.data) }

// Len is the number of bytes that [Payload.Bytes] returns.
func (p Payload) Len() int { return len(p.data) }

// IsZero reports whether there is no payload.
func (p Payload) IsZero() bool { return p.data == "" && p.contentType == "" && p.err == nil }

// MarshalJSON gives the text of [Payload.String], and null for the zero value.
func (p Payload) MarshalJSON() ([]byte, error) {
	if p.err != nil {
		return nil, p.err
	}
	if p.IsZero() {
		return []byte("null"), nil
	}
	return []byte(p.String()), nil
}

func codecOr(c Codec) Codec {
	if c == nil {
		return DefaultCodec
	}
	return c
}

// decodeError is a codec's error without the parts that may quote the payload, or headers, such as
// the number that does not fit or the text that is no date.
type decodeError struct{ err error }

func (e *decodeError) Unwrap() error { return e.err }

func (e *decodeError) Error() string {
	var mismatch *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case errors.As(e.err, &mismatch):
		kind, _, _ := strings.Cut(mismatch.Value, " ") // "number 4111…"
		field := ""
		if mismatch.Field != "" {
			field = " field " + mismatch.Field
		}
		return fmt.Sprintf("a JSON %s at offset %d does not fit%s of type %s", kind, mismatch.Offset, field, mismatch.Type)
	case errors.As(e.err, &syntax):
		return fmt.Sprintf("a JSON syntax error at offset %d", syntax.Offset)
	default:
		return fmt.Sprintf("%T (what it says is left out, for it may quote what it decoded)", e.err)
	}
}

// A row has headers and the text of a payload. Bytes are a JSON string in base64, and the
// content type of bytes is a header that only the row has.

// StoredHeaders are the headers that a store writes for an event, beside the text of
// [Payload.String]: the headers of the event, [HeaderContentType] for bytes, and [HeaderVersion] for
// a version other than 1.
func StoredHeaders(env *Envelope) map[string]string {
	if env.Payload.IsJSON() && env.Payload.version == 0 {
		return env.Headers
	}
	headers := make(map[string]string, len(env.Headers)+2)
	maps.Copy(headers, env.Headers)
	if !env.Payload.IsJSON() {
		headers[HeaderContentType] = env.Payload.ContentType()
	}
	if env.Payload.version != 0 {
		headers[HeaderVersion] = strconv.Itoa(env.Payload.version)
	}
	return headers
}

// ReadStored sets the headers and the payload of an event from the headers and the text of a row,
// which [StoredHeaders] and [Payload.String] gave. ReadStored takes over the map. With an error,
// which quotes nothing of the row, the event has both as they are in the row.
func ReadStored(env *Envelope, headers map[string]string, payload string) error {
	env.Headers, env.Payload = headers, Payload{data: payload}
	contentType, isBytes := headers[HeaderContentType]
	text, hasVersion := headers[HeaderVersion]
	if !isBytes && !hasVersion {
		return nil
	}
	read := Payload{data: payload}
	if isBytes {
		data, ok := bytesOf(payload)
		if !ok || contentType == "" {
			return errNotBytes
		}
		read = Payload{data: data, contentType: contentType}
	}
	if hasVersion {
		version, err := strconv.Atoi(text)
		if err != nil || version < 1 {
			return errNotVersion
		}
		read = read.WithVersion(version)
	}
	env.Payload = read
	delete(headers, HeaderContentType)
	if delete(headers, HeaderVersion); len(headers) == 0 {
		env.Headers = nil
	}
	return nil
}

var (
	errNotBytes   = errors.New("payload is no JSON string in base64, or the header " + HeaderContentType + " is empty")
	errNotVersion = errors.New("the header " + HeaderVersion + " is no number from 1")
)

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
