package outbox_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

type point struct{ X, Y uint16 }

// points is a codec of a format that is not JSON.
type points struct{}

func (points) ContentType() string { return "application/x-points; version=2" }

func (points) Marshal(v any) ([]byte, error) {
	p, ok := v.(point)
	if !ok {
		return nil, fmt.Errorf("%T is no point", v)
	}
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, p.X), p.Y), nil
}

func (points) Unmarshal(data []byte, v any) error {
	if len(data) != 4 {
		return fmt.Errorf("%d bytes are no point", len(data))
	}
	*v.(*point) = point{binary.BigEndian.Uint16(data), binary.BigEndian.Uint16(data[2:])}
	return nil
}

type nameless struct{ points }

func (nameless) ContentType() string { return "" }

func TestBytes(t *testing.T) {
	t.Parallel()
	for _, data := range []string{"", "\x00\xff", "text", strings.Repeat("\xff", outbox.MaxPayloadBytes)} {
		env := valid()
		env.Payload = outbox.Bytes("Application/X-Test; a=\"b c\"", data)
		require.NoError(t, env.Validate())
		p := env.Payload
		require.Equal(t, `Application/X-Test; a="b c"`, p.ContentType())
		require.False(t, p.IsJSON())
		require.False(t, p.IsZero())
		require.Equal(t, data, string(p.Bytes()))
		require.Equal(t, len(data), p.Len())
		// The text is JSON whose value is the bytes.
		var decoded []byte
		require.NoError(t, json.Unmarshal([]byte(p.String()), &decoded))
		require.Equal(t, data, string(decoded))
		text, err := json.Marshal(p)
		require.NoError(t, err)
		require.Equal(t, p.String(), string(text))
	}
	require.Equal(t, "application/json", outbox.JSON(1).ContentType())
	require.True(t, outbox.JSON(1).IsJSON())
}

func TestATopicHasABinaryCodec(t *testing.T) {
	t.Parallel()
	topic := outbox.NewTopic[point]("", "Moved").WithCodec(points{})
	env := topic.Envelope("a-1", point{1, 258})
	require.NoError(t, env.Validate())
	require.Equal(t, []byte{0, 1, 1, 2}, env.Payload.Bytes())
	require.Equal(t, "application/x-points; version=2", env.Payload.ContentType())
	for _, payload := range []outbox.Payload{
		env.Payload,
		outbox.Bytes("APPLICATION/x-points; version=1", []byte{0, 1, 1, 2}), // as the poller reads it; another version
	} {
		got, err := topic.Decode(outbox.Envelope{Payload: payload})
		require.NoError(t, err)
		require.Equal(t, point{1, 258}, got)
	}
}

// Bytes of one format are often valid in another, with another meaning.
func TestACodecDecodesOnlyItsContentType(t *testing.T) {
	t.Parallel()
	binary := outbox.NewTopic[point]("", "Moved").WithCodec(points{})
	text := outbox.NewTopic[int]("", "Counted")
	for name, decode := range map[string]func() error{
		`the payload is "application/json" (4 bytes), and the codec reads "application/x-points; version=2"`: func() error {
			_, err := binary.Decode(outbox.Envelope{Payload: outbox.RawJSON("1234")})
			return err
		},
		`the payload is "application/x-lines" (4 bytes), and the codec reads "application/x-points`: func() error {
			_, err := binary.Decode(outbox.Envelope{Payload: outbox.Bytes("application/x-lines", "1234")})
			return err
		},
		`the payload is "text/plain" (4 bytes), and the codec reads "application/json"; use a codec for it, or Payload.Bytes`: func() error {
			_, err := text.Decode(outbox.Envelope{Payload: outbox.Bytes("text/plain", "1234")})
			return err
		},
		`the payload is "?" (4 bytes)`: func() error { // no codec decodes it, as no content type is like it
			_, err := outbox.NewTopic[point]("", "Moved").WithCodec(nameless{}).Decode(outbox.Envelope{Payload: outbox.Bytes("?", "1234")})
			return err
		},
		"outbox: decoding event e-1": func() error {
			_, err := outbox.Decode[point](outbox.Envelope{EventID: "e-1", Payload: outbox.Bytes(points{}.ContentType(), "12").WithCodec(points{})})
			return err
		},
	} {
		require.ErrorContains(t, decode(), name)
	}
}

func TestWhatARowHasOfAPayload(t *testing.T) {
	t.Parallel()
	own := map[string]string{"k": "v"}
	for name, want := range map[string]outbox.Envelope{
		"JSON":                   {Payload: outbox.RawJSON(`"AQI="`)},
		"JSON with headers":      {Payload: outbox.RawJSON(`1`), Headers: own},
		"bytes":                  {Payload: outbox.Bytes("a/b", "\x01\x02")},
		"no bytes, with headers": {Payload: outbox.Bytes("a/b", ""), Headers: own},
	} {
		var got outbox.Envelope
		headers := outbox.StoredHeaders(&want)
		require.Equal(t, want.Payload.IsJSON(), headers[outbox.HeaderContentType] == "", name)
		require.NoError(t, outbox.ReadStored(&got, headers, want.Payload.String()), name)
		require.Equal(t, want, got, name)
	}
	require.Equal(t, map[string]string{"k": "v"}, own, "the event's own headers stay as they are")
	for _, text := range []string{"", `"`, `1`, `AQI=`, `"AQI"`, `"A"`, `null`, `{"a":"AQI="}`, `"é"`} {
		got := outbox.Envelope{}
		headers := map[string]string{outbox.HeaderContentType: "a/b"}
		require.ErrorContains(t, outbox.ReadStored(&got, headers, text), "base64", text)
		require.Equal(t, text, got.Payload.String())
		require.Len(t, got.Headers, 1)
	}
	require.ErrorContains(t, outbox.ReadStored(new(outbox.Envelope), map[string]string{outbox.HeaderContentType: ""}, `"AQI="`), "is empty")
}
