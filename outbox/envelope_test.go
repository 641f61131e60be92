package outbox_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

func valid() outbox.Envelope {
	return outbox.Envelope{EventType: "OrderPlaced", Payload: outbox.RawJSON(`{"id":1}`)}
}

func TestEnvelopeRulesAreReportedByField(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tc := range map[string]struct {
		change func(*outbox.Envelope)
		want   []string // all of them are in the message
	}{
		"no event type":       {func(e *outbox.Envelope) { e.EventType = "" }, []string{"Envelope.EventType", "required"}},
		"no payload":          {func(e *outbox.Envelope) { e.Payload = outbox.Payload{} }, []string{"Envelope.Payload", "required"}},
		"long event id":       {func(e *outbox.Envelope) { e.EventID = strings.Repeat("é", 37) }, []string{"Envelope.EventID", "37", "36"}},
		"long event type":     {func(e *outbox.Envelope) { e.EventType = outbox.EventType(strings.Repeat("é", 129)) }, []string{"Envelope.EventType", "129", "128"}},
		"long aggregate type": {func(e *outbox.Envelope) { e.AggregateType = outbox.AggregateType(strings.Repeat("x", 65)) }, []string{"Envelope.AggregateType", "65", "64"}},
		"long aggregate id":   {func(e *outbox.Envelope) { e.AggregateID = strings.Repeat("x", 129) }, []string{"Envelope.AggregateID", "129", "128"}},
		"long tenant":         {func(e *outbox.Envelope) { e.TenantID = strings.Repeat("x", 65) }, []string{"Envelope.TenantID", "65", "64"}},
		"payload too big":     {func(e *outbox.Envelope) { e.Payload = payloadOf(outbox.MaxPayloadBytes + 1) }, []string{"Envelope.Payload", "1048577", "1048576"}},
		"payload no JSON":     {func(e *outbox.Envelope) { e.Payload = outbox.RawJSON(`{"id":`) }, []string{"Envelope.Payload", "not valid JSON", "6 bytes"}},
		"payload no UTF-8":    {func(e *outbox.Envelope) { e.Payload = outbox.RawJSON("\"\xff\"") }, []string{"Envelope.Payload", "UTF-8"}},
		"payload with NUL":    {func(e *outbox.Envelope) { e.Payload = outbox.JSON("a\x00b") }, []string{"Envelope.Payload", "NUL"}},
		"payload not made":    {func(e *outbox.Envelope) { e.Payload = outbox.JSON(make(chan int)) }, []string{"Envelope.Payload cannot be made", "chan int"}},
		"no content type":     {func(e *outbox.Envelope) { e.Payload = outbox.Bytes("", "x") }, []string{"Envelope.Payload", "need a content type"}},
		"no MIME type":        {func(e *outbox.Envelope) { e.Payload = outbox.Bytes("protobuf", "x") }, []string{"Envelope.Payload", `"protobuf"`, "MIME"}},
		"no MIME parameter":   {func(e *outbox.Envelope) { e.Payload = outbox.Bytes("a/b; c", "x") }, []string{"Envelope.Payload", `"a/b; c"`}},
		"line in type":        {func(e *outbox.Envelope) { e.Payload = outbox.Bytes("a/b; c=\"\r\nd\"", "x") }, []string{"Envelope.Payload", "MIME"}},
		"long content type":   {func(e *outbox.Envelope) { e.Payload = outbox.Bytes("a/"+strings.Repeat("b", 254), "x") }, []string{"Envelope.Payload", "256 bytes", "255"}},
		"JSON as bytes":       {func(e *outbox.Envelope) { e.Payload = outbox.Bytes("Application/JSON; charset=utf-8", "1") }, []string{"Envelope.Payload", "outbox.RawJSON"}},
		"bytes too big":       {func(e *outbox.Envelope) { e.Payload = outbox.Bytes("a/b", make([]byte, outbox.MaxPayloadBytes+1)) }, []string{"Envelope.Payload", "1048577", "1048576"}},
		"bytes not made":      {func(e *outbox.Envelope) { e.Payload = outbox.Encode(points{}, 1) }, []string{"Envelope.Payload cannot be made", "int is no point"}},
		"nameless codec":      {func(e *outbox.Envelope) { e.Payload = outbox.Encode(nameless{}, point{}) }, []string{"Envelope.Payload", "need a content type"}},
		"NUL in event type":   {func(e *outbox.Envelope) { e.EventType = "a\x00" }, []string{"Envelope.EventType", "NUL"}},
		"NUL in tenant":       {func(e *outbox.Envelope) { e.TenantID = "a\x00" }, []string{"Envelope.TenantID", "NUL"}},
		"bad UTF-8 in id":     {func(e *outbox.Envelope) { e.AggregateID = "\xff" }, []string{"Envelope.AggregateID", "UTF-8"}},
		"empty header key":    {func(e *outbox.Envelope) { e.Headers = map[string]string{"": "x"} }, []string{"Envelope.Headers", "empty key"}},
		"headers too big": {func(e *outbox.Envelope) {
			e.Headers = map[string]string{"k": strings.Repeat("x", outbox.MaxHeadersBytes/2), "é": strings.Repeat("x", outbox.MaxHeadersBytes/2-2)}
		}, []string{"Envelope.Headers", "65537", "65536"}},
		"NUL in header":    {func(e *outbox.Envelope) { e.Headers = map[string]string{"k": "\x00"} }, []string{"Envelope.Headers", "NUL"}},
		"both times":       {func(e *outbox.Envelope) { e.AvailableAt, e.DeliverAfter = now.Add(time.Hour), time.Hour }, []string{"Envelope.DeliverAfter", "AvailableAt"}},
		"negative delay":   {func(e *outbox.Envelope) { e.DeliverAfter = -time.Second }, []string{"Envelope.DeliverAfter", "positive"}},
		"available before": {func(e *outbox.Envelope) { e.OccurredAt, e.AvailableAt = now, now.Add(-time.Second) }, []string{"Envelope.AvailableAt", "1s before OccurredAt"}},
		"year 999":         {func(e *outbox.Envelope) { e.OccurredAt = time.Date(999, 1, 1, 0, 0, 0, 0, time.UTC) }, []string{"Envelope.OccurredAt", "999"}},
		"year 10000 by a delay": {func(e *outbox.Envelope) {
			e.DeliverAfter = 1<<63 - 1
			e.OccurredAt = time.Date(9990, 1, 1, 0, 0, 0, 0, time.UTC)
		}, []string{"Envelope.DeliverAfter", "9999"}},
		"two at once": {func(e *outbox.Envelope) { e.EventType, e.TenantID = "", strings.Repeat("x", 65) }, []string{"Envelope.EventType", "Envelope.TenantID"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := valid()
			tc.change(&env)
			err := env.Validate()
			require.ErrorIs(t, err, outbox.ErrInvalidEnvelope)
			require.ErrorAs(t, err, new(*outbox.FieldError))
			for _, part := range tc.want {
				require.ErrorContains(t, err, part)
			}
		})
	}
}

