package outboxfx

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	koanfyaml "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
	"go.yaml.in/yaml/v3"
)

// readYAML reads the keys of a file, below the section if there is one.
func readYAML(path string, text []byte, section string) ([]entry, error) {
	root, err := document(text)
	if err != nil {
		return nil, err
	}
	k := koanf.New(".")
	if root != nil {
		if root.Kind != yaml.MappingNode {
			return nil, fmt.Errorf("line %d: want keys and values, such as mode: %s", root.Line, SingleNode)
		}
		if err := k.Load(rawbytes.Provider(text), koanfyaml.Parser()); err != nil {
			return nil, fmt.Errorf("does not parse: %w", err)
		}
	}
	lines := map[string][]int{}
	if root != nil {
		keyLines(root, "", lines)
	}
	below := ""
	if section != "" {
		if !k.Exists(section) {
			return nil, fmt.Errorf("has no section %q", section)
		}
		switch value := k.Get(section).(type) {
		case nil, map[string]any:
		default: // of which Cut makes a section with nothing in it
			return nil, fmt.Errorf("has %s where the section %q should be, with keys of its own", show(value), section)
		}
		k, below = k.Cut(section), section+"."
	}
	var entries []entry
	for key, value := range k.All() {
		e := entry{key: key, value: value, place: path}
		if at := lines[below+key]; len(at) > 0 {
			e.line = at[0]
			e.place = fmt.Sprintf("%s:%d", e.place, at[0])
			if len(at) > 1 {
				e.problem = fmt.Sprintf("is set more than once: in lines %s", strings.Trim(fmt.Sprint(at), "[]"))
			}
		}
		entries = append(entries, e)
	}
	if root != nil {
		for _, key := range nullKeys(root, "") {
			if name, within := strings.CutPrefix(key.path, below); within {
				entries = append(entries, entry{
					key: name, place: fmt.Sprintf("%s:%d", path, key.line), line: key.line,
					problem: "is no setting: a key that YAML takes for null",
				})
			}
		}
	}
	inLines(entries)
	return entries, nil
}

// document is the root of the only document, nil when there is none.
func document(text []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var first, second yaml.Node
	switch err := dec.Decode(&first); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("does not parse: %w", err)
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		return nil, fmt.Errorf("holds another document in line %d, which nobody would read", second.Line)
	case !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("does not parse: %w", err)
	}
	if len(first.Content) == 0 || first.Content[0].Tag == "!!null" {
		return nil, nil
	}
	return first.Content[0], nil
}

// keyLines collects the lines of keys by their paths. It does not follow
// aliases, whose keys stand elsewhere.
func keyLines(n *yaml.Node, prefix string, lines map[string][]int) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		path := prefix + key.Value
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 {
			keyLines(value, path+".", lines)
			continue
		}
		lines[path] = append(lines[path], key.Line)
	}
}

// nullKey is a key such as null, ~ or nothing at all, which is lost in parsing.
type nullKey struct {
	path string
	line int
}

// nullKeys collects them with those of the sections. Like keyLines it does not
// follow aliases.
func nullKeys(n *yaml.Node, prefix string) []nullKey {
	var list []nullKey
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!null" {
			list = append(list, nullKey{prefix + "null", key.Line})
			continue
		}
		list = append(list, nullKeys(value, prefix+key.Value+".")...)
	}
	return list
}
