package check_test

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox"
)

// undocumentedErrors names the errors that packages export and a page's tables lack, and those
// that the page has and no package exports.
func undocumentedErrors(p page, a *api) (problems []string) {
	have := map[string]bool{}
	for _, name := range p.names() {
		have[strings.TrimPrefix(name, "*")] = true
	}
	var exported []string
	for _, pkg := range a.folders {
		for name, kind := range a.packages[pkg] {
			if isError.MatchString(name) && (kind == "var" || kind == "type") {
				exported = append(exported, pkg+"."+name)
			}
		}
	}
	slices.Sort(exported)
	for _, name := range slices.Compact(exported) {
		if !have[name] {
			problems = append(problems, fmt.Sprintf("%s: no table has `%s` in its first column", p.path, name))
		}
	}
	for name := range have {
		if _, bare, _ := strings.Cut(name, "."); isError.MatchString(bare) && !slices.Contains(exported, name) {
			problems = append(problems, fmt.Sprintf("%s: `%s` is exported by no package", p.path, name))
		}
	}
	return problems
}

var isError = regexp.MustCompile(`^(Err[A-Z]\w*|[A-Z]\w*Error)$`)

// undocumentedPackages names the folders of packages that a page's tables lack.
func undocumentedPackages(p page, a *api) (problems []string) {
	names := p.names()
	for _, folder := range slices.Sorted(maps.Keys(a.folders)) {
		if !slices.Contains(names, folder) {
			problems = append(problems, fmt.Sprintf("%s: no table has `%s` in its first column", p.path, folder))
		}
	}
	return problems
}

// undocumentedFlags names the flags of the command line that a page's tables lack, those
// whose second column does not have the commands with the flag, and those that the page
// has in backticks and no command has.
func undocumentedFlags(p page, help map[string]string) (problems []string) {
	exist := map[string][]string{} // the commands with a flag
	for command, text := range help {
		own, _, _ := strings.Cut(text, "\nGlobal Flags:\n")
		for flag := range flags(own) {
			if strings.HasPrefix(flag, "--") {
				exist[flag] = append(exist[flag], strings.TrimPrefix(command, "outbox "))
			}
		}
	}
	documented := map[string][]string{}
	for _, row := range p.rows() {
		for _, flag := range codes(row[0]) {
			documented[flag] = slices.Sorted(slices.Values(codes(row[1])))
			if row[1] == "all" {
				documented[flag] = []string{"all"}
			}
		}
	}
	for _, flag := range slices.Sorted(maps.Keys(exist)) {
		commands, have := slices.Sorted(slices.Values(exist[flag])), documented[flag]
		if slices.Contains(commands, "outbox") {
			commands = []string{"all"} // a flag of the root
		}
		switch {
		case have == nil:
			problems = append(problems, fmt.Sprintf("%s: no table has `%s` in its first column", p.path, flag))
		case !slices.Equal(commands, have):
			problems = append(problems, fmt.Sprintf("%s: %s is a flag of %s", p.path, flag, strings.Join(commands, ", ")))
		}
	}
	for _, s := range p.spans() {
		if flag, _, _ := strings.Cut(s.text, " "); strings.HasPrefix(flag, "--") && exist[flag] == nil {
			problems = append(problems, fmt.Sprintf("%s:%d: no command has the flag %s", p.path, s.line, flag))
		}
	}
	return problems
}

// option is a field that an application sets.
type option struct {
	of    reflect.Type
	field string
	via   []string // the fields that hold the type
}

var modes = []any{outbox.SingleNode{}, outbox.MultiNode{}, outbox.OrderedByKey{}, outbox.Ordered{}, outbox.WriterOnly{}}

// options are the fields of outbox.Config, of the modes, and of the structs of package
// outbox that their fields hold. The functions of a hook are code, no options.
func options() (list []option) {
	seen := map[reflect.Type]int{reflect.TypeFor[outbox.WriterHook](): 1}
	via := map[reflect.Type][]string{}
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		if seen[typ]++; seen[typ] > 1 {
			return
		}
		for i := range typ.NumField() {
			field := typ.Field(i)
			if !field.IsExported() {
				continue
			}
			list = append(list, option{of: typ, field: field.Name})
			held := field.Type
			for held.Kind() == reflect.Pointer || held.Kind() == reflect.Slice {
				held = held.Elem()
			}
			if held.Kind() == reflect.Struct && held.PkgPath() == reflect.TypeFor[outbox.Config]().PkgPath() {
				via[held] = append(via[held], field.Name)
				visit(held)
			}
		}
	}
	visit(reflect.TypeFor[outbox.Config]())
	for _, mode := range modes {
		visit(reflect.TypeOf(mode))
	}
	for i := range list {
		list[i].via = via[list[i].of]
	}
	return list
}

