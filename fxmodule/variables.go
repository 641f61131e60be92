package outboxfx

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/v2"
)

// serviceLink is what Kubernetes sets for a service named outbox, without the
// prefix.
var serviceLink = regexp.MustCompile(`^(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_.+)?)?)$`)

// readVariables reads the variables with the prefix.
func (l loading) readVariables(prefix string) ([]entry, error) {
	var entries []entry
	names := map[string]string{} // of variables, by key
	k := koanf.New(".")
	err := k.Load(env.Provider(".", env.Opt{
		Prefix:      prefix,
		EnvironFunc: l.environ,
		TransformFunc: func(name, value string) (string, any) {
			rest := strings.TrimPrefix(name, prefix)
			value = strings.TrimSpace(value)
			s, known := settingOf(rest)
			switch {
			case value == "" || !known && l.ignores(name, rest):
				return "", nil
			case !known:
				entries = append(entries, entry{key: name, place: "environment", problem: unknownKey(rest, func(s setting) string { return prefix + s.variable })})
				return "", nil
			}
			names[s.path] = name
			return s.path, value
		},
	}), nil)
	if err != nil {
		return nil, fmt.Errorf("outboxfx: reading the variables %s…: %w", prefix, err)
	}
	for key, value := range k.All() {
		entries = append(entries, entry{key: key, value: value, place: names[key]})
	}
	inLines(entries)
	return entries, nil
}

// ignores reports whether a variable that is no setting of this outbox is
// somebody else's.
func (l loading) ignores(name, rest string) bool {
	return strings.HasPrefix(rest, "TEST_") || // which databases tests use
		serviceLink.MatchString(rest) || ofNamedOutbox(rest) ||
		slices.ContainsFunc(l.ignored, func(pattern string) bool {
			start, isPattern := strings.CutSuffix(pattern, "*")
			return name == pattern || isPattern && strings.HasPrefix(name, start)
		})
}

// ofNamedOutbox reports whether the rest of a variable is a name and a setting:
// ORDERS_POLLER_INTERVAL is the outbox orders' own.
func ofNamedOutbox(rest string) bool {
	return slices.ContainsFunc(settings, func(s setting) bool {
		name, found := strings.CutSuffix(rest, "_"+s.variable)
		return found && validName.MatchString(name) && !slices.ContainsFunc(reservedNames(), func(reserved string) bool {
			return name == reserved || strings.HasPrefix(name, reserved+"_")
		})
	})
}
