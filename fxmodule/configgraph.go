package outboxfx

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.uber.org/fx"
)

var (
	graphResult = regexp.MustCompile(`^\t\t("(?:[^"\\]|\\.)+") \[label=`)
	graphCtor   = regexp.MustCompile(`^\t\t(constructor_\d+) \[`)
	graphParam  = regexp.MustCompile(`^\t(constructor_\d+) -> ("(?:[^"\\]|\\.)+") \[ltail=cluster_\d+\];$`) // not the optional ones
	graphMember = regexp.MustCompile(`^\t("(?:[^"\\]|\\.)+") -> ("(?:[^"\\]|\\.)+");$`)
)

// configGraph is what the app provides, as far as it can keep a Config from being
// made. It knows types by the names that fx prints, which have no folders: two
// types of one name in two packages of one name are one to it.
type configGraph struct {
	makers  map[string][]string // constructors by what they return
	needs   map[string][]string // what a constructor cannot do without
	members map[string][]string // of a value group
}

func readGraph(graph fx.DotGraph) configGraph {
	g := configGraph{makers: map[string][]string{}, needs: map[string][]string{}, members: map[string][]string{}}
	ctor := "" // of the cluster that is being read
	for _, line := range strings.Split(string(graph), "\n") {
		if m := graphCtor.FindStringSubmatch(line); m != nil {
			ctor = m[1]
		} else if m := graphResult.FindStringSubmatch(line); m != nil {
			g.makers[unquote(m[1])] = append(g.makers[unquote(m[1])], ctor)
		} else if m := graphParam.FindStringSubmatch(line); m != nil {
			g.needs[m[1]] = append(g.needs[m[1]], unquote(m[2]))
		} else if m := graphMember.FindStringSubmatch(line); m != nil {
			g.members[unquote(m[1])] = append(g.members[unquote(m[1])], unquote(m[2]))
		}
	}
	return g
}

func unquote(s string) string {
	if text, err := strconv.Unquote(s); err == nil {
		return text
	}
	return s
}

// ignoredConfig says why fx took no notice of a Config that the app does provide.
// A Config is optional, and to fx an optional value whose constructor lacks
// something, be it through others, is as good as none: the outbox would run with
// defaults and nobody would know.
func ignoredConfig(graph fx.DotGraph, outboxName string) (problem string) {
	tag := ""
	if outboxName != "" {
		tag = "[name=" + outboxName + "]"
	}
	g := readGraph(graph)
	if len(g.makers["outboxfx.Config"+tag]) == 0 {
		if len(g.makers["*outboxfx.Config"+tag]) > 0 {
			return "is provided as a pointer, *outboxfx.Config, which nobody would read; provide the Config itself"
		}
		return ""
	}
	missing, through := g.missing("outboxfx.Config"+tag, map[string]lack{})
	switch {
	case missing == "":
		return ""
	case through == "" || strings.HasPrefix(through, "outboxfx.Config"):
		return fmt.Sprintf("has a constructor that needs a %s, which the app does not provide", missing)
	default:
		return fmt.Sprintf("has a constructor that needs, through the constructor of %s, a %s, which the app does not provide", through, missing)
	}
}

// lack is what keeps a result from being made, if anything does, and whose
// constructor lacks it.
type lack struct{ missing, through string }

// missing is what a result lacks. What was found out before is in known, where a
// cycle, which fx refuses itself, finds that nothing is missing.
func (g configGraph) missing(result string, known map[string]lack) (missing, through string) {
	if found, asked := known[result]; asked {
		return found.missing, found.through
	}
	known[result] = lack{}
	defer func() { known[result] = lack{missing, through} }()
	if strings.HasPrefix(result, "[type=") { // a group may be empty, but its members must be made
		for _, member := range g.members[result] {
			if missing, through = g.missing(member, known); missing != "" {
				return missing, through
			}
		}
		return "", ""
	}
	if len(g.makers[result]) == 0 {
		return result, ""
	}
	for _, ctor := range g.makers[result] { // several where modules have private ones
		if missing, through = g.lackOf(ctor, known); missing == "" {
			return "", ""
		}
	}
	if through == "" {
		through = result
	}
	return missing, through
}

// lackOf is what a constructor lacks.
func (g configGraph) lackOf(ctor string, known map[string]lack) (missing, through string) {
	for _, need := range g.needs[ctor] {
		if missing, through = g.missing(need, known); missing != "" {
			return missing, through
		}
	}
	return "", ""
}
