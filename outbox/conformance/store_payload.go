package conformance

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// payloadTests check that a payload is read as the text that was written, to the byte, so that a
// signature or a hash of the text holds.
var payloadTests = []storeTest{
	{"WrittenTogether", func(s *storeSuite) {
		envs := s.awkwardPayloads()
		s.insert(envs...)
		s.everyReadIsExact(envs)
	}},
	{"WrittenAlone", func(s *storeSuite) {
		envs := s.awkwardPayloads()
		// Of the long ones one is enough: reading them takes most of the time.
		long := 0
		envs = slices.DeleteFunc(envs, func(env outbox.Envelope) bool {
			if len(env.Payload.Bytes()) > 100_000 {
				long++
			}
			return len(env.Payload.Bytes()) > 100_000 && long > 1
		})
		for i := range envs {
			s.insert(envs[i])
		}
		s.everyReadIsExact(envs)
	}},
}

// awkwardTexts are valid JSON that a database may write in another way, or refuse.
var awkwardTexts = []string{
	// Numbers.
	`9007199254740993`, `-9223372036854775809`, `18446744073709551616`, `1234567890123456789012345678901234567890`,
	`-12345678901234567890.5`, `0.1234567890123456789012345678901234567890`, `1.0`, `1.10`, `-0`, `-0.0`, `0e0`, `1E+2`, `1e2`, `100`,
	`1e400`, `1e-400`, `1e400000`, `1e99999999999999999999`, `2.2250738585072014e-308`, `5e-324`, `1.7976931348623157e308`,
	// Keys.
	`{"b":1,"a":2}`, `{"a":1,"a":2}`, `{"a":1,"A":2,"á":3,"a ":4}`, `{"":""}`, `{"10":1,"9":2}`, `{"a\u0062":1,"ab":2}`,
	// Spaces.
	` {"a" : 1 , "b":[ ] } `, "\t[\r\n1 ,\n 2]\n", `{ }`, `[ ]`, `null `,
	// Escapes, and the characters themselves.
	`"\u00e9\u4e2d\ud83c\udf89"`, `"é中🎉"`, `"\u00E9"`, `"\/"`, `"\"\\\b\f\n\r\t"`, `"\u0000"`, `{"\u0000":"\u0000"}`, `"\u001f"`,
	"\"\u2028\u2029\"", `"\u2028"`, "\"\u007f\u0080\ufeff\ufffd\uffff\"", `"</script><!--&amp;"`, "\"e\u0301 \u00e9\"",
	// Halves of surrogate pairs.
	`"\ud83d"`, `"\ude00"`, `"\ud83d\ud83d"`, `"\ude00\ud83d"`, `{"\ud83d":"\ud83dx"}`,
	// Shapes.
	`null`, `true`, `""`, `"null"`, `{}`, `[null,null]`, `"it's -- ? $1 %s :name \\x {t}"`, `"2026-01-02T03:04:05+00:00"`, `"\\000"`, `"\\x00"`,
}

// everyByte has every byte, and every byte after every byte.
var everyByte = sync.OnceValue(func() []byte {
	all := make([]byte, outbox.MaxPayloadBytes)
	for i := range all {
		all[i] = byte(i + i/256*7)
	}
	return all
})

