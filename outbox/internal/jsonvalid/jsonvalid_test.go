package jsonvalid_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/internal/jsonvalid"
)

// texts are valid or nearly so; a change of any one byte is tried as well.
var texts = []string{
	``, ` `, `null`, `true`, `false`, `nul`, `truee`, `"a"`, `"`, `"a`, `0`, `-0`, `01`, `-`, `+1`, `1.`, `.5`, `1.5`, `1e5`, `1E+05`, `1e-`, `1e`, `-1.25e-300`,
	`{}`, `[]`, `{ }`, "[\r\n\t ]", `[1,2 , 3]`, `[1,]`, `[,1]`, `[1 2]`, `{"a":1}`, `{"a":1,"a":2}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{a:1}`, `{1:1}`, `{"a":[{"b":null},{}]}`,
	`{]`, `[}`, `[[]`, `[]]`, `{}{}`, `1 2`, "1\n", "\f1", "\u00a01", "\ufeff1",
	`"\"\\\/\b\f\n\r\t\u00e9\uD83d\uDE00"`, `"\ud83d"`, `"\u0000"`, `"\u00"`, `"\u00g0"`, `"\x"`, `"\'"`, `"\`, `"\"`, `"\u`, "\"\t\"", "\"\x00\"", "\"\x7f\"", "\"\xff\"", "\xff", "\x00", "1\x00", "[1\x00]", `"é漢😀"`,
	`"more than eight characters, é漢😀, \n and \u00e9\\ and again more than eight, "`, `{"0123456":"01234567","012345678":"!!!!!!!!"}`,
}

func TestValidIsAsInEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, text := range texts {
		same(t, text)
		for i := range text {
			same(t, text[:i])
			same(t, text[:i]+text[i+1:])
			for c := range 256 {
				same(t, text[:i]+string([]byte{byte(c)})+text[i+1:])
				same(t, text[:i]+string([]byte{byte(c)})+text[i:])
			}
		}
	}
}

func TestNestingIsLimitedAsInEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 9_999, 10_000, 10_001, 1_000_000} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			same(t, strings.Repeat("[", n)+strings.Repeat("]", n))
			same(t, strings.Repeat(`{"a":`, n)+"1"+strings.Repeat("}", n))
			same(t, strings.Repeat("[", n))
			same(t, "["+strings.Repeat("[],", n)+"{}]")
		})
	}
}

func FuzzValid(f *testing.F) {
	for _, text := range texts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { same(t, text) })
}

func same(t *testing.T, text string) {
	t.Helper()
	if want := json.Valid([]byte(text)); jsonvalid.Valid(text) != want {
		require.Failf(t, "not as in encoding/json", "%.200q: want %t", text, want)
	}
}

func BenchmarkValid(b *testing.B) {
	for name, text := range map[string]string{
		"long string": `{"order":"` + strings.Repeat("x", 186) + `"}`,
		"small parts": `{"id":17,"items":[{"sku":"a-1","n":2,"price":12.50},{"sku":"b-2","n":1,"price":3.99}],"paid":true,"note":null,"at":"2026-11-27T21:40:58Z","customer":{"id":"c-9","name":"Zo\u00eb"}}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if !jsonvalid.Valid(text) {
					b.Fatal(text)
				}
			}
		})
		b.Run(name+"/encoding json", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if !json.Valid([]byte(text)) {
					b.Fatal(text)
				}
			}
		})
	}
}
