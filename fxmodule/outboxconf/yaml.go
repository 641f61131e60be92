package outboxconf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	outboxfx "github.com/outboxkit/outbox-go/fxmodule"
)

// readYAML reads the keys of a file, below the section if there is one.
func readYAML(path string, text []byte, section string) ([]entry, error) {
	if len(text) > maxSize {
		return nil, fmt.Errorf("has %d bytes; the limit is %d", len(text), maxSize)
	}
	root, err := document(text)
	if err != nil {
		return nil, err
	}
	if section != "" {
		for _, name := range strings.Split(section, ".") {
			if root = child(root, name); root == nil {
				return nil, fmt.Errorf("has no section %q", section)
			}
		}
	}
	if root == nil || root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: needs keys and values, such as mode: %s", root.Line, outboxfx.SingleNode)
	}
	f := file{path: path, lines: map[string]int{}, isSection: isSection}
	f.walk(root, "")
	if f.keys > maxKeys {
		return nil, fmt.Errorf("has more keys than the limit, %d; outboxconf.Section reads a part of a file", maxKeys)
	}
	return f.entries, nil
}

// document is the root of the only document; nil for an empty file.
func document(text []byte) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var root *yaml.Node
	for {
		var doc yaml.Node
		switch err := dec.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return root, nil
		case err != nil:
			return nil, fmt.Errorf("does not parse: %w", err)
		case root != nil:
			return nil, fmt.Errorf("has a second document in line %d; put all settings into one", doc.Line)
		}
		root = doc.Content[0]
	}
}

// follow is the node that an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// child is the value of a key of a mapping; nil if the mapping lacks the key.
func child(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return follow(n.Content[i+1])
		}
	}
	return nil
}

// file collects the entries of a file. It stops at maxKeys, which also ends an
// alias that contains itself.
type file struct {
	path      string
	isSection func(key string) bool // reports whether a key is a group of settings
	entries   []entry
	lines     map[string]int // of the keys seen
	keys      int
}

func (f *file) walk(n *yaml.Node, prefix string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if f.keys++; f.keys > maxKeys {
			return
		}
		key, value := n.Content[i], follow(n.Content[i+1])
		if value.Kind == yaml.MappingNode {
			f.walk(value, prefix+key.Value+".")
			continue
		}
		f.add(prefix+key.Value, key.Line, value)
	}
}

func (f *file) add(key string, line int, value *yaml.Node) {
	e := entry{key: key, text: value.Value, place: fmt.Sprintf("%s:%d", f.path, line)}
	first, again := f.lines[key]
	f.lines[key] = line
	switch {
	case again:
		e.problem = fmt.Sprintf("is set twice, in lines %d and %d", first, line)
	case value.Tag == "!!null" && f.isSection(key):
		return
	case value.Tag == "!!null":
		e.problem = "has no value"
	case f.isSection(key):
		e.problem = fmt.Sprintf("is %.40q, but it is a section with keys of its own", value.Value)
	case value.Kind == yaml.SequenceNode && key == keyOfKinds:
		var err error
		if e.text, err = textOf(value); err != nil {
			e.problem = err.Error()
		}
	case value.Kind != yaml.ScalarNode:
		e.problem = "is a list; it takes one value"
	}
	f.entries = append(f.entries, e)
}
