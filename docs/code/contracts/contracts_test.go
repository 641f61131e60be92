// Package contracts_test has the code of docs/how-to/contracts.md.
package contracts_test

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/contracts"
	"github.com/outboxkit/outbox-go/dashboard"
	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
)

type order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents" jsonschema:"minimum=0,example=4200"`
	Note  string `json:"note,omitempty"`
}

type shipped struct {
	ID      string `json:"id"`
	Carrier string `json:"carrier" jsonschema:"enum=dhl,enum=ups"`
}

var (
	orderPlaced = outbox.NewTopic[order]("Order", "OrderPlaced").
			WithVersion(2, outbox.From(1, fromEuros))
	orderShipped = outbox.NewTopic[shipped]("Order", "OrderShipped")
)

// orderV1 is the payload of older builds.
type orderV1 struct {
	ID    string `json:"id"`
	Euros int    `json:"euros"`
}

func fromEuros(old orderV1) (order, error) {
	return order{ID: old.ID, Cents: 100 * old.Euros}, nil
}

// TestContracts fails when a payload changes.
func TestContracts(t *testing.T) {
	contracts.Check(t, "contracts", orderPlaced, orderShipped)
}

//go:embed contracts
var folder embed.FS

// newDashboard makes a dashboard that shows the formats of events.
func newDashboard(outboxes map[string]*outbox.Outbox, access httptx.Access) (*dashboard.Dashboard, error) {
	files, err := fs.Sub(folder, "contracts")
	if err != nil {
		return nil, err
	}
	return dashboard.New(dashboard.Config{Outboxes: outboxes, Access: access, Contracts: files})
}

func TestTheDashboardTakesTheFolder(t *testing.T) {
	_, err := newDashboard(nil, httptx.Access{})
	require.ErrorContains(t, err, "name at least one outbox", "the folder is fine")
}

func TestAnEventOfTheFirstVersionDecodes(t *testing.T) {
	o, err := orderPlaced.Decode(outbox.Envelope{Payload: outbox.RawJSON(`{"id":"o-1","euros":42}`)})
	require.NoError(t, err)
	require.Equal(t, order{ID: "o-1", Cents: 4200}, o)
}

// recorder is a test that keeps what it is told.
type recorder struct{ text string }

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) { r.text += fmt.Sprintf(format, args...) }

func (*recorder) Logf(string, ...any) {}

type with[T any] struct {
	A T `json:"a"`
}

type inner[T any] struct {
	B T `json:"b"`
}

type tree[T any] struct {
	A    T          `json:"a"`
	Next []*tree[T] `json:"next"`
}

func topic[T any]() contracts.Topic { return outbox.NewTopic[T]("Test", "Tested") }

