package outboxfx

import (
	"regexp"
	"strings"

	"go.uber.org/fx"
)

var (
	graphResult = regexp.MustCompile(`^\t\t"(.+)" \[label=`)
	graphCtor   = regexp.MustCompile(`^\t\t(constructor_\d+) \[`)
	graphParam  = regexp.MustCompile(`^\t(constructor_\d+) -> "(.+)" \[ltail=cluster_\d+\];$`) // not the optional ones
)

// ignoredConfig looks in the app's graph for a constructor of the outbox's
// Config that cannot be called, and returns what it lacks. A Config is optional,
// and to fx an optional value whose constructor lacks something is as good as
// none: the outbox would run with defaults and nobody would know.
func ignoredConfig(graph fx.DotGraph, outboxName string) (missing string) {
	config := "outboxfx.Config"
	if outboxName != "" {
		config += "[name=" + outboxName + "]"
	}
	var (
		lines    = strings.Split(string(graph), "\n")
		provided = map[string]bool{}
		ctor     string // of the cluster that is being read
		maker    string // of the Config
	)
	for _, line := range lines {
		if m := graphCtor.FindStringSubmatch(line); m != nil {
			ctor = m[1]
		} else if m := graphResult.FindStringSubmatch(line); m != nil {
			provided[m[1]] = true
			if m[1] == config {
				maker = ctor
			}
		}
	}
	for _, line := range lines {
		m := graphParam.FindStringSubmatch(line)
		if m == nil || m[1] != maker || provided[m[2]] || strings.HasPrefix(m[2], "[type=") { // a group is never missing
			continue
		}
		return m[2]
	}
	return ""
}