func (s *storeSuite) awkwardPayloads() []outbox.Envelope {
	texts := append(slices.Clone(awkwardTexts),
		strings.Repeat("[", 32)+strings.Repeat("]", 32),
		strings.Repeat(`{"a":`, 5000)+"1"+strings.Repeat("}", 5000),
		`"`+strings.Repeat(`é"`[:2], outbox.MaxPayloadBytes/2-1)+`"`,
		strings.Repeat(" ", outbox.MaxPayloadBytes-1)+"1",
		`[`+strings.Repeat(" 1.0 ,", 10_000)+`0]`,
	)
	var payloads []outbox.Payload
	for _, text := range texts {
		payloads = append(payloads, outbox.RawJSON(text))
	}
	all := everyByte()
	for _, data := range [][]byte{nil, {0}, {0, 0}, []byte(`{"a":1}`), []byte("é\xff\x01"), all[:256], all} {
		payloads = append(payloads, outbox.Bytes("application/protobuf", data), outbox.Bytes(`text/x; a="b \" c"`, data))
	}
	envs := s.events(len(payloads))
	for i, payload := range payloads {
		envs[i].AggregateID = fmt.Sprint("key-", i)
		envs[i].Payload = payload
		if i%2 == 0 {
			envs[i].Headers = map[string]string{"k": "v"}
		}
		if i%3 == 0 {
			envs[i].Payload = payload.WithVersion(2 + i)
		}
	}
	return envs
}

// everyReadIsExact reads the events, which are NEW, in every possible way.
func (s *storeSuite) everyReadIsExact(envs []outbox.Envelope) {
	want := map[string]*outbox.Envelope{}
	for i := range envs {
		want[envs[i].EventID] = &envs[i]
	}
	compare := func(what string, got []outbox.Envelope) {
		s.t.Helper()
		s.sameIDs(what, idsOf(got), idsOf(envs))
		for i := range got {
			want, got := want[got[i].EventID], &got[i]
			// Payload.String encodes bytes, which takes the race detector long. The text of a payload
			// depends on its bytes and its kind alone.
			if data, read := want.Payload.Bytes(), got.Payload.Bytes(); !bytes.Equal(read, data) {
				s.t.Errorf("%s: the payload %.60q (%d bytes) is read as %.60q (%d bytes)", what, data, len(data), read, len(read))
			}
			if got.Payload.IsJSON() != want.Payload.IsJSON() || got.Payload.ContentType() != want.Payload.ContentType() ||
				got.Payload.Version() != want.Payload.Version() || !maps.Equal(got.Headers, want.Headers) {
				s.t.Errorf("%s: the payload is %q of version %d with the headers %v, want %q of version %d with %v", what,
					got.Payload.ContentType(), got.Payload.Version(), got.Headers, want.Payload.ContentType(), want.Payload.Version(), want.Headers)
			}
		}
	}
	one := func(what string, read func(id string) (outbox.Envelope, error)) {
		s.t.Helper()
		got := make([]outbox.Envelope, len(envs))
		for i := range envs {
			env, err := read(envs[i].EventID)
			s.ok(what, err)
			got[i] = env
		}
		compare(what, got)
	}
	compare("Poll", s.poll(outbox.PollQuery{Now: suiteTime.Add(later), Limit: len(envs)}).Envelopes)
	one("FindEvent", func(id string) (outbox.Envelope, error) {
		event, err := s.Store.FindEvent(s.ctx, s.DB, id)
		return event.Envelope, err
	})
	claim := outbox.ClaimQuery{Now: suiteTime.Add(later), Limit: len(envs), Lease: "a", LeaseDuration: time.Minute, EventIDs: idsOf(envs[:2])}
	first := s.claim(claim).Envelopes
	claim.EventIDs = nil
	compare("Claim", append(first, s.claim(claim).Envelopes...))
	marks := make([]outbox.Mark, len(envs))
	for i := range envs {
		marks[i] = outbox.Mark{EventID: envs[i].EventID, Attempts: 1, Error: "no"}
	}
	s.mark(outbox.OutcomeDead, "a", marks...)
	one("GetDead", func(id string) (outbox.Envelope, error) {
		letter, err := s.Store.GetDead(s.ctx, s.DB, id)
		return letter.Envelope, err
	})
	for _, letter := range s.queryDead(outbox.DeadRowsQuery{Limit: len(envs), Listed: true}) {
		s.count("bytes of "+letter.EventID, letter.PayloadBytes, len(want[letter.EventID].Payload.String()))
	}
}