// undocumentedOptions names the options that no table of a page has, as `Type.Field`, as
// the field that holds the type and the field, or as `Field` in a section that names the
// type.
func undocumentedOptions(p page, options []option) (problems []string) {
	for _, o := range options {
		found := false
		for _, s := range p.split() {
			spans, cells := map[string]bool{}, map[string]bool{}
			for _, span := range s.spans() {
				spans[span.text] = true
			}
			for _, row := range s.rows() {
				for _, text := range codes(strings.Join(row, "|")) {
					cells[text] = true
				}
			}
			name := o.of.Name()
			found = found || cells[name+"."+o.field] || cells[o.field] && (spans["outbox."+name] || spans[name])
			for _, via := range o.via {
				found = found || cells[via+"."+o.field]
			}
		}
		if !found {
			problems = append(problems, fmt.Sprintf("%s: no table has the option `%s.%s`", p.path, o.of.Name(), o.field))
		}
	}
	return problems
}

// split is a page at its headings.
func (p page) split() (parts []page) {
	lines := strings.SplitAfter(p.text, "\n")
	from := 0
	for _, s := range append(p.sections()[1:], section{line: len(lines) + 1}) {
		parts = append(parts, page{p.path, strings.Join(lines[from:s.line-1], "")})
		from = s.line - 1
	}
	return parts
}

func TestEachErrorIsDocumented(t *testing.T) {
	t.Parallel()
	requireReference(t, "errors.md", func(p page) []string { return undocumentedErrors(p, readAPI(t, goFiles(t))) })
}

func TestEachPackageIsDocumented(t *testing.T) {
	t.Parallel()
	requireReference(t, "api.md", func(p page) []string { return undocumentedPackages(p, readAPI(t, goFiles(t))) })
}

func TestEachOptionIsDocumented(t *testing.T) {
	t.Parallel()
	require.Greater(t, len(options()), 40)
	requireReference(t, "configuration.md", func(p page) []string { return undocumentedOptions(p, options()) })
}

func TestEachFlagIsDocumented(t *testing.T) {
	t.Parallel()
	requireReference(t, "command-line.md", func(p page) []string { return undocumentedFlags(p, readCommands(t).help) })
}

func requireReference(t *testing.T, name string, problems func(page) []string) {
	t.Helper()
	p := read(t, "docs/reference/"+name)
	if p.text == "" || name == "command-line.md" && !strings.Contains(p.text, "## Flags") {
		return // not written yet
	}
	for _, problem := range problems(p) {
		t.Error(problem)
	}
}

func TestWhatTheReferenceLacksIsNamed(t *testing.T) {
	t.Parallel()
	a := readAPI(t, map[string]string{"relay/a.go": "package relay\nvar ErrA, ErrB, errC = 1, 2, 3\ntype DError struct{}\nfunc Errand() {}\nfunc NewError() {}", "internal/b/b.go": "package b\nvar ErrE = 1"})
	p := page{"a.md", "| error | cause |\n|---|---|\n| `relay.ErrA` | x |\n| `*relay.DError` | x |\n| `relay` | x |\n| `relay.ErrZ` | x |\n"}
	require.Equal(t, []string{"a.md: no table has `relay.ErrB` in its first column", "a.md: `relay.ErrZ` is exported by no package"}, undocumentedErrors(p, a))
	require.Empty(t, undocumentedPackages(p, a))
	require.Equal(t, []string{"a.md: no table has `relay` in its first column"}, undocumentedPackages(page{path: "a.md"}, a))

	p = page{"a.md", "| flag | commands |\n|---|---|\n| `--json` | all |\n| `--all` | `dead` |\n| `--yes` | `dead`, `purge` |\n\nnot `--none`\n"}
	require.Equal(t, []string{
		"a.md: no table has `--dsn` in its first column", "a.md: --yes is a flag of dead", "a.md:7: no command has the flag --none",
	}, undocumentedFlags(p, map[string]string{
		"outbox":      "      --dsn string     address\n      --json           print JSON\n",
		"outbox dead": "      --all            all\n      --yes            do not ask\n\nGlobal Flags:\n      --dsn string     address\n",
	}))

	for text, missing := range map[string]int{
		"| a |\n|---|\n| `PollOptions.Interval` |\n":                0,
		"| a | b |\n|---|---|\n| x | `Poll.Interval` |\n":           0,
		"`outbox.PollOptions`:\n\n| a |\n|---|\n| `Interval` |\n":   0,
		"`outbox.PollOptions`\n# B\n| a |\n|---|\n| `Interval` |\n": 1,
		"`outbox.PollOptions` has `Interval`":                       1,
		"| a |\n|---|\n| `Purge.Interval` |\n":                      1,
	} {
		options := slices.DeleteFunc(options(), func(o option) bool { return o.of != reflect.TypeFor[outbox.PollOptions]() || o.field != "Interval" })
		require.Len(t, undocumentedOptions(page{"a.md", text}, options), missing, text)
	}
}
