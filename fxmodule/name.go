package outboxfx

import (
	"fmt"
	"regexp"
	"strings"
)

// Name is the name of an outbox; empty for the unnamed outbox. The module provides the Name under
// the same name, so that a constructor given to an option can ask for it.
type Name string

// validName matches valid names: a name stands in tags of fx.
var validName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

// describe returns the text for an outbox in errors.
func describe(name string) string {
	if name == "" {
		return "the outbox"
	}
	return fmt.Sprintf("the outbox %q", name)
}

// nameTag returns the tag of the values that an outbox needs from the app and provides to it.
func nameTag(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(`name:%q`, name)
}

// moduleName returns the name of an outbox's module.
func moduleName(name string) string { return strings.TrimSuffix("outbox."+name, ".") }

// groupTag returns the tag of the bindings that an app provides without [AsBinding].
func groupTag(name string) string { return fmt.Sprintf(`group:%q`, moduleName(name)) }

// partTag returns the tag of a part of an outbox. Only the outbox's module asks for the part.
func partTag(name, part string) string { return fmt.Sprintf(`name:"%s %s"`, moduleName(name), part) }
