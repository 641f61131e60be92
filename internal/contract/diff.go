package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// maxSteps bounds the comparison of two files: the choices in anyOf may nest.
const maxSteps = 50_000

// comparer compares two schemas. A keyword that it does not know breaks both sides when it changes.
type comparer struct {
	old, new map[string]any // the documents, for references
	changes  []Change
	seen     map[[2]uintptr]bool // pairs of schemas that are compared already; schemas may be recursive
	trials   map[[2]uintptr]Side // by pairs of choices; shared by the comparers of a file
	steps    *int                // that are left; shared, too
}

// schema is a schema after references and null are resolved.
type schema struct {
	keys  map[string]any
	null  bool     // may be null
	types []string // of other values; number includes integer
	enum  []string // in JSON, without null; nil: everything
	union []any    // the choices of anyOf or oneOf, without null
}

// The keywords that say nothing about which payloads are valid.
var annotations = []string{
	"title", "description", "$comment", "examples", "example", "default", "deprecated", "readOnly", "writeOnly", "$id", "$schema",
	"$anchor", "$defs", "definitions",
}

// The keywords that compare reads, apart from those of the tables below.
var known = []string{"$ref", "type", "enum", "const", "anyOf", "oneOf", "allOf", "properties", "required", "additionalProperties", "items", "prefixItems", "patternProperties"}

// Bounds from below and from above.
var (
	lower = []string{"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"}
	upper = []string{"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"}
	// exact are restrictions of which no order is known.
	exact = []string{"format", "pattern", "contentEncoding", "contentMediaType", "multipleOf", "uniqueItems"}
)

var allTypes = []string{"array", "boolean", "number", "object", "string"}

func (c *comparer) add(path string, breaks Side, format string, args ...any) {
	c.changes = append(c.changes, Change{Path: path, Problem: fmt.Sprintf(format, args...), Breaks: breaks})
}

func (c *comparer) compare(path string, old, new any) { //nolint:revive // new is the word
	if *c.steps--; *c.steps < 0 {
		if *c.steps == -1 {
			c.add(path, Consumers|Waiting, "the schema is too large to be compared")
		}
		return
	}
	was, is := asObject(old), asObject(new)
	pair := pairOf(was, is)
	if c.seen[pair] || len(was) == 0 && len(is) == 0 {
		return
	}
	c.seen[pair] = true
	o, n := resolve(c.old, was, 0), resolve(c.new, is, 0)
	if !c.types(path, &o, &n) {
		return
	}
	c.enum(path, &o, &n)
	c.bounds(path, &o, &n)
	c.properties(path, &o, &n)
	c.additional(path, &o, &n)
	c.elements(path, &o, &n)
	c.choices(path, &o, &n)
	c.rest(path, &o, &n)
}

// The schemas that a boolean stands for, and a keyword that is absent.
var (
	anything = map[string]any{}
	nothing  = map[string]any{"not": map[string]any{}}
)

// asObject returns a schema as an object. A schema may be a boolean.
func asObject(value any) map[string]any {
	switch value := value.(type) {
	case map[string]any:
		return value
	case bool:
		if !value {
			return nothing
		}
	}
	return anything
}

// pairOf identifies two schemas of the documents.
func pairOf(old, new map[string]any) [2]uintptr { //nolint:revive // new is the word
	return [2]uintptr{reflect.ValueOf(old).Pointer(), reflect.ValueOf(new).Pointer()}
}

// types compares the types, and reports whether values of a common type remain to be compared.
func (c *comparer) types(path string, o, n *schema) bool {
	wider, narrower := !covers(o.types, n.types), !covers(n.types, o.types)
	var breaks Side
	if wider {
		breaks |= Consumers
	}
	if narrower {
		breaks |= Waiting
	}
	if breaks != 0 {
		c.add(path, breaks, "was %s and is %s", typeNames(o.types), typeNames(n.types))
	}
	if n.null && !o.null && breaks&Consumers == 0 {
		c.add(path, Consumers, "may be null now")
	}
	if o.null && !n.null && breaks&Waiting == 0 {
		c.add(path, Waiting, "may not be null any more")
	}
	return slices.ContainsFunc(o.types, func(t string) bool {
		return slices.ContainsFunc(n.types, func(u string) bool { return covers([]string{t}, []string{u}) || covers([]string{u}, []string{t}) })
	})
}

