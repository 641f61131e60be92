package contracts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/outboxkit/outbox-go/internal/contract"
	"github.com/outboxkit/outbox-go/outbox"
)

// asyncAPI returns the AsyncAPI 3 document of the schemas. The document is complete in itself: the
// definitions of all schemas are among the components, under the names of the schemas' files.
func (s Set) asyncAPI(files map[string][]byte) ([]byte, error) {
	type object = map[string]any
	channels, operations, messages, schemas := object{}, object{}, object{}, object{}
	for _, topic := range s.Topics {
		kind := topic.Kind()
		id := componentName(strings.TrimSuffix(fileName(kind), ".json"))
		var schema object
		if err := json.Unmarshal(files[fileName(kind)], &schema); err != nil {
			return nil, fmt.Errorf("contracts: the schema of %s: %w", kind, err)
		}
		message := object{
			"name": string(kind.EventType), "title": kind.String(), "contentType": topic.ContentType(),
			"x-version": topic.Version(),
		}
		if examples, is := schema["examples"].([]any); is {
			list := make([]any, len(examples))
			for i, example := range examples {
				list[i] = object{"payload": example}
			}
			message["examples"] = list
		}
		if topic.ContentType() == outbox.ContentTypeJSON {
			definitions, _ := schema["$defs"].(object)
			for name, definition := range definitions {
				schemas[id+"."+componentName(name)] = moved(definition, id)
			}
			for _, key := range []string{"$schema", "$defs", "examples"} {
				delete(schema, key)
			}
			schemas[id] = moved(schema, id)
			message["payload"] = reference("schemas", id)
		}
		messages[id] = message
		address := string(kind.EventType)
		if kind.AggregateType != outbox.Global {
			address = string(kind.AggregateType) + "." + address
		}
		if s.Address != nil {
			address = s.Address(kind)
		}
		channels[id] = object{"address": address, "messages": object{id: reference("messages", id)}}
		operations[id] = object{
			"action": "send", "channel": object{"$ref": "#/channels/" + id},
			"messages": []any{object{"$ref": "#/channels/" + id + "/messages/" + id}},
		}
	}
	return indented(struct {
		AsyncAPI           string `json:"asyncapi"`
		Info               object `json:"info"`
		DefaultContentType string `json:"defaultContentType"`
		Channels           object `json:"channels"`
		Operations         object `json:"operations"`
		Components         object `json:"components"`
	}{
		"3.0.0",
		object{"title": cmp.Or(s.Title, "Events"), "version": cmp.Or(s.Version, "1.0.0")},
		outbox.ContentTypeJSON,
		channels, operations,
		object{"messages": messages, "schemas": schemas},
	})
}

func reference(component, id string) map[string]any {
	return map[string]any{"$ref": "#/components/" + component + "/" + id}
}

// componentName is a name of letters, digits, dots, hyphens and underscores, as AsyncAPI takes them.
func componentName(name string) string {
	return strings.Map(func(c rune) rune {
		if c < 0x80 && (c == '.' || c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z') {
			return c
		}
		return '_'
	}, name)
}

// moved is a schema whose references to definitions lead to the components.
func moved(value any, id string) any {
	switch value := value.(type) {
	case map[string]any:
		for key, member := range value {
			if target, is := member.(string); is && key == "$ref" {
				if name, local := strings.CutPrefix(target, "#/$defs/"); local {
					value[key] = "#/components/schemas/" + id + "." + componentName(contract.Unescape(name))
					continue
				}
			}
			value[key] = moved(member, id)
		}
	case []any:
		for i := range value {
			value[i] = moved(value[i], id)
		}
	}
	return value
}
