package contracts

import (
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// jsonField is a field of the object that encoding/json makes of a struct.
type jsonField struct {
	reflect.StructField
	name    string
	options []string // of the tag
	tagged  bool     // the tag has the name
	mayMiss bool     // the field is in an embedded pointer, which may be nil
	misread bool     // the reflector reads another name
}

// embedded is a struct whose fields belong to the object.
type embedded struct {
	t       reflect.Type
	mayMiss bool
}

// fieldsOf returns the fields of a struct as encoding/json finds them: of several fields with a name, the least nested
// counts, and at the same depth the only one whose tag has the name. If no field counts, the object has no such
// field. fieldsOf returns also the names for which the reflector may have described another field: names that several
// fields have, and names that encoding/json reads in another way.
func fieldsOf(t reflect.Type) (fields []jsonField, wrong []string) {
	seen, taken := map[reflect.Type]bool{}, map[string]bool{}
	for level := []embedded{{t: t}}; len(level) > 0; {
		var names []string
		var next []embedded
		found := map[string][]jsonField{}
		for _, in := range level {
			if seen[in.t] {
				continue
			}
			for i := range in.t.NumField() {
				field, inner, misread := readField(in, in.t.Field(i))
				if inner != nil {
					next = append(next, *inner)
				}
				if misread != "" {
					wrong = append(wrong, misread)
				}
				if field.name != "" {
					names = append(names, field.name)
					found[field.name] = append(found[field.name], field)
				}
			}
		}
		for _, in := range level {
			seen[in.t] = true
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			if taken[name] || len(found[name]) > 1 {
				wrong = append(wrong, name)
			}
			if field, counts := dominant(found[name]); counts && !taken[name] {
				fields = append(fields, field)
			}
			taken[name] = true
		}
		level = next
	}
	return fields, wrong
}

// readField returns a field of the object or an embedded struct, or neither, and the name that the reflector reads
// in another way.
func readField(in embedded, field reflect.StructField) (_ jsonField, inner *embedded, misread string) {
	under := field.Type
	if under.Kind() == reflect.Pointer {
		under = under.Elem()
	}
	isStruct := under.Kind() == reflect.Struct
	tag := field.Tag.Get("json")
	if tag == "-" || !field.IsExported() && (!field.Anonymous || !isStruct) {
		return jsonField{}, nil, ""
	}
	options := strings.Split(tag, ",")
	name := options[0]
	if name == "-" || !isName(name) { // a dash with a comma behind it is a name
		misread = name
	}
	if !isName(name) {
		name = ""
	}
	if name == "" && field.Anonymous && isStruct {
		return jsonField{}, &embedded{t: under, mayMiss: in.mayMiss || field.Type.Kind() == reflect.Pointer}, misread
	}
	read := jsonField{StructField: field, name: name, options: options[1:], tagged: name != "", mayMiss: in.mayMiss, misread: misread != ""}
	if name == "" {
		read.name = field.Name
	}
	return read, nil, misread
}

// dominant returns the field that counts of the fields of a name and depth.
func dominant(fields []jsonField) (jsonField, bool) {
	if len(fields) > 1 {
		fields = slices.DeleteFunc(slices.Clone(fields), func(f jsonField) bool { return !f.tagged })
	}
	if len(fields) != 1 {
		return jsonField{}, false
	}
	return fields[0], true
}

// isName reports whether encoding/json takes a name from a tag.
func isName(name string) bool {
	for _, c := range name {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			return false
		}
	}
	return true
}

// selfEmbedding returns the first struct within a type that embeds itself, or nil. encoding/json writes such a struct,
// and the reflector would never end.
func selfEmbedding(t reflect.Type, seen map[reflect.Type]bool) reflect.Type {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return selfEmbedding(t.Elem(), seen)
	case reflect.Struct:
	default:
		return nil
	}
	if seen[t] || mapped(t) != nil || isDescribed(t) {
		return nil
	}
	seen[t] = true
	if embeds(t, nil) {
		return t
	}
	for i := range t.NumField() {
		if field, inner, _ := readField(embedded{t: t}, t.Field(i)); field.name == "" && inner == nil {
			continue // no field of the object
		}
		if within := selfEmbedding(t.Field(i).Type, seen); within != nil {
			return within
		}
	}
	return nil
}

// embeds reports whether a struct embeds one of the structs that embed it, or itself.
func embeds(t reflect.Type, outer []reflect.Type) bool {
	if slices.Contains(outer, t) {
		return true
	}
	outer = append(outer, t)
	for i := range t.NumField() {
		if _, inner, _ := readField(embedded{t: t}, t.Field(i)); inner != nil && embeds(inner.t, outer) {
			return true
		}
	}
	return false
}
