package contracts_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"math"
	"math/big"
	"net"
	"net/url"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/invopop/jsonschema"
	schemas "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/contracts"
	"github.com/outboxkit/outbox-go/outbox"
)

type (
	base struct {
		ID string `json:"id"`
		By string `json:"by,omitempty"`
	}
	line struct {
		Sku   string  `json:"sku"`
		Price float64 `json:"price"`
	}
	node struct {
		Value int     `json:"value"`
		Next  *node   `json:"next"`
		More  []*node `json:"more,omitempty"`
	}
	box[T any] struct {
		Content T `json:"content"`
	}
	ownJSON struct{ secret int }
	ownText struct{ text string }
	pointed struct{ A int }
	colour  string
	Aside   struct {
		Note string `json:"note"`
	}
	every struct {
		base
		*Aside
		Text       string                `json:"text"`
		Quoted     int                   `json:"quoted,string"`
		Pointer    *int                  `json:"pointer"`
		Omitted    *int                  `json:"omitted,omitempty"`
		Zero       time.Time             `json:"zero,omitzero"`
		Twice      **string              `json:"twice"`
		Lines      []line                `json:"lines"`
		Pointers   []*line               `json:"pointers"`
		Lists      [][]int               `json:"lists"`
		Fixed      [2]int                `json:"fixed"`
		Map        map[string]line       `json:"map"`
		Numbers    map[int]bool          `json:"numbers"`
		ByPointer  map[string]*line      `json:"by_pointer"`
		At         time.Time             `json:"at"`
		Took       time.Duration         `json:"took"`
		Raw        json.RawMessage       `json:"raw"`
		Bytes      []byte                `json:"bytes"`
		Any        any                   `json:"any"`
		Number     json.Number           `json:"number"`
		Box        box[line]             `json:"box"`
		Boxes      box[map[string]*line] `json:"boxes"`
		Node       node                  `json:"node"`
		OwnJSON    ownJSON               `json:"own_json"`
		OwnText    ownText               `json:"own_text"`
		Pointed    *pointed              `json:"pointed"`
		Big        *big.Int              `json:"big"`
		IP         net.IP                `json:"ip"`
		URL        url.URL               `json:"url"`
		Colour     colour                `json:"colour" jsonschema:"enum=red,enum=green"`
		Plain      uint8
		Hidden     string `json:"-"`
		unexported int    //nolint:unused // a field that JSON does not have
	}
)

func (o ownJSON) MarshalJSON() ([]byte, error) { return json.Marshal([]int{o.secret}) }

func (o *ownJSON) UnmarshalJSON([]byte) error { return nil }

func (o ownText) MarshalText() ([]byte, error) { return []byte(o.text), nil }

func (o *ownText) UnmarshalText([]byte) error { return nil }

func (*pointed) MarshalJSON() ([]byte, error) { return []byte(`"own"`), nil }

func (*pointed) UnmarshalJSON([]byte) error { return nil }

func filled() every {
	one, text := 1, "text"
	pointer := &text
	return every{
		Aside: &Aside{Note: "n"},
		base:  base{ID: "a", By: "b"}, Text: "t", Quoted: 3, Pointer: &one, Omitted: &one, Zero: time.Now(), Twice: &pointer, Lines: []line{{}},
		Pointers: []*line{nil, {}}, Lists: [][]int{nil, {1}}, Map: map[string]line{"a": {}}, Numbers: map[int]bool{-1: true}, ByPointer: map[string]*line{"a": nil},
		At: time.Now(), Took: time.Second, Raw: json.RawMessage(`[1]`), Bytes: []byte("a"), Any: 3, Number: "1.5",
		Boxes: box[map[string]*line]{map[string]*line{"a": nil}}, Node: node{Next: &node{More: []*node{nil, {}}}}, Pointed: &pointed{}, Big: big.NewInt(7),
		IP: net.IPv6loopback, URL: url.URL{Host: "a"}, Colour: "red",
	}
}

func zero() every {
	return every{Colour: "green"} // the zero value is none of the listed values
}

