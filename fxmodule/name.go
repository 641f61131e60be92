package outboxfx

import (
	"fmt"
	"regexp"
	"strings"
)

// Name is an outbox's name; the unnamed outbox's is empty. The module provides it
// under that name, so that a constructor given to an option can ask for it.
type Name string

// validName is what a name may be: it stands in tags of fx.
var validName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

// describe is an outbox in errors.
func describe(name string) string {
	if name == "" {
		return "the outbox"
	}
	return fmt.Sprintf("the outbox %q", name)
}

// nameTag is the tag of what an outbox needs from the app and provides to it.
func nameTag(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(`name:%q`, name)
}

// moduleName is the name of an outbox's module.
func moduleName(name string) string { return strings.TrimSuffix("outbox."+name, ".") }

// groupTag is the tag of the bindings that an app provides without [AsBinding].
func groupTag(name string) string { return fmt.Sprintf(`group:%q`, moduleName(name)) }

// partTag is the tag of a part of an outbox, which only its module asks for.
func partTag(name, part string) string { return fmt.Sprintf(`name:"%s %s"`, moduleName(name), part) }
