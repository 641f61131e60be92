package outboxfx

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// validName is what the name of an outbox may be: it stands in tags of fx and,
// in capitals, in the names of variables.
var validName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)

// checkName says what is wrong with the name of an outbox. The unnamed one's is
// empty.
func checkName(name string) error {
	switch {
	case name == "":
		return nil
	case !validName.MatchString(name):
		return fmt.Errorf("outboxfx: %.80q is no name for an outbox: it is a letter, then letters, digits, hyphens and underscores, at most 64 characters", name)
	case slices.Contains(reservedNames(), variableName(name)):
		return fmt.Errorf("outboxfx: %q is no name for an outbox: its variables would be those of the setting %s%s", name, VariablePrefix, variableName(name))
	}
	return nil
}

// reservedNames are the first words of the settings' variables, which the name
// of an outbox must not be.
func reservedNames() []string {
	var names []string
	for _, s := range settings {
		section, _, _ := strings.Cut(s.path, ".")
		names = append(names, variableName(section))
	}
	return names
}

// variableName is a name or a key as it stands in the names of variables.
func variableName(s string) string {
	return strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(s))
}

// describe is an outbox in errors.
func describe(name string) string {
	if name == "" {
		return "the outbox"
	}
	return fmt.Sprintf("the outbox %q", name)
}

// nameTag is the tag of what an outbox needs from the app and gives to it.
func nameTag(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(`name:%q`, name)
}

// partName is the name of a part of an outbox, which nobody else is to ask for.
func partName(name, part string) string {
	if name == "" {
		return part + " of the outbox"
	}
	return part + " of the outbox " + name
}

// partTag is the tag of a part.
func partTag(name, part string) string { return fmt.Sprintf(`name:%q`, partName(name, part)) }