func topicOf[T any](T) outbox.Topic[T] { return outbox.NewTopic[T]("Test", "Tested") }

func schemaText(t *testing.T, topic contracts.Topic) []byte {
	t.Helper()
	files, err := contracts.Set{Topics: []contracts.Topic{topic}}.Files()
	require.NoError(t, err)
	return files["Test.Tested.json"]
}

func compile(t *testing.T, data []byte) *schemas.Schema {
	t.Helper()
	document, err := schemas.UnmarshalJSON(bytes.NewReader(data))
	require.NoError(t, err)
	compiler := schemas.NewCompiler()
	compiler.AssertFormat()
	require.NoError(t, compiler.AddResource("file:///schema.json", document))
	schema, err := compiler.Compile("file:///schema.json")
	require.NoError(t, err)
	return schema
}

func validate(t *testing.T, schema *schemas.Schema, text []byte) {
	t.Helper()
	value, err := schemas.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	require.NoError(t, schema.Validate(value), "%s", text)
}

// Each payload that encoding/json writes is valid, and so is the example, which decodes.
func TestTheSchemaTakesWhatIsWritten(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		topic    contracts.Topic
		payloads []any
	}{
		{"every kind of field", topicOf(every{}), []any{zero(), filled()}},
		{"a pointer", topicOf(new(line)), []any{&line{}}},
		{"a list", topicOf([]line(nil)), []any{[]line{}, []line{{}}}},
		{"a list of pointers", topicOf([]*line(nil)), []any{[]*line{nil}}},
		{"a map", topicOf(map[string][]int(nil)), []any{map[string][]int{"a": nil, "b": {1}}}},
		{"a recursive type", topicOf(node{}), []any{node{}, node{Next: &node{}}}},
		{"a generic type", topicOf(box[box[line]]{}), []any{box[box[line]]{}}},
		{"an unnamed type", topicOf(struct{ A []int }{}), []any{struct{ A []int }{}}},
		{"a text", topicOf(""), []any{"", "a"}},
		{"a number", topicOf(0), []any{-1}},
		{"raw JSON", topicOf(json.RawMessage(nil)), []any{json.RawMessage(`{"a":1}`)}},
		{"own JSON", topicOf(ownJSON{}), []any{ownJSON{}}},
		{"no fields", topicOf(struct{}{}), []any{struct{}{}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			data := schemaText(t, tt.topic)
			schema := compile(t, data)
			for _, payload := range tt.payloads {
				text, err := json.Marshal(payload)
				require.NoError(t, err)
				validate(t, schema, text)
			}
			var file struct {
				Examples []json.RawMessage `json:"examples"`
			}
			require.NoError(t, json.Unmarshal(data, &file))
			require.Len(t, file.Examples, 1)
			validate(t, schema, file.Examples[0])
			into := reflect.New(tt.topic.PayloadType())
			decoder := json.NewDecoder(bytes.NewReader(file.Examples[0]))
			require.NoError(t, decoder.Decode(into.Interface()), "%s", file.Examples[0])
		})
	}
}

func TestTheSchemaRefusesWhatIsNotWritten(t *testing.T) {
	t.Parallel()
	schema := compile(t, schemaText(t, topicOf(box[line]{})))
	for _, text := range []string{`{}`, `null`, `{"content":null}`, `{"content":{"sku":1,"price":1}}`, `{"content":{"sku":"a"}}`} {
		value, err := schemas.UnmarshalJSON(bytes.NewReader([]byte(text)))
		require.NoError(t, err)
		require.Error(t, schema.Validate(value), text)
	}
}

type numbers struct {
	I8     int8     `json:"i8"`
	I16    int16    `json:"i16"`
	I32    int32    `json:"i32"`
	I64    int64    `json:"i64"`
	Int    int      `json:"int"`
	U8     uint8    `json:"u8"`
	U16    *uint16  `json:"u16"`
	U32    []uint32 `json:"u32"`
	U64    uint64   `json:"u64"`
	Uint   uint     `json:"uint"`
	F32    float32  `json:"f32"`
	F64    float64  `json:"f64"`
	Quoted int8     `json:"quoted,string"`
	Own    int16    `json:"own" jsonschema:"minimum=5,maximum=6"`
}