func TestEnvelopeAtItsLimitsIsFine(t *testing.T) {
	t.Parallel()
	now := time.Now()
	env := outbox.Envelope{
		EventID: strings.Repeat("é", 36), EventType: outbox.EventType(strings.Repeat("é", 128)),
		AggregateType: outbox.AggregateType(strings.Repeat("é", 64)), AggregateID: strings.Repeat("é", 128),
		TenantID: strings.Repeat("é", 64), Payload: payloadOf(outbox.MaxPayloadBytes),
		OccurredAt: now, AvailableAt: now, Headers: map[string]string{"k": ""},
	}
	require.NoError(t, env.Validate())
	env.Headers = map[string]string{"é": strings.Repeat("x", outbox.MaxHeadersBytes-2)}
	require.NoError(t, env.Validate())
	env = valid()
	env.Payload = outbox.RawJSON(`"\\u0000 is an escaped backslash and digits"`)
	require.NoError(t, env.Validate())
}

func TestEnvelopeIsDelayed(t *testing.T) {
	t.Parallel()
	now := time.Now()
	require.False(t, valid().IsDelayed())
	require.True(t, outbox.Envelope{DeliverAfter: 1}.IsDelayed())
	require.True(t, outbox.Envelope{OccurredAt: now, AvailableAt: now.Add(1)}.IsDelayed())
	require.False(t, outbox.Envelope{OccurredAt: now, AvailableAt: now}.IsDelayed())
	require.False(t, outbox.Envelope{OccurredAt: now, AvailableAt: now.Add(time.Hour), Attempts: 1}.IsDelayed(), "a retry is no delayed event")
}