// The rows of the page's table, and other changes with who breaks.
var rules = []struct {
	change   string // as on the page, or with the two cells that the page would have
	old, new contracts.Topic
}{
	{"a field is removed", topic[with[string]](), topic[struct{}]()},
	{"a required field is added", topic[struct{}](), topic[with[string]]()},
	{"an optional field is added", topic[struct{}](), topic[struct {
		A string `json:"a,omitempty"`
	}]()},
	{"a required field becomes optional", topic[with[string]](), topic[struct {
		A string `json:"a,omitempty"`
	}]()},
	{"an optional field becomes required: ok/break", topic[struct {
		A string `json:"a,omitempty"`
	}](), topic[with[string]]()},
	{"a field has another type", topic[with[string]](), topic[with[int]]()},
	{"an integer becomes a number", topic[with[int]](), topic[with[float64]]()},
	{"a number becomes an integer: ok/break", topic[with[float64]](), topic[with[int]]()},
	{"an integer gets a smaller type, such as `int32` for `int`", topic[with[int]](), topic[with[int32]]()},
	{"an integer gets a larger type: break/ok", topic[with[int32]](), topic[with[int64]]()},
	{"an `int` becomes an `int64`: ok/ok", topic[with[int]](), topic[with[int64]]()},
	{"an integer may not be negative any more: ok/break", topic[with[int64]](), topic[with[uint64]]()},
	{"a `float64` becomes a `float32`: ok/break", topic[with[float64]](), topic[with[float32]]()},
	{"a field becomes a pointer without `omitempty`, which may be null", topic[with[string]](), topic[with[*string]]()},
	{"a pointer becomes a value: ok/break", topic[with[*string]](), topic[with[string]]()},
	{"a value is added to `enum`", topic[struct {
		A string `json:"a" jsonschema:"enum=x"`
	}](), topic[struct {
		A string `json:"a" jsonschema:"enum=x,enum=y"`
	}]()},
	{"a value is removed from `enum`: ok/break", topic[struct {
		A string `json:"a" jsonschema:"enum=x,enum=y"`
	}](), topic[struct {
		A string `json:"a" jsonschema:"enum=x"`
	}]()},
	{"a text becomes a `time.Time`, which has a format", topic[with[string]](), topic[with[time.Time]]()},
	{"a `time.Time` becomes a text: break/ok", topic[with[time.Time]](), topic[with[string]]()},
	{"a text becomes a `[]byte`, which may be null", topic[with[string]](), topic[with[[]byte]]()},
	{"a bound becomes stricter: ok/break", topic[struct {
		A int `json:"a" jsonschema:"minimum=1"`
	}](), topic[struct {
		A int `json:"a" jsonschema:"minimum=2"`
	}]()},
	{"a bound becomes looser: break/ok", topic[struct {
		A int `json:"a" jsonschema:"minimum=2"`
	}](), topic[struct {
		A int `json:"a" jsonschema:"minimum=1"`
	}]()},
	{"a field becomes `any`, a `json.RawMessage` or a type with a `MarshalJSON` of its own", topic[with[string]](), topic[with[json.RawMessage]]()},
	{"`any` becomes a type: ok/break", topic[with[any]](), topic[with[string]]()},
	{"a value becomes a list: break/break", topic[with[string]](), topic[with[[]string]]()},
	{"a map becomes a struct: break/break", topic[with[map[string]int]](), topic[with[inner[int]]]()},
	{"a struct is embedded instead of its fields: ok/ok", topic[with[string]](), topic[struct{ with[string] }]()},
	{"a Go type or a Go field is renamed, and the JSON is the same", topic[with[string]](), topic[struct {
		Other string `json:"a"`
	}]()},
	{"a description, an example or a default changes: ok/ok", topic[struct {
		A string `json:"a" jsonschema:"example=x"`
	}](), topic[struct {
		A string `json:"a" jsonschema:"description=y,default=z"`
	}]()},
}

// The table of the page says who breaks, and Check says the same. A change within a struct, a list, a map or a
// recursive type breaks the same readers.
func TestTheTableOfThePage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "how-to", "contracts.md"))
	require.NoError(t, err)
	said := map[string]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) == 3 {
			said[strings.TrimSpace(cells[0])] = strings.TrimSpace(cells[1]) + "/" + strings.TrimSpace(cells[2])
		}
	}
	for _, rule := range rules {
		_, want, other := strings.Cut(rule.change, ": ")
		if !other {
			want = said[rule.change]
		}
		require.Equal(t, want, breaks(t, rule.old, rule.new), rule.change)
	}
	require.Equal(t, "break/ok", breaks(t, topic[with[inner[int]]](), topic[with[inner[float64]]]()), "in a struct")
	require.Equal(t, "break/ok", breaks(t, topic[with[[]inner[int]]](), topic[with[[]inner[float64]]]()), "in a list")
	require.Equal(t, "break/ok", breaks(t, topic[with[map[string]inner[int]]](), topic[with[map[string]inner[float64]]]()), "in a map")
	require.Equal(t, "break/ok", breaks(t, topic[tree[int]](), topic[tree[float64]]()), "in a recursive type")
}

// breaks writes the files of the old topic, and returns what Check says about the new topic, as the table
// of the page writes it.
func breaks(t *testing.T, old, changed contracts.Topic) string {
	t.Helper()
	folder := t.TempDir()
	t.Setenv(contracts.Variable, contracts.Update)
	contracts.Check(t, folder, old)
	t.Setenv(contracts.Variable, "")
	var r recorder
	contracts.Check(&r, folder, changed)
	word := map[bool]string{true: "break", false: "ok"}
	return word[strings.Contains(r.text, "(breaks consumers")] + "/" + word[strings.Contains(r.text, "waiting events)")]
}
