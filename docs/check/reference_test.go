package check_test

import (
	"fmt"
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// undocumentedErrors names the errors that packages export and a page's tables lack, and the errors
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

// undocumentedFlags names the flags of the command line that a page's tables lack, the flags whose
// second column does not have the commands with the flag, and the flags that the page has in
// backticks and no command has.
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

var (
	metric = regexp.MustCompile(`^outbox_[a-z_]+$`)
	// notMetrics are tables and labels.
	notMetrics = []string{"outbox_event", "outbox_event_control", "outbox_event_type", "outbox_aggregate_type", "outbox_listener"}
)

// unknownMetrics names the metrics that a page has in backticks and the reference lacks. A test in
// docs/monitoring compares the reference with the registered metrics.
func unknownMetrics(p page, known []string) (problems []string) {
	for _, s := range p.spans() {
		name := s.text
		for _, part := range []string{"_bucket", "_sum", "_count"} { // of a histogram
			name = strings.TrimSuffix(name, part)
		}
		if metric.MatchString(name) && !slices.Contains(notMetrics, name) && !slices.Contains(known, name) {
			problems = append(problems, fmt.Sprintf("%s:%d: docs/reference/metrics.md has no metric %s", p.path, s.line, s.text))
		}
	}
	return problems
}

// configured are types that users fill, besides the types whose names end in Config or Options.
var configured = []string{
	"outbox.SingleNode", "outbox.MultiNode", "outbox.OrderedByKey", "outbox.Ordered", "outbox.Rules", "relay.Route", "httptx.Access",
}

// isConfigured excepts the keys, which a test in fxmodule/outboxconf compares with their table, and
// the parts of an outbox, whose fields are the fields of outbox.Config.
func isConfigured(typ string) bool {
	pkg, name, _ := strings.Cut(typ, ".")
	return slices.Contains(configured, typ) ||
		ast.IsExported(name) && (strings.HasSuffix(name, "Config") || strings.HasSuffix(name, "Options")) &&
			pkg != "outboxfx" && (pkg != "outbox" || name == "Config" || !strings.HasSuffix(name, "Config"))
}

// undocumentedOptions names the fields of options that no table of a page has, and the functions
// that the page lacks. A field is `Type.Field`, the field that holds the type and the field, or
// `Field` in a section that names the type. A function may be without a package on a page that
// names the package.
func undocumentedOptions(p page, a *api) (problems []string) {
	via := map[string][]string{}
	for field, types := range a.fields {
		for _, typ := range types {
			via[typ] = append(via[typ], field)
		}
	}
	type part struct{ spans, cells map[string]bool }
	sections := mapped(p.split(), func(p page) part { spans, cells := p.named(); return part{spans, cells} })
	public := slices.Collect(maps.Values(a.folders))
	for _, typ := range slices.Sorted(maps.Keys(a.structs)) {
		pkg, name, _ := strings.Cut(typ, ".")
		if !isConfigured(typ) || !slices.Contains(public, pkg) {
			continue
		}
		for _, field := range a.structs[typ] {
			forms := []string{name + "." + field, typ + "." + field}
			for _, holder := range via[typ] {
				forms = append(forms, holder+"."+field)
			}
			if !slices.ContainsFunc(sections, func(s part) bool {
				return slices.ContainsFunc(forms, func(form string) bool { return s.cells[form] }) ||
					s.cells[field] && (s.spans[typ] || s.spans[name] && (s.spans[pkg] || pkg == "outbox"))
			}) {
				problems = append(problems, fmt.Sprintf("%s: no table has the field %s of %s", p.path, field, typ))
			}
		}
	}
	spans, _ := p.named()
	for _, option := range slices.Sorted(slices.Values(a.options)) {
		if pkg, name, _ := strings.Cut(option, "."); slices.Contains(public, pkg) && !spans[option] && (!spans[name] || !spans[pkg]) {
			problems = append(problems, fmt.Sprintf("%s: it lacks the option %s", p.path, option))
		}
	}
	return problems
}

// named are the texts in backticks of a part of a page, and the texts in backticks of the tables.
// For a call, named has the function; for a qualified name, named also has the package.
func (p page) named() (spans, cells map[string]bool) {
	spans, cells = map[string]bool{}, map[string]bool{}
	for _, s := range p.spans() {
		text, _, _ := strings.Cut(s.text, "(")
		spans[text] = true
		if pkg, _, qualified := strings.Cut(text, "."); qualified {
			spans[pkg] = true
		}
	}
	for _, row := range p.rows() {
		for _, text := range codes(strings.Join(row, "|")) {
			text, _, _ := strings.Cut(text, "(")
			cells[text] = true
		}
	}
	return spans, cells
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
	requireReference(t, "configuration.md", func(p page) []string {
		p.text += "\n" + read(t, "docs/reference/api.md").text // has the options of calls
		return undocumentedOptions(p, readAPI(t, goFiles(t)))
	})
}

func TestTheMetricsOnPagesExist(t *testing.T) {
	t.Parallel()
	known := read(t, "docs/reference/metrics.md").names()
	require.Greater(t, len(known), 20)
	check(t, func(p page) []string { return unknownMetrics(p, known) })
}

func TestEachFlagIsDocumented(t *testing.T) {
	t.Parallel()
	requireReference(t, "command-line.md", func(p page) []string { return undocumentedFlags(p, readCommands(t).help) })
}

func requireReference(t *testing.T, name string, problems func(page) []string) {
	t.Helper()
	p := read(t, "docs/reference/"+name)
	require.NotEmpty(t, p.text, name)
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

	p = page{"a.md", "`outbox_due`, `outbox_lag_seconds_bucket`, `outbox_event`, `outbox_none_total`"}
	require.Equal(t, []string{"a.md:1: docs/reference/metrics.md has no metric outbox_none_total"}, unknownMetrics(p, []string{"outbox_due", "outbox_lag_seconds"}))

	a = readAPI(t, map[string]string{
		"outbox/a.go":        "package outbox\ntype SingleNode struct { Poll PollOptions }\ntype PollOptions struct { Interval int; hidden int }\ntype WriterConfig struct { Store int }\ntype Other struct { A int }",
		"adapters/prom/a.go": "package outboxprom\nfunc WithPrefix() Option { return nil }\nfunc New() int { return 1 }",
	})
	mode, prefix := "| a |\n|---|\n| `SingleNode.Poll` |\n", "| a |\n|---|\n| `outboxprom.WithPrefix(prefix)` |\n"
	for text, want := range map[string]string{
		"| a |\n|---|\n| `PollOptions.Interval` |\n":                "",
		"| a | b |\n|---|---|\n| x | `Poll.Interval` |\n":           "",
		"`outbox.PollOptions`:\n\n| a |\n|---|\n| `Interval` |\n":   "",
		"`outbox.PollOptions`\n# B\n| a |\n|---|\n| `Interval` |\n": "no table has the field Interval of outbox.PollOptions",
		"`outbox.PollOptions` has `Interval`\n":                     "no table has the field Interval of outbox.PollOptions",
		"| a |\n|---|\n| `Purge.Interval` |\n":                      "no table has the field Interval of outbox.PollOptions",
	} {
		problems := undocumentedOptions(page{"a.md", text + "\n# A\n" + mode + "\n" + prefix}, a)
		if want == "" {
			require.Empty(t, problems, text)
			continue
		}
		require.Equal(t, []string{"a.md: " + want}, problems, text)
	}
	all := page{"a.md", "| a |\n|---|\n| `Poll.Interval` |\n" + mode[len("| a |\n|---|\n"):]}
	require.Equal(t, []string{"a.md: it lacks the option outboxprom.WithPrefix"}, undocumentedOptions(all, a))
	require.Empty(t, undocumentedOptions(page{"a.md", all.text + "\nof `outboxprom.New`\n\n| a |\n|---|\n| `WithPrefix(prefix)` |\n"}, a))
}