func TestEnvelopeNeverShowsWhatIsSecret(t *testing.T) {
	t.Parallel()
	env := outbox.Envelope{
		EventID: "id-1", EventType: "T", AggregateType: "A", AggregateID: "agg-1", TenantID: "secret-tenant",
		Headers: map[string]string{"k": "secret-header"}, Payload: outbox.JSON("secret-payload"),
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "event", env)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "event", env)
	for _, shown := range []string{env.String(), fmt.Sprint(env), fmt.Sprintf("%v %+v %#v", env, env, &env), log.String()} {
		require.NotContains(t, shown, "secret")
		require.Contains(t, shown, "id-1")
		require.Contains(t, shown, "agg-1")
	}
	invalid := env
	invalid.EventID = strings.Repeat("x", 37)
	require.NotContains(t, invalid.Validate().Error(), "secret")
}

func TestPayload(t *testing.T) {
	t.Parallel()
	type order struct {
		ID int `json:"id"`
	}
	p := outbox.JSON(order{7})
	require.Equal(t, `{"id":7}`, p.String())
	require.Equal(t, []byte(`{"id":7}`), p.Bytes())
	var o order
	require.NoError(t, p.Decode(&o))
	require.Equal(t, order{7}, o)
	got, err := outbox.Decode[order](outbox.Envelope{Payload: outbox.RawJSON([]byte(`{"id":8}`))})
	require.NoError(t, err)
	require.Equal(t, order{8}, got)
	_, err = outbox.Decode[order](outbox.Envelope{EventID: "e-1", Payload: outbox.RawJSON(`"text"`)})
	require.ErrorContains(t, err, "e-1")
	require.Error(t, outbox.Payload{}.Decode(&o))
	require.Error(t, outbox.JSON(make(chan int)).Decode(&o))
	require.True(t, outbox.Payload{}.IsZero())
	text, err := json.Marshal(map[string]any{"p": p, "none": outbox.Payload{}})
	require.NoError(t, err)
	require.JSONEq(t, `{"p":{"id":7},"none":null}`, string(text))
}

type upperCodec struct{ outbox.Codec }

func (c upperCodec) Marshal(v any) ([]byte, error) {
	data, err := c.Codec.Marshal(v)
	return bytes.ToUpper(data), err
}

func TestTopicUsesItsCodec(t *testing.T) {
	t.Parallel()
	topic := outbox.NewTopic[string]("", "Said").WithCodec(upperCodec{outbox.DefaultCodec})
	env := topic.Envelope("a-1", "hello")
	require.Equal(t, `"HELLO"`, env.Payload.String())
	require.Equal(t, outbox.Global, env.AggregateType)
	require.NoError(t, env.Validate())
	got, err := topic.Decode(env)
	require.NoError(t, err)
	require.Equal(t, "HELLO", got)
}

// payloadOf is a JSON string of exactly n bytes, quotes included.
func payloadOf(n int) outbox.Payload {
	return outbox.RawJSON(`"` + strings.Repeat("x", n-2) + `"`)
}

func FuzzEnvelopeValidate(f *testing.F) {
	f.Add("id", "type", "agg", "a-1", "tenant", "k", "v", `{"a":1}`, int64(0), int64(0), int64(0))
	f.Add("", "é\x00", "", "\xff", "", "", "", `"\u0000"`, int64(1), int64(-5), int64(7))
	f.Fuzz(func(t *testing.T, id, typ, agg, aggID, tenant, key, value, payload string, occurred, available, after int64) {
		env := outbox.Envelope{
			EventID: id, EventType: outbox.EventType(typ), AggregateType: outbox.AggregateType(agg), AggregateID: aggID,
			TenantID: tenant, Headers: map[string]string{key: value}, Payload: outbox.RawJSON(payload),
			DeliverAfter: time.Duration(after),
		}
		if occurred != 0 {
			env.OccurredAt = time.UnixMicro(occurred)
		}
		if available != 0 {
			env.AvailableAt = time.UnixMicro(available)
		}
		if env.Validate() != nil {
			return
		}
		// What is valid fits every column, and its payload survives a decode.
		require.LessOrEqual(t, len([]rune(id)), 36)
		require.NotEmpty(t, typ)
		require.NotEmpty(t, key)
		for _, s := range []string{id, typ, agg, aggID, tenant, key, value, payload} {
			require.NotContains(t, s, "\x00")
			require.True(t, strings.ToValidUTF8(s, "") == s)
		}
		var v any
		require.NoError(t, env.Payload.Decode(&v))
		require.NotContains(t, fmt.Sprint(v), "\x00")
		require.False(t, after > 0 && available != 0)
	})
}