// A number that encoding/json cannot read into the type is not in the schema.
func TestTheSchemaHasTheNumbersOfTheType(t *testing.T) {
	t.Parallel()
	u16 := uint16(math.MaxUint16)
	least := numbers{math.MinInt8, math.MinInt16, math.MinInt32, math.MinInt64, math.MinInt, 0, new(uint16), []uint32{0}, 0, 0, -math.MaxFloat32, -math.MaxFloat64, math.MinInt8, 5}
	most := numbers{math.MaxInt8, math.MaxInt16, math.MaxInt32, math.MaxInt64, math.MaxInt, math.MaxUint8, &u16, []uint32{math.MaxUint32}, math.MaxUint64, math.MaxUint, math.MaxFloat32, math.MaxFloat64, math.MaxInt8, 6}
	data := schemaText(t, topicOf(least))
	schema := compile(t, data)
	for _, payload := range []numbers{least, most} {
		text, err := json.Marshal(payload)
		require.NoError(t, err)
		validate(t, schema, text)
	}
	for _, field := range []string{
		`"i8":128`, `"i8":-129`, `"i16":32768`, `"i16":-32769`, `"i32":2147483648`, `"i32":-2147483649`, `"u8":256`, `"u8":-1`, `"u16":65536`,
		`"u16":-1`, `"u32":[4294967296]`, `"u32":[-1]`, `"u64":-1`, `"uint":-1`, `"f32":1e39`, `"f32":-1e39`, `"own":4`, `"own":7`,
	} {
		text, err := json.Marshal(most)
		require.NoError(t, err)
		var fields map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(text, &fields))
		require.NoError(t, json.Unmarshal([]byte("{"+field+"}"), &fields))
		text, err = json.Marshal(fields)
		require.NoError(t, err)
		value, err := schemas.UnmarshalJSON(bytes.NewReader(text))
		require.NoError(t, err)
		require.Error(t, schema.Validate(value), field)
		if !strings.Contains(field, "own") {
			require.Error(t, json.Unmarshal(text, &numbers{}), field)
		}
	}
	var file struct{ Examples []json.RawMessage }
	require.NoError(t, json.Unmarshal(data, &file))
	require.Contains(t, string(file.Examples[0]), `"i8": 1,`, "an example is a usual number")
}

// encoding/json writes such a struct, and the reflector would never end.
func TestAStructThatEmbedsItselfIsAnError(t *testing.T) {
	t.Parallel()
	for _, topic := range []contracts.Topic{
		topicOf(EmbedsItself{}), topicOf(&EmbedsItself{}), topicOf(map[string][]EmbedsItself{}), topicOf(box[EmbedsItself]{}), topicOf(EmbedsOther{}),
		topicOf(asField{}),
	} {
		_, err := contracts.Set{Topics: []contracts.Topic{topic}}.Files()
		require.ErrorContains(t, err, "embeds itself; give the embedded field a name")
	}
	schemaText(t, topicOf(namesItself{}))
	schemaText(t, topicOf(struct {
		A EmbedsItself `json:"-"`
		b EmbedsItself
	}{}))
}

// A type with a method JSONSchema and a MarshalJSON may write other numbers than its kind has.
func TestTheSchemaOfATypeIsTheTypes(t *testing.T) {
	t.Parallel()
	schema := compile(t, schemaText(t, topicOf(box[thousands]{})))
	text, err := json.Marshal(box[thousands]{Content: 100})
	require.NoError(t, err)
	require.JSONEq(t, `{"content":100000}`, string(text))
	validate(t, schema, text)
}

type thousands int8

func (n thousands) MarshalJSON() ([]byte, error) { return json.Marshal(1000 * int(n)) }

func (thousands) JSONSchema() *jsonschema.Schema { return &jsonschema.Schema{Type: "integer"} }

