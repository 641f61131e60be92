package contracts

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/invopop/jsonschema"

	"github.com/outboxkit/outbox-go/internal/contract"
	"github.com/outboxkit/outbox-go/outbox"
)

// schemaFile returns the file of a topic.
func schemaFile(topic Topic) ([]byte, error) {
	kind := topic.Kind()
	schema := &jsonschema.Schema{}
	if topic.ContentType() == outbox.ContentTypeJSON {
		var err error
		if schema, err = schemaOf(topic.PayloadType()); err != nil {
			return nil, fmt.Errorf("contracts: the topic %s: %w", kind, err)
		}
	}
	schema.Version = jsonschema.Version
	schema.Title = kind.String()
	schema.Extras = map[string]any{
		contract.KeyAggregateType: string(kind.AggregateType),
		contract.KeyEventType:     string(kind.EventType),
		contract.KeyVersion:       topic.Version(),
		contract.KeyReads:         topic.Versions(),
	}
	if topic.ContentType() != outbox.ContentTypeJSON {
		schema.Extras[contract.KeyContentType] = topic.ContentType()
		return indented(schema)
	}
	plain, err := indented(schema)
	if err != nil {
		return nil, err
	}
	parsed, err := contract.Parse(plain)
	if err != nil {
		return nil, fmt.Errorf("contracts: the topic %s: its schema is %w", kind, err)
	}
	schema.Examples = []any{contract.Example(parsed.Schema)}
	return indented(schema)
}

func indented(value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("contracts: encoding a schema: %w", err)
	}
	var b bytes.Buffer
	_ = json.Indent(&b, data, "", "  ") // of valid JSON
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// schemaOf returns the schema of the JSON that encoding/json makes of a type.
func schemaOf(t reflect.Type) (_ *jsonschema.Schema, err error) {
	defer func() { // of a type that JSON does not have, such as a channel
		if r := recover(); r != nil {
			err = fmt.Errorf("the payload %s has no JSON Schema: %v", t, r)
		}
	}()
	if within := selfEmbedding(t, map[reflect.Type]bool{}); within != nil {
		return nil, fmt.Errorf("the payload %s has no JSON Schema: the struct %s embeds itself; give the embedded field a name", t, within)
	}
	n := &namer{names: map[reflect.Type]string{}, types: map[string]reflect.Type{}}
	r := &jsonschema.Reflector{
		Anonymous:                 true,
		AllowAdditionalProperties: true, // readers ignore fields that they do not know
		Namer:                     n.name,
		Mapper:                    mapped,
	}
	c := &corrector{reflector: r, namer: n, schema: r.ReflectFromType(t), done: map[string]bool{}}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if c.schema.Ref == "" {
		c.correct(c.schema, t)
	}
	c.correctDefinitions()
	return c.schema, nil
}

// namer names the definitions: two types of the same name, of different packages, have two names.
type namer struct {
	names map[reflect.Type]string
	types map[string]reflect.Type
}

func (n *namer) name(t reflect.Type) string {
	if t.Name() == "" {
		return ""
	}
	if name, known := n.names[t]; known {
		return name
	}
	base := plainName(t.Name())
	name := base
	for i := 2; n.types[name] != nil; i++ {
		name = fmt.Sprintf("%s%d", base, i)
	}
	n.names[t], n.types[name] = name, t
	return name
}

// plainName leaves the packages out of a generic type's name, and characters that a reference would
// have to escape.
func plainName(name string) string {
	var b strings.Builder
	for _, part := range strings.FieldsFunc(name, func(c rune) bool { return strings.ContainsRune("[],* ", c) }) {
		part = part[strings.LastIndexAny(part, "/.")+1:]
		if i := strings.IndexRune(part, '·'); i >= 0 { // a type within a function
			part = part[:i]
		}
		b.WriteString(part)
	}
	return b.String()
}