// covers reports whether each type of some is among all.
func covers(all, some []string) bool {
	for _, t := range some {
		if !slices.Contains(all, t) && (t != "integer" || !slices.Contains(all, "number")) {
			return false
		}
	}
	return true
}

func typeNames(types []string) string {
	switch {
	case covers(types, allTypes):
		return "any value"
	case len(types) == 0:
		return "no value"
	default:
		return strings.Join(types, " or ")
	}
}

func (c *comparer) enum(path string, o, n *schema) {
	switch {
	case o.enum == nil && n.enum == nil:
	case o.enum == nil:
		c.add(path, Waiting, "takes only listed values now")
	case n.enum == nil:
		c.add(path, Consumers, "takes other values than the listed ones now")
	default:
		for _, value := range without(n.enum, o.enum) {
			c.add(path, Consumers, "has the new value %.64s", value)
		}
		for _, value := range without(o.enum, n.enum) {
			c.add(path, Waiting, "lacks the value %.64s", value)
		}
	}
}

// without returns the texts of list that are not in other.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(text string) bool { return slices.Contains(other, text) })
}

func (c *comparer) bounds(path string, o, n *schema) {
	for _, key := range slices.Concat(lower, upper, exact) {
		was, is := o.keys[key], n.keys[key]
		if equal(was, is) {
			continue
		}
		switch narrows := tighter(key, was, is); {
		case is == nil:
			c.add(path, Consumers, "%s was %.64s and is gone", key, text(was))
		case was == nil:
			c.add(path, Waiting, "%s is new: %.64s", key, text(is))
		default:
			breaks := Consumers | Waiting
			if !slices.Contains(exact, key) {
				breaks = map[int]Side{-1: Consumers, 0: Consumers | Waiting, 1: Waiting}[narrows]
			}
			c.add(path, breaks, "%s was %.64s and is %.64s", key, text(was), text(is))
		}
	}
}

// tighter returns 1 if a bound is stricter than it was, -1 if it is looser, and 0 if that is unknown.
func tighter(key string, was, is any) int {
	before, ok1 := number(was)
	after, ok2 := number(is)
	if !ok1 || !ok2 || before == after {
		return 0
	}
	if (after > before) == slices.Contains(lower, key) {
		return 1
	}
	return -1
}

func number(value any) (float64, bool) {
	n, is := value.(json.Number)
	if !is {
		return 0, false
	}
	f, err := n.Float64()
	return f, err == nil
}

