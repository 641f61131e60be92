package contract_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/contract"
)

const (
	nobody    = contract.Side(0)
	consumers = contract.Consumers
	waiting   = contract.Waiting
	both      = contract.Consumers | contract.Waiting
)

func parse(t *testing.T, schema string) *contract.Contract {
	t.Helper()
	c, err := contract.Parse([]byte(schema))
	require.NoError(t, err)
	return c
}

func breaks(changes []contract.Change) (sides contract.Side) {
	for _, change := range changes {
		sides |= change.Breaks
	}
	return sides
}

// field is a schema of an object with a single field.
func field(schema string) string {
	return `{"type":"object","properties":{"a":` + schema + `},"required":["a"]}`
}

// Each row is a change, with those who break by it, and by the change back.
var rules = []struct {
	name         string
	old, new     string
	breaks, back contract.Side
}{
	{"nothing", field(`{"type":"string"}`), field(`{"type":"string"}`), nobody, nobody},
	{"words for people", field(`{"type":"string","title":"x"}`), field(`{"type":"string","description":"y","examples":["z"],"x-any":1}`), nobody, nobody},
	{"a required field is removed, or added", field(`{"type":"string"}`), `{"type":"object"}`, consumers, waiting},
	{"an optional field is removed, or added", `{"properties":{"a":{"type":"string"}}}`, `{"properties":{}}`, consumers, nobody},
	{"a field becomes optional, or required", field(`{"type":"string"}`), `{"type":"object","properties":{"a":{"type":"string"}}}`, consumers, waiting},
	{"required without a description of the field", `{"required":["a"]}`, `{}`, consumers, waiting},
	{"another type", field(`{"type":"string"}`), field(`{"type":"integer"}`), both, both},
	{"an integer becomes a number", field(`{"type":"integer"}`), field(`{"type":"number"}`), consumers, waiting},
	{"a type more", field(`{"type":"string"}`), field(`{"type":["string","integer"]}`), consumers, waiting},
	{"any value", field(`{"type":"string"}`), field(`true`), consumers, waiting},
	{"no value", field(`{"type":"string"}`), field(`false`), waiting, consumers},
	{"null by a type", field(`{"type":"string"}`), field(`{"type":["string","null"]}`), consumers, waiting},
	{"null by a choice", field(`{"type":"string"}`), field(`{"anyOf":[{"type":"string"},{"type":"null"}]}`), consumers, waiting},
	{"null written in another way", field(`{"type":["string","null"]}`), field(`{"oneOf":[{"type":"string"},{"type":"null"}]}`), nobody, nobody},
	{"null among the values", field(`{"enum":["x"]}`), field(`{"enum":["x",null]}`), consumers, waiting},
	{"a nullable field changes", field(`{"anyOf":[{"type":"string"},{"type":"null"}]}`), field(`{"anyOf":[{"type":"integer"},{"type":"null"}]}`), both, both},
	{"a value more", field(`{"type":"string","enum":["x"]}`), field(`{"type":"string","enum":["y","x"]}`), consumers, waiting},
	{"a constant", field(`{"const":"x"}`), field(`{"enum":["x"]}`), nobody, nobody},
	{"another constant", field(`{"const":"x"}`), field(`{"const":"y"}`), both, both},
	{"listed values", field(`{"type":"string"}`), field(`{"type":"string","enum":["x"]}`), waiting, consumers},
	{"a format", field(`{"type":"string"}`), field(`{"type":"string","format":"date-time"}`), waiting, consumers},
	{"another format", field(`{"type":"string","format":"date"}`), field(`{"type":"string","format":"date-time"}`), both, both},
	{"base64", field(`{"type":"string","contentEncoding":"base64"}`), field(`{"type":"string"}`), consumers, waiting},
	{"a lower bound rises", field(`{"type":"integer","minimum":1}`), field(`{"type":"integer","minimum":2}`), waiting, consumers},
	{"an upper bound rises", field(`{"type":"string","maxLength":1}`), field(`{"type":"string","maxLength":2}`), consumers, waiting},
	{"a bound is new", field(`{"type":"array"}`), field(`{"type":"array","maxItems":9}`), waiting, consumers},
	{"large bounds that floats do not distinguish", field(`{"maximum":9223372036854775807}`), field(`{"maximum":9223372036854775806}`), both, both},
	{"another pattern", field(`{"pattern":"a"}`), field(`{"pattern":"b"}`), both, both},
	{"a field within a field", field(field(`{"type":"string"}`)), field(field(`{"type":"boolean"}`)), both, both},
	{"the elements of an array", field(`{"type":"array","items":{"type":"integer"}}`), field(`{"type":"array","items":{"type":"number"}}`), consumers, waiting},
	{"the values of a map", field(`{"additionalProperties":{"type":"integer"}}`), field(`{"additionalProperties":{"type":"number"}}`), consumers, waiting},
	{"other fields are forbidden", field(`{"type":"object"}`), field(`{"type":"object","additionalProperties":false}`), waiting, consumers},
	{"a field where others were forbidden", `{"additionalProperties":false}`, `{"additionalProperties":false,"properties":{"a":{}}}`, consumers, both},
	{"a field where others were values of a map", `{"additionalProperties":{"type":"string"}}`, `{"additionalProperties":{"type":"string"},"properties":{"a":{"type":"integer"}}}`, both, consumers},
	{"fields with a pattern", `{"patternProperties":{"^a":{"type":"integer"}}}`, `{"patternProperties":{"^a":{"type":"number"}}}`, consumers, waiting},
	{"another pattern of fields", `{"patternProperties":{"^a":{}}}`, `{"patternProperties":{"^b":{}}}`, both, both},
	{"the first elements", `{"prefixItems":[{"type":"integer"}]}`, `{"prefixItems":[{"type":"number"}]}`, consumers, waiting},
	{"more first elements", `{"prefixItems":[{}]}`, `{"prefixItems":[{},{}]}`, both, both},
	{"a choice more", field(`{"oneOf":[{"type":"string"},{"type":"integer"}]}`), field(`{"oneOf":[{"type":"boolean"},{"type":"integer"},{"type":"string"}]}`), consumers, waiting},
	{"an object more to choose", `{"oneOf":[` + field(`{"const":"x"}`) + `,` + field(`{"const":"y"}`) + `]}`, `{"oneOf":[` + field(`{"const":"x"}`) + `,` + field(`{"const":"y"}`) + `,` + field(`{"const":"z"}`) + `]}`, consumers, waiting},
	{"no choice any more", `{"anyOf":[` + field(`{"type":"string"}`) + `,` + field(`{"type":"integer"}`) + `]}`, `{"type":"object"}`, both, both},
	{"allOf", `{"allOf":[{"type":"integer"}]}`, `{"allOf":[{"type":"number"}]}`, consumers, waiting},
	{"a keyword that is not compared", `{"not":{"type":"string"}}`, `{"not":{"type":"integer"}}`, both, both},
	{"a keyword that nobody knows", `{"else":true}`, `{}`, both, both},
	{"a reference in place of its schema", `{"$ref":"#/$defs/a","$defs":{"a":` + field(`{"type":"string"}`) + `}}`, field(`{"type":"string"}`), nobody, nobody},
	{"another name of a definition", `{"$ref":"#/$defs/a","$defs":{"a":{"type":"string"}}}`, `{"$ref":"#/$defs/b~1c","$defs":{"b/c":{"type":"string"}}}`, nobody, nobody},
	{"a definition changes", `{"items":{"$ref":"#/$defs/a"},"$defs":{"a":{"type":"integer"}}}`, `{"items":{"$ref":"#/$defs/a"},"$defs":{"a":{"type":"number"}}}`, consumers, waiting},
	{"a recursive definition changes", `{"$ref":"#/$defs/n","$defs":{"n":{"properties":{"next":{"$ref":"#/$defs/n"},"v":{"type":"integer"}}}}}`, `{"$ref":"#/$defs/n","$defs":{"n":{"properties":{"next":{"$ref":"#/$defs/n"},"v":{"type":"number"}}}}}`, consumers, waiting},
	{"a definition that a keyword uses which is not compared", `{"not":{"$ref":"#/$defs/a"},"$defs":{"a":{"type":"integer"}}}`, `{"not":{"$ref":"#/$defs/a"},"$defs":{"a":{"type":"number"}}}`, both, both},
	{"any value becomes a recursive type", `{}`, `{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}},"items":{"$ref":"#/$defs/n"},"additionalProperties":{"$ref":"#/$defs/n"}}}}`, waiting, consumers},
	{"another document", `{"$ref":"a.json"}`, `{"$ref":"b.json"}`, both, both},
	{"a choice that refers to itself", `{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"type":"null"},{"type":"string"}]}}}`, `{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"type":"null"},{"type":"string"}]}}}`, nobody, nobody},
	{"another content type", `{"x-content-type":"application/protobuf"}`, `{}`, both, both},
	{"a new version, and back", `{"x-version":1,"type":"string"}`, `{"x-version":2,"x-reads-versions":[1,2],"type":"integer"}`, consumers, both},
	{"a version that is no longer read", `{"x-version":2,"x-reads-versions":[1,2]}`, `{"x-version":2,"x-reads-versions":[2]}`, waiting, nobody},
	{"a new version without a function for the old one", `{}`, `{"x-version":2,"x-reads-versions":[2]}`, waiting, both},
}

