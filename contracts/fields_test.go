package contracts_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/contracts"
	"github.com/outboxkit/outbox-go/outbox"
)

type (
	Numbered struct {
		ID int `json:"id"`
	}
	Lettered struct {
		ID   string `json:"id"`
		Note string `json:"note,omitempty"`
	}
	// Untagged, Other and Tagged have a field of the same name.
	Untagged struct{ ID int }
	Other    struct{ ID string }
	Tagged   struct {
		ID *line `json:"ID"`
	}
	Deep struct {
		Lettered
		Note int `json:"note"`
	}
)

// Several fields may have a name, and a tag may have a text that is no name.
func TestTheFieldsAreThoseOfEncodingJSON(t *testing.T) {
	t.Parallel()
	type (
		before struct {
			Lettered
			ID int `json:"id"`
		}
		after struct {
			ID int `json:"id"`
			Lettered
		}
		optional struct {
			ID int `json:"id,omitempty"`
			Lettered
		}
		pointer struct {
			*Lettered
			ID int `json:"id,string"`
		}
		two struct {
			Untagged
			Other
			Own int
		}
		tagged struct {
			Untagged
			Tagged
		}
		twice struct {
			Own int
			Deep
			Numbered
		}
		dash struct {
			A int `json:"-,"` //nolint:staticcheck // the name is a dash
			B int `json:"-"`
		}
		quoted struct {
			A int    `json:"it's"`                   //nolint:staticcheck // encoding/json ignores the name
			B *int   `json:"a\\b"`                   //nolint:staticcheck // likewise
			C string `json:"c\"d,omitempty" xml:"c"` //nolint:staticcheck // likewise
		}
	)
	for _, tt := range []struct {
		topic         contracts.Topic
		full, zero    any
		names, always []string
	}{
		{topicOf(before{}), before{Lettered{"a", "b"}, 1}, before{}, []string{"id", "note"}, []string{"id"}},
		{topicOf(after{}), after{1, Lettered{"a", "b"}}, after{}, []string{"id", "note"}, []string{"id"}},
		{topicOf(optional{}), optional{1, Lettered{"a", "b"}}, optional{}, []string{"id", "note"}, nil},
		{topicOf(pointer{}), pointer{&Lettered{"a", "b"}, 1}, pointer{}, []string{"id", "note"}, []string{"id"}},
		{topicOf(two{}), two{Untagged{1}, Other{"a"}, 1}, two{}, []string{"Own"}, []string{"Own"}},
		{topicOf(tagged{}), tagged{Untagged{1}, Tagged{&line{}}}, tagged{}, []string{"ID"}, []string{"ID"}},
		{topicOf(twice{}), twice{1, Deep{Lettered{"a", "b"}, 1}, Numbered{1}}, twice{}, []string{"Own", "id", "note"}, []string{"Own", "id", "note"}},
		{topicOf(dash{}), dash{1, 1}, dash{}, []string{"-"}, []string{"-"}},
		{topicOf(quoted{}), quoted{1, new(int), "c"}, quoted{}, []string{"A", "B", "C"}, []string{"A", "B"}},
	} {
		t.Run(fmt.Sprintf("%T", tt.full), func(t *testing.T) {
			t.Parallel()
			data := schemaText(t, tt.topic)
			schema := compile(t, data)
			for _, payload := range []any{tt.full, tt.zero} {
				text, err := json.Marshal(payload)
				require.NoError(t, err)
				validate(t, schema, text)
			}
			text, err := json.Marshal(tt.full)
			require.NoError(t, err)
			var written map[string]any
			require.NoError(t, json.Unmarshal(text, &written))
			require.Equal(t, tt.names, slices.Sorted(maps.Keys(written)), "encoding/json writes these fields")
			names, always := fieldNames(t, data)
			require.Equal(t, tt.names, names)
			require.Equal(t, tt.always, always)
		})
	}
}

// fieldNames returns the names of the fields of a schema's root, and those of the required fields.
func fieldNames(t *testing.T, data []byte) (names, required []string) {
	t.Helper()
	type object struct {
		Properties map[string]json.RawMessage
		Required   []string
	}
	var file struct {
		Ref  string            `json:"$ref"`
		Defs map[string]object `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(data, &file))
	root := file.Defs[file.Ref[len("#/$defs/"):]]
	slices.Sort(root.Required)
	return slices.Sorted(maps.Keys(root.Properties)), root.Required
}

func TestNoTopicTakesTheFileOfTheDocument(t *testing.T) {
	t.Parallel()
	for _, kind := range []outbox.EventType{"asyncapi", "AsyncAPI"} {
		_, err := contracts.Set{Topics: []contracts.Topic{outbox.NewTopic[line]("", kind)}}.Files()
		require.ErrorContains(t, err, "the AsyncAPI document has the file asyncapi.json", kind)
	}
}