var (
	timeType        = reflect.TypeFor[time.Time]()
	rawType         = reflect.TypeFor[json.RawMessage]()
	numberType      = reflect.TypeFor[json.Number]()
	bigType         = reflect.TypeFor[big.Int]()
	ipType          = reflect.TypeFor[net.IP]()
	urlType         = reflect.TypeFor[url.URL]()
	marshalerType   = reflect.TypeFor[json.Marshaler]()
	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	describedTypes  = []reflect.Type{reflect.TypeFor[interface{ JSONSchema() *jsonschema.Schema }](), reflect.TypeFor[interface{ JSONSchemaAlias() any }]()}
	reflectedByName = []reflect.Type{timeType, rawType}
)

// isDescribed reports whether a type has a schema of its own.
func isDescribed(t reflect.Type) bool {
	return slices.ContainsFunc(describedTypes, func(described reflect.Type) bool {
		return t.Implements(described) || reflect.PointerTo(t).Implements(described)
	})
}

// mapped returns the schemas of types whose JSON reflection does not see.
func mapped(t reflect.Type) *jsonschema.Schema {
	if isDescribed(t) {
		return nil
	}
	for _, known := range reflectedByName {
		if t == known {
			return nil
		}
	}
	switch {
	case t == numberType:
		return &jsonschema.Schema{Type: "number"}
	case t == bigType:
		return &jsonschema.Schema{Type: "integer"}
	case t == ipType: // version 4 or 6
		return &jsonschema.Schema{Type: "string", Examples: []any{"192.0.2.1"}}
	case t == urlType: // encoding/json writes its fields
		return &jsonschema.Schema{}
	case t.Implements(marshalerType) || reflect.PointerTo(t).Implements(marshalerType):
		return &jsonschema.Schema{} // any value: give the type a method JSONSchema
	case t.Implements(textMarshaler):
		return &jsonschema.Schema{Type: "string"}
	case reflect.PointerTo(t).Implements(textMarshaler):
		return &jsonschema.Schema{} // depends on whether the value is addressable
	default:
		return nil
	}
}

// corrector corrects the schema of a payload.
type corrector struct {
	reflector *jsonschema.Reflector
	namer     *namer
	schema    *jsonschema.Schema
	done      map[string]bool // names of definitions
}

// correctDefinitions corrects each definition once, also definitions that a correction adds.
func (c *corrector) correctDefinitions() {
	for again := true; again; {
		again = false
		for _, name := range slices.Sorted(maps.Keys(c.schema.Definitions)) {
			if of, known := c.namer.types[name]; known && !c.done[name] {
				c.done[name], again = true, true
				c.correct(c.schema.Definitions[name], of)
			}
		}
	}
}

// correct adds to the schema of a type the JSON that encoding/json writes and the reflector leaves out: null for
// nil pointers, slices and maps, numbers written as texts, negative keys of maps, and the numbers that the type can
// hold.
func (c *corrector) correct(s *jsonschema.Schema, t reflect.Type) {
	if s == nil || s.Ref != "" || mapped(t) != nil {
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		if t != timeType && s.Properties != nil {
			c.correctFields(s, t)
		}
	case reflect.Slice, reflect.Array:
		if s.Items != nil {
			c.correct(s.Items, deref(t.Elem()))
			s.Items = nullable(s.Items, t.Elem())
		}
	case reflect.Map:
		if len(s.PatternProperties) == 1 {
			for _, values := range s.PatternProperties {
				s.AdditionalProperties = values
			}
			s.PatternProperties = nil
		}
		if kind := t.Key().Kind(); kind >= reflect.Int && kind <= reflect.Uintptr && !t.Key().Implements(textMarshaler) {
			s.PropertyNames = &jsonschema.Schema{Pattern: "^-?[0-9]+$"}
		}
		if s.AdditionalProperties != nil {
			c.correct(s.AdditionalProperties, deref(t.Elem()))
			s.AdditionalProperties = nullable(s.AdditionalProperties, t.Elem())
		}
	default:
		if !isDescribed(t) {
			bound(s, t.Kind())
		}
	}
}