func TestAChangeBreaksThoseWhoReadTheOldFormat(t *testing.T) {
	t.Parallel()
	for _, rule := range rules {
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			was, is := parse(t, rule.old), parse(t, rule.new)
			forth := contract.Diff(was, is)
			require.Equal(t, rule.breaks, breaks(forth), "%v", forth)
			back := contract.Diff(is, was)
			require.Equal(t, rule.back, breaks(back), "%v", back)
			require.Empty(t, contract.Diff(was, was))
			require.Empty(t, contract.Diff(is, is))
		})
	}
}

func TestAChangeSaysWhereItIs(t *testing.T) {
	t.Parallel()
	const kind = `{"x-aggregate-type":"Order","x-event-type":"OrderPlaced",`
	was := parse(t, kind+`"properties":{"lines":{"type":"array","items":{"properties":{"price":{"type":"integer"}}}}}}`)
	is := parse(t, kind+`"properties":{"lines":{"type":"array","items":{"properties":{"price":{"type":"string"}}}}}}`)
	changes := contract.Diff(was, is)
	require.Len(t, changes, 1)
	require.Equal(t, "Order/OrderPlaced lines[].price: was integer and is string (breaks consumers and waiting events)", changes[0].String())
}

func TestAKindThatIsGoneBreaksBoth(t *testing.T) {
	t.Parallel()
	all := map[string]*contract.Contract{"a.json": parse(t, `{}`), "b.json": parse(t, `{}`)}
	require.Equal(t, both, breaks(contract.DiffAll(all, map[string]*contract.Contract{"a.json": parse(t, `{}`)})))
	require.Empty(t, contract.DiffAll(map[string]*contract.Contract{"a.json": parse(t, `{}`)}, all), "a new kind breaks nobody")
}

