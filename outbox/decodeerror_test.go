package outbox_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

// currency is a type that quotes what it does not know.
type currency string

func (c *currency) UnmarshalText(text []byte) error {
	return errors.New("no such currency: " + string(text))
}

func TestAnErrorOfDecodingQuotesNothingOfThePayload(t *testing.T) {
	t.Parallel()
	type person struct {
		Born    time.Time `json:"born"`
		Age     int       `json:"age"`
		Account currency  `json:"account"`
		Address struct {
			Number uint8 `json:"number"`
		} `json:"address"`
	}
	for name, tt := range map[string]struct {
		payload string
		says    string
		is      any
	}{
		"a text that is no date":     {`{"born":"secret"}`, "*time.ParseError", new(*time.ParseError)},
		"a number that is too large": {`{"age":4111111111111111111111}`, "a JSON number at offset 29 does not fit field age of type int", new(*json.UnmarshalTypeError)},
		"a text that is no number":   {`{"age":"secret"}`, "a JSON string at offset 15 does not fit field age of type int", new(*json.UnmarshalTypeError)},
		"a field within a field":     {`{"address":{"number":4111}}`, "field address.number of type uint8", new(*json.UnmarshalTypeError)},
		"not an object":              {`["secret"]`, "a JSON array at offset 1 does not fit of type outbox_test.person", new(*json.UnmarshalTypeError)},
		"no JSON":                    {`secret`, "a JSON syntax error at offset 1", new(*json.SyntaxError)},
		"a type of the user's":       {`{"account":"secret"}`, "*errors.errorString", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := said("e")
			env.AggregateType, env.Payload = "people", outbox.RawJSON(tt.payload)
			_, err := outbox.Decode[person](env)
			require.ErrorContains(t, err, "outbox: decoding event e (people/Said): ")
			require.ErrorContains(t, err, tt.says)
			require.NotContains(t, err.Error(), "secret")
			require.NotContains(t, err.Error(), "4111")
			if tt.is != nil {
				require.ErrorAs(t, err, tt.is, "what the codec said is there for who asks")
			}
			var direct person
			require.NotContains(t, env.Payload.Decode(&direct).Error(), "secret")
		})
	}
}