type (
	EmbedsItself struct {
		*EmbedsItself
		A int
	}
	EmbedsOther struct{ *OtherEmbeds }
	OtherEmbeds struct{ *EmbedsOther }
	asField     struct {
		Field OtherEmbeds
	}
	namesItself struct {
		*Named `json:"named"`
	}
	Named struct {
		*namesItself `json:"again"`
	}
)

// Two packages, or two functions, may have a type of the same name.
func TestTypesOfTheSameNameHaveTwoDefinitions(t *testing.T) {
	t.Parallel()
	type line struct {
		Sku int `json:"sku"`
	}
	schema := compile(t, schemaText(t, topicOf(struct {
		A line
		B box[otherLine]
	}{})))
	valid := func(text string) error {
		value, err := schemas.UnmarshalJSON(bytes.NewReader([]byte(text)))
		require.NoError(t, err)
		return schema.Validate(value)
	}
	require.NoError(t, valid(`{"A":{"sku":1},"B":{"content":{"sku":"a","price":1}}}`))
	require.Error(t, valid(`{"A":{"sku":"a"},"B":{"content":{"sku":"a","price":1}}}`))
	require.Error(t, valid(`{"A":{"sku":1},"B":{"content":{"sku":1,"price":1}}}`))
}

type otherLine = line // of the package

func TestATypeThatJSONDoesNotHaveIsAnError(t *testing.T) {
	t.Parallel()
	_, err := contracts.Set{Topics: []contracts.Topic{topicOf(struct{ C chan int }{})}}.Files()
	require.ErrorContains(t, err, "the topic Test/Tested: the payload struct { C chan int } has no JSON Schema")
}

type binary struct{ outbox.Codec }

func (binary) ContentType() string { return "application/protobuf" }

func TestABinaryTopicHasItsContentType(t *testing.T) {
	t.Parallel()
	data := schemaText(t, topicOf(line{}).WithCodec(binary{}))
	require.Contains(t, string(data), `"x-content-type": "application/protobuf"`)
	require.NotContains(t, string(data), "examples")
}

func TestTheDocumentIsAsyncAPI3(t *testing.T) {
	t.Parallel()
	packed, err := os.Open("testdata/asyncapi/3.0.0.json.gz")
	require.NoError(t, err)
	t.Cleanup(func() { _ = packed.Close() })
	unpacked, err := gzip.NewReader(packed)
	require.NoError(t, err)
	official, err := schemas.UnmarshalJSON(unpacked)
	require.NoError(t, err)
	compiler := schemas.NewCompiler()
	require.NoError(t, compiler.AddResource("file:///asyncapi.json", official))
	schema, err := compiler.Compile("file:///asyncapi.json")
	require.NoError(t, err)

	files, err := contracts.Set{Title: "Shop", Version: "2.0.0", Topics: []contracts.Topic{
		topicOf(every{}),
		outbox.NewTopic[node]("", "order.placed").WithVersion(2),
		outbox.NewTopic[line]("Line", "Added/1").WithCodec(binary{}),
	}, Address: func(kind outbox.EventKind) string { return "shop." + string(kind.EventType) }}.Files()
	require.NoError(t, err)
	document := files["asyncapi.json"]
	validate(t, schema, document)
	require.Contains(t, string(document), `"address": "shop.order.placed"`)

	// Each reference leads somewhere, and the schemas are the schemas of the files.
	var parsed map[string]any
	require.NoError(t, json.Unmarshal(document, &parsed))
	var payload func(value any)
	payload = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			if reference, is := value["$ref"].(string); is {
				at := any(parsed)
				for _, part := range bytes.Split([]byte(reference), []byte("/"))[1:] {
					at = at.(map[string]any)[string(part)]
				}
				require.NotNil(t, at, reference)
			}
			for _, member := range value {
				payload(member)
			}
		case []any:
			for _, member := range value {
				payload(member)
			}
		}
	}
	payload(parsed)

	broken := bytes.Replace(document, []byte(`"action": "send"`), []byte(`"action": "sent"`), 1)
	value, err := schemas.UnmarshalJSON(bytes.NewReader(broken))
	require.NoError(t, err)
	require.Error(t, schema.Validate(value), "the schema of AsyncAPI is compared")
}
