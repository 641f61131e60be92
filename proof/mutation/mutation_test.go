package mutation_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/proof/checker"
	"github.com/outboxkit/outbox-go/proof/faultrun"
)

const (
	root     = "../.."
	document = root + "/docs/reliability/MUTATIONS.md"
)

var write = flag.Bool("write", false, "write the table of docs/reliability/MUTATIONS.md")

// asked skips a test that takes minutes unless it is asked for. It returns how often each
// copy is to run.
func asked(t *testing.T) (times int) {
	t.Helper()
	switch value := os.Getenv("OUTBOX_TEST_MUTATIONS"); value {
	case "":
		t.Skip("it takes minutes: make chaos/mutations runs it")
		return 0
	case "true":
		return 1
	default:
		times, err := strconv.Atoi(value)
		require.NoError(t, err, "OUTBOX_TEST_MUTATIONS is true, or how often each copy runs")
		return times
	}
}

// The outbox passes each scenario that its broken copies fail.
func TestTheOutboxPassesTheScenarios(t *testing.T) {
	times := asked(t)
	t.Parallel()
	program, err := faultrun.Build(t.Context(), t.TempDir())
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, m := range mutations {
		if seen[m.play.name] {
			continue
		}
		seen[m.play.name] = true
		t.Run(m.play.name, func(t *testing.T) {
			t.Parallel()
			for range times {
				report := m.play.runs(t, program, time.Minute)
				require.Empty(t, report.Violations, report)
				require.NotZero(t, report.Succeeded, report)
			}
		})
	}
}

// The checker rejects each broken copy by the rule that the table names.
func TestTheCheckerRejectsBrokenCopies(t *testing.T) {
	times := asked(t)
	t.Parallel()
	for _, m := range mutations {
		t.Run(m.what, func(t *testing.T) {
			t.Parallel()
			program, err := faultrun.Build(t.Context(), t.TempDir(), "-ldflags", "-s -w", "-overlay", m.overlay(t))
			require.NoError(t, err)
			for range times {
				report := m.play.runs(t, program, 30*time.Second)
				t.Log(report.Broken())
				require.Contains(t, report.Broken(), m.rule, report)
			}
		})
	}
}

// broken is the text of the file with the mutation.
func (m mutation) broken(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, m.file))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), m.old), "%s has to have this once:\n%s", m.file, m.old)
	return strings.Replace(string(text), m.old, m.new, 1)
}

// overlay writes the file for go build -overlay.
func (m mutation) overlay(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	file, err := filepath.Abs(filepath.Join(root, m.file))
	require.NoError(t, err)
	copied := filepath.Join(dir, filepath.Base(m.file))
	require.NoError(t, os.WriteFile(copied, []byte(m.broken(t)), 0o600))
	text, err := json.Marshal(map[string]map[string]string{"Replace": {file: copied}})
	require.NoError(t, err)
	overlay := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, text, 0o600))
	return overlay
}

// The table cannot rot: each text still occurs once, and the broken copy compiles.
func TestEachMutationHasItsPlaceAndCompiles(t *testing.T) {
	t.Parallel()
	compile := newCompiler(t)
	what := map[string]bool{}
	for _, m := range mutations {
		require.NoError(t, compile(m.file, m.broken(t)), m.what)
		require.False(t, what[m.what], m.what)
		what[m.what] = true
	}
	require.ErrorContains(t, compile(mutations[0].file, mutations[0].broken(t)+"\nvar x = y\n"), "undefined: y")
}

// newCompiler returns a check of the types of a package of the repository, in which a file has
// another text. Imports come from the build cache.
func newCompiler(t *testing.T) func(file, text string) error {
	t.Helper()
	out, err := exec.Command("go", "list", "-C", root, "-export", "-deps", "-f", `{{.ImportPath}} {{.Export}} {{.Dir}} {{join .GoFiles ","}}`, "./outbox/...", "./adapters/sqltx", "./inbox", "./idempotency", "./httptx").Output()
	require.NoError(t, err)
	exports, packages := map[string]string{}, map[string][]string{}
	for line := range strings.Lines(string(out)) {
		var path, export, dir, files string
		_, err := fmt.Sscan(line, &path, &export, &dir, &files)
		if err != nil { // package unsafe has no export
			continue
		}
		exports[path], packages[dir] = export, strings.Split(files, ",")
	}
	return func(file, text string) error {
		set := token.NewFileSet()
		imports := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
		broken, err := filepath.Abs(filepath.Join(root, file))
		require.NoError(t, err)
		var files []*ast.File
		require.NotEmpty(t, packages[filepath.Dir(broken)], broken)
		for _, name := range packages[filepath.Dir(broken)] {
			path := filepath.Join(filepath.Dir(broken), name)
			var source any
			if path == broken {
				source = text
			}
			parsed, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			files = append(files, parsed)
		}
		_, err = (&types.Config{Importer: imports}).Check(filepath.Dir(file), set, files, nil)
		return err
	}
}

// Each rule that the outbox can break rejects a broken copy.
func TestEachRuleRejectsABrokenCopy(t *testing.T) {
	t.Parallel()
	rejects := map[checker.Rule]bool{checker.RuleRecords: true} // it is about the records
	for _, m := range mutations {
		rejects[m.rule] = true
	}
	for _, rule := range checker.Rules {
		require.True(t, rejects[rule.Rule], rule.Rule)
	}
}

// The document has the tables.
func TestTheDocumentListsTheMutations(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	before, _, ok := strings.Cut(string(text), "## The rules")
	require.True(t, ok)
	want := before + tables()
	if *write {
		require.NoError(t, os.WriteFile(document, []byte(want), 0o600))
		return
	}
	require.True(t, want == string(text), "%s differs from the tables; go test -C proof ./mutation -run Document -write writes them", document)
}

func tables() string {
	var s strings.Builder
	s.WriteString("## The rules\n\n| rule | what it demands |\n|---|---|\n")
	for _, rule := range checker.Rules {
		fmt.Fprintf(&s, "| `%s` | %s |\n", rule.Rule, rule.Text)
	}
	s.WriteString("\n## The mutations\n\n| what is broken | in | run | rejected by |\n|---|---|---|---|\n")
	for _, m := range mutations {
		fmt.Fprintf(&s, "| %s | `%s` | %s | `%s` |\n", m.what, m.file, m.play.name, m.rule)
	}
	return s.String()
}