// Choices within choices could take forever.
func TestALargeSchemaIsNotComparedForever(t *testing.T) {
	t.Parallel()
	schema := func(leaf string) string {
		text := `{"type":"` + leaf + `"}`
		for i := range 40 {
			text = fmt.Sprintf(`{"anyOf":[{"properties":{"a%d":%s}},{"properties":{"b%d":{"$ref":"#/$defs/r"}}}]}`, i, text, i)
		}
		return `{"$defs":{"r":` + text + `},"$ref":"#/$defs/r"}`
	}
	changes := contract.Diff(parse(t, schema("string")), parse(t, schema("integer")))
	require.NotEmpty(t, changes)
}

func TestAFileThatIsNoContractIsAnError(t *testing.T) {
	t.Parallel()
	for _, data := range []string{``, `[]`, `null`, `{"x-version":"one"}`, `{`} {
		_, err := contract.Parse([]byte(data))
		require.ErrorContains(t, err, fmt.Sprintf("(%d bytes)", len(data)), data)
	}
}

func TestTheFileOfAKindHasASafeName(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Order.OrderPlaced.json", contract.FileName("Order", "OrderPlaced"))
	require.Equal(t, "OrderPlaced.json", contract.FileName("__GLOBAL__", "OrderPlaced"))
	name := contract.FileName("../a\\b", "ä:/\x00*")
	require.False(t, strings.ContainsAny(name, "/\\:*\x00"), name)
	require.NoError(t, os.WriteFile(filepath.Join(t.TempDir(), name), nil, 0o600))
}

func FuzzDiff(f *testing.F) {
	for _, rule := range rules {
		f.Add(rule.old, rule.new)
	}
	f.Fuzz(func(t *testing.T, old, changed string) {
		was, err := contract.Parse([]byte(old))
		if err != nil {
			t.Skip("no contract")
		}
		require.Empty(t, contract.Diff(was, was))
		contract.Example(was.Schema)
		if is, err := contract.Parse([]byte(changed)); err == nil {
			contract.Diff(was, is)
		}
	})
}