func (c *comparer) properties(path string, o, n *schema) {
	was, is := object(o.keys["properties"]), object(n.keys["properties"])
	wasRequired, isRequired := texts(o.keys["required"]), texts(n.keys["required"])
	for _, name := range slices.Sorted(maps.Keys(was)) {
		at := join(path, name)
		if now, stays := is[name]; stays {
			if slices.Contains(wasRequired, name) && !slices.Contains(isRequired, name) {
				c.add(at, Consumers, "may be missing now")
			}
			if !slices.Contains(wasRequired, name) && slices.Contains(isRequired, name) {
				c.add(at, Waiting, "is required now, and waiting events may lack it")
			}
			c.compare(at, was[name], now)
			continue
		}
		breaks := Consumers
		if n.keys["additionalProperties"] == false {
			breaks |= Waiting
		}
		c.add(at, breaks, "is removed")
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if _, was := was[name]; was {
			continue
		}
		var breaks Side
		if slices.Contains(isRequired, name) {
			breaks |= Waiting
		}
		if o.keys["additionalProperties"] == false {
			breaks |= Consumers
		}
		if breaks != 0 {
			c.add(join(path, name), breaks, "is new%s", map[bool]string{true: " and required, and waiting events lack it"}[breaks&Waiting != 0])
		}
		if rule, is := o.keys["additionalProperties"].(map[string]any); is {
			c.compare(join(path, name), rule, n.keys["properties"].(map[string]any)[name])
		}
	}
	for _, name := range without(isRequired, wasRequired) {
		if was[name] == nil && is[name] == nil {
			c.add(join(path, name), Waiting, "is required now, and waiting events may lack it")
		}
	}
	for _, name := range without(wasRequired, isRequired) {
		if was[name] == nil && is[name] == nil {
			c.add(join(path, name), Consumers, "may be missing now")
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// additional compares the values of maps, and whether fields that are not listed may be there.
func (c *comparer) additional(path string, o, n *schema) {
	was, is := o.keys["additionalProperties"], n.keys["additionalProperties"]
	switch {
	case was == false && is == false:
	case was == false:
		c.add(path, Consumers, "may have other fields now")
	case is == false:
		c.add(path, Waiting, "may not have other fields any more")
	default:
		c.compare(path+"{}", was, is)
	}
}

// elements compares what arrays hold, and the fields whose names have a pattern.
func (c *comparer) elements(path string, o, n *schema) {
	c.compare(path+"[]", o.keys["items"], n.keys["items"])
	for _, key := range []string{"prefixItems", "allOf"} {
		was, is := list(o.keys[key]), list(n.keys[key])
		if len(was) != len(is) {
			c.add(path, Consumers|Waiting, "%s had %d schemas and has %d", key, len(was), len(is))
			continue
		}
		for i := range was {
			at := path
			if key == "prefixItems" {
				at = fmt.Sprintf("%s[%d]", path, i)
			}
			c.compare(at, was[i], is[i])
		}
	}
	was, is := object(o.keys["patternProperties"]), object(n.keys["patternProperties"])
	for _, pattern := range slices.Sorted(maps.Keys(was)) {
		if now, stays := is[pattern]; stays {
			c.compare(path+"{"+pattern+"}", was[pattern], now)
		}
	}
	if !slices.Equal(slices.Sorted(maps.Keys(was)), slices.Sorted(maps.Keys(is))) {
		c.add(path, Consumers|Waiting, "patternProperties has other patterns; they cannot be compared")
	}
}

// choices compares anyOf and oneOf: each new choice must be an old one for consumers, and each old
// choice a new one for waiting events.
func (c *comparer) choices(path string, o, n *schema) {
	switch {
	case o.union == nil && n.union == nil:
	case o.union == nil || n.union == nil:
		c.add(path, Consumers|Waiting, "became a choice of schemas, or is no choice any more; that cannot be compared")
	default:
		for i, now := range n.union {
			if !slices.ContainsFunc(o.union, func(was any) bool { return c.trial(was, now)&Consumers == 0 }) {
				c.add(path, Consumers, "has the new choice %d", i+1)
			}
		}
		for i, was := range o.union {
			if !slices.ContainsFunc(n.union, func(now any) bool { return c.trial(was, now)&Waiting == 0 }) {
				c.add(path, Waiting, "lacks the choice %d", i+1)
			}
		}
	}
}

// trial returns which sides a change between two schemas would break. A pair whose trial runs breaks
// nothing by itself: schemas may be recursive.
func (c *comparer) trial(was, now any) (breaks Side) {
	pair := pairOf(asObject(was), asObject(now))
	if known, is := c.trials[pair]; is {
		return known
	}
	before := maps.Clone(c.trials)
	c.trials[pair] = 0
	t := comparer{old: c.old, new: c.new, seen: map[[2]uintptr]bool{}, trials: c.trials, steps: c.steps}
	t.compare("", was, now)
	for _, change := range t.changes {
		breaks |= change.Breaks
	}
	if breaks != 0 { // verdicts within may rest on a wrong one
		clear(c.trials)
		maps.Copy(c.trials, before)
		c.trials[pair] = breaks
	}
	return breaks
}

// rest compares the keywords that no other method reads.
func (c *comparer) rest(path string, o, n *schema) {
	keys := map[string]bool{}
	for _, s := range []*schema{o, n} {
		for key := range s.keys {
			keys[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if strings.HasPrefix(key, "x-") || slices.Contains(annotations, key) || slices.Contains(lower, key) || slices.Contains(upper, key) ||
			slices.Contains(exact, key) || (slices.Contains(known, key) && key != "$ref") {
			continue
		}
		was, is := o.keys[key], n.keys[key]
		// A keyword that is the same may refer to a definition that is not.
		if !equal(was, is) || strings.Contains(text(was), `"$ref"`) && !equal(c.old["$defs"], c.new["$defs"]) {
			c.add(path, Consumers|Waiting, "%.64s has changed, which cannot be compared", key)
		}
	}
}

// resolve follows the references of a schema, and takes null out of its types, values and choices.
func resolve(document, value map[string]any, depth int) schema {
	s := schema{keys: keysOf(document, value), types: allTypes, null: true}
	if reflect.ValueOf(value).Pointer() == reflect.ValueOf(nothing).Pointer() {
		return schema{keys: s.keys}
	}
	if types := texts(s.keys["type"]); len(types) > 0 {
		s.null = slices.Contains(types, "null")
		s.types = slices.DeleteFunc(slices.Sorted(slices.Values(types)), func(t string) bool { return t == "null" })
	}
	values := list(s.keys["enum"])
	if constant, is := s.keys["const"]; is {
		values = []any{constant}
	}
	if values != nil {
		s.enum = []string{}
		hasNull := false
		for _, value := range values {
			if value == nil {
				hasNull = true
				continue
			}
			s.enum = append(s.enum, text(value))
		}
		s.null = s.null && hasNull
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		choices := list(s.keys[key])
		if choices == nil || s.union != nil || depth == maxChoices {
			continue
		}
		s.choose(document, choices, depth+1)
	}
	return s
}

// choose resolves the choices of a schema. A single choice beside null is the schema itself.
func (s *schema) choose(document map[string]any, choices []any, depth int) {
	var types []string
	null := false
	rest := []any{}
	var single schema
	for _, choice := range choices {
		one := resolve(document, asObject(choice), depth)
		null = null || one.null
		if len(one.types) == 0 && one.null { // null alone
			continue
		}
		types = append(types, one.types...)
		rest, single = append(rest, choice), one
	}
	s.null = s.null && null
	if len(rest) == 1 {
		keys := maps.Clone(single.keys)
		for key, value := range s.keys {
			if key != "anyOf" && key != "oneOf" {
				keys[key] = value
			}
		}
		both := slices.DeleteFunc(slices.Clone(single.types), func(t string) bool { return !covers(s.types, []string{t}) })
		enum := s.enum
		if enum == nil {
			enum = single.enum
		}
		*s = schema{keys: keys, null: s.null, types: both, enum: enum, union: single.union}
		return
	}
	slices.Sort(types)
	types = slices.Compact(types)
	s.types = slices.DeleteFunc(types, func(t string) bool { return !covers(s.types, []string{t}) })
	s.union = rest
}

// maxChoices is how deep choices within choices are resolved.
const maxChoices = 6

// maxReferences is how many references may follow each other.
const maxReferences = 32

// keysOf returns the keywords of a schema, together with those of the schema that it refers to.
func keysOf(document, keys map[string]any) map[string]any {
	for range maxReferences {
		reference, is := keys["$ref"].(string)
		if !is {
			break
		}
		target, found := lookup(document, reference)
		if !found { // of another document: compared as a text
			break
		}
		merged := maps.Clone(asObject(target))
		for key, value := range keys {
			if key != "$ref" {
				merged[key] = value
			}
		}
		keys = merged
	}
	return keys
}

// lookup finds a part of the document by a JSON pointer, such as "#/$defs/Order".
func lookup(document map[string]any, reference string) (any, bool) {
	pointer, is := strings.CutPrefix(reference, "#")
	if !is {
		return nil, false
	}
	var at any = document
	for _, token := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		if token == "" && pointer == "" {
			break
		}
		next, has := object(at)[Unescape(token)]
		if !has {
			return nil, false
		}
		at = next
	}
	return at, true
}

// Unescape returns the name that a part of a JSON pointer stands for.
func Unescape(token string) string { return strings.NewReplacer("~1", "/", "~0", "~").Replace(token) }

func object(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}

func list(value any) []any {
	l, _ := value.([]any)
	return l
}

// texts returns a text or a list of texts as a list.
func texts(value any) (all []string) {
	if single, is := value.(string); is {
		return []string{single}
	}
	for _, element := range list(value) {
		if s, is := element.(string); is {
			all = append(all, s)
		}
	}
	return all
}

// text is a value in JSON, with sorted keys.
func text(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(data)
}

func equal(a, b any) bool { return text(a) == text(b) }