// bounds are the least and the largest number that encoding/json writes of a kind. int and int64 are not
// bounded: an int has the size of the machine, and the files do not.
var bounds = map[reflect.Kind][2]json.Number{
	reflect.Int8: {"-128", "127"}, reflect.Int16: {"-32768", "32767"}, reflect.Int32: {"-2147483648", "2147483647"},
	reflect.Uint8: {"0", "255"}, reflect.Uint16: {"0", "65535"}, reflect.Uint32: {"0", "4294967295"},
	reflect.Uint: {"0", ""}, reflect.Uint64: {"0", ""},
	reflect.Float32: {"-3.4028235e38", "3.4028235e38"},
}

// bound adds the bounds of a kind of number, where a tag has not set others.
func bound(s *jsonschema.Schema, kind reflect.Kind) {
	if s.Type != "integer" && s.Type != "number" {
		return
	}
	if s.Minimum == "" && s.ExclusiveMinimum == "" {
		s.Minimum = bounds[kind][0]
	}
	if s.Maximum == "" && s.ExclusiveMaximum == "" {
		s.Maximum = bounds[kind][1]
	}
}

// correctFields corrects the fields of a struct.
func (c *corrector) correctFields(s *jsonschema.Schema, t reflect.Type) {
	fields, wrong := fieldsOf(t)
	for _, name := range wrong {
		s.Properties.Delete(name)
		s.Required = without(s.Required, name)
	}
	for _, field := range fields {
		if field.misread || slices.Contains(wrong, field.name) {
			c.describe(s, field)
		}
		property, has := s.Properties.Get(field.name)
		if !has || property == nil {
			continue
		}
		c.correct(property, deref(field.Type))
		if field.mayMiss || slices.Contains(field.options, "omitzero") {
			s.Required = without(s.Required, field.name)
		}
		if slices.Contains(field.options, "string") && isScalar(deref(field.Type).Kind()) {
			property.Type, property.Examples = "string", []any{quotedExample(deref(field.Type).Kind())}
			property.Minimum, property.Maximum = "", ""
		}
		if !slices.Contains(field.options, "omitempty") && !slices.Contains(field.options, "omitzero") {
			s.Properties.Set(field.name, nullable(property, field.Type))
		}
	}
}

// describe adds the property of a field for which the reflector described another field, or no field.
func (c *corrector) describe(s *jsonschema.Schema, field jsonField) {
	const name = "Field"
	tag := fmt.Sprintf("json:%q %s", strings.Join(append([]string{name}, field.options...), ","), field.Tag)
	alone := c.reflector.ReflectFromType(reflect.StructOf([]reflect.StructField{{Name: name, Type: field.Type, Tag: reflect.StructTag(tag)}}))
	property, has := alone.Properties.Get(name)
	if !has {
		return
	}
	s.Properties.Set(field.name, property)
	if slices.Contains(alone.Required, name) {
		s.Required = append(s.Required, field.name)
	}
	for name, definition := range alone.Definitions {
		if c.schema.Definitions == nil {
			c.schema.Definitions = jsonschema.Definitions{}
		}
		if c.schema.Definitions[name] == nil {
			c.schema.Definitions[name] = definition
		}
	}
}

func without(names []string, name string) []string {
	return slices.DeleteFunc(names, func(other string) bool { return other == name })
}

// quotedExample is the text that the option string of a json tag makes of a value.
func quotedExample(kind reflect.Kind) string {
	switch kind {
	case reflect.Bool:
		return "true"
	case reflect.String:
		return `"text"`
	default:
		return "1"
	}
}

func isScalar(kind reflect.Kind) bool {
	return kind == reflect.Bool || kind == reflect.String || kind >= reflect.Int && kind <= reflect.Float64
}

func deref(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// nullable returns the schema of a value of type t that may be nil.
func nullable(s *jsonschema.Schema, t reflect.Type) *jsonschema.Schema {
	switch t.Kind() {
	case reflect.Pointer:
	case reflect.Slice, reflect.Map:
		if t.Implements(textMarshaler) || t.Implements(marshalerType) {
			return s
		}
	default:
		return s
	}
	if data, err := json.Marshal(s); err != nil || string(data) == "{}" || string(data) == "true" {
		return s // any value
	}
	for _, choice := range append(s.OneOf, s.AnyOf...) {
		if choice.Type == "null" {
			return s
		}
	}
	return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{s, {Type: "null"}}}
}
