package outboxconf

import (
	"slices"
	"strings"
)

// readVariables reads the variables of the outbox in the order of their names. It
// ignores variables that resemble no setting, such as the variables that Kubernetes sets for a
// service named outbox.
func (l loading) readVariables() []entry {
	prefix := "OUTBOX_"
	if l.name != "" {
		prefix += variableName(l.name) + "_"
	}
	var entries []entry
	for _, variable := range slices.Sorted(slices.Values(l.environ)) {
		name, text, _ := strings.Cut(variable, "=")
		rest, isOwn := strings.CutPrefix(name, prefix)
		text = strings.TrimSpace(text)
		if !isOwn || text == "" {
			continue
		}
		if i := slices.IndexFunc(keys, func(key string) bool { return variableName(key) == rest }); i >= 0 {
			entries = append(entries, entry{key: keys[i], text: text, place: name})
		} else if near := nearest(rest); near != "" && !ofNamedOutbox(rest) {
			entries = append(entries, entry{key: name, place: "environment", problem: unknownKey(rest, prefix+variableName(near))})
		}
	}
	return entries
}

// ofNamedOutbox reports whether the rest of a variable is a name and a setting, as in
// ORDERS_POLLER_INTERVAL of the outbox orders.
func ofNamedOutbox(rest string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return strings.HasSuffix(rest, "_"+variableName(key)) })
}

func variableName(s string) string {
	return strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(s))
}
