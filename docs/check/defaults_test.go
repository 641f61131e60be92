package check_test

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/outbox/sqlstore"
)

// defaults are the defaults of the configuration keys that are neither zero nor a word.
func defaults(t *testing.T) map[string]any {
	t.Helper()
	constants := constantsOf(t, "../../outbox")
	values := map[string]any{"table-name": sqlstore.DefaultTable}
	for key, name := range map[string]string{
		"dispatcher.worker-count":        "defaultWorkers",
		"dispatcher.hot-queue-capacity":  "defaultQueueCapacity",
		"dispatcher.cold-queue-capacity": "defaultQueueCapacity",
		"dispatcher.max-attempts":        "defaultMaxAttempts",
		"dispatcher.drain-timeout":       "DefaultDrainTimeout",
		"dispatcher.mark-interval":       "defaultMarkInterval",
		"retry.base-delay":               "defaultRetryBase",
		"retry.max-delay":                "defaultRetryMax",
		"poller.interval":                "defaultPollInterval",
		"poller.batch-size":              "DefaultPollBatch",
		"claim-locking.lock-timeout":     "DefaultLeaseDuration",
		"ordering.run-length":            "defaultRunLength",
		"purge.retention":                "DefaultRetention",
		"purge.batch-size":               "DefaultPurgeBatch",
		"purge.interval":                 "defaultPurgeInterval",
	} {
		values[key] = constants[name]
		require.NotNil(t, values[key], name)
	}
	return values
}

// constantsOf are the constants of the package in a folder whose values are whole numbers or
// durations.
func constantsOf(t *testing.T, folder string) map[string]any {
	t.Helper()
	fset := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	var files []*ast.File
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, file)
		}
	}
	config := types.Config{Importer: onlyTime{importer.ForCompiler(fset, "source", nil)}, Error: func(error) {}, IgnoreFuncBodies: true}
	pkg, _ := config.Check(folder, fset, files, nil) // declarations of the other packages are unknown
	values := map[string]any{}
	for _, name := range pkg.Scope().Names() {
		if c, is := pkg.Scope().Lookup(name).(*types.Const); is {
			if n, exact := constant.Int64Val(constant.ToInt(c.Val())); exact && c.Type().String() == "time.Duration" {
				values[name] = time.Duration(n)
			} else if exact {
				values[name] = int(n)
			}
		}
	}
	return values
}

// onlyTime imports package time; all other packages are empty.
type onlyTime struct{ types.Importer }

func (i onlyTime) Import(path string) (*types.Package, error) {
	if path == "time" {
		return i.Importer.Import(path)
	}
	pkg := types.NewPackage(path, filepath.Base(path))
	pkg.MarkComplete()
	return pkg, nil
}

// wrongDefaults names the keys of a page with a wrong default. The default is the first text in
// backticks of the third column.
func wrongDefaults(p page, defaults map[string]any) (problems []string) {
	for _, row := range p.rows() {
		keys := codes(row[0])
		if len(keys) == 0 || len(row) < 4 || len(codes(row[2])) == 0 {
			continue
		}
		stated := codes(row[2])[0]
		want, known := defaults[keys[0]]
		_, isNumber := number(stated)
		if known && !same(stated, want) || !known && isNumber && !same(stated, 0) && !same(stated, time.Duration(0)) {
			problems = append(problems, fmt.Sprintf("%s: the default of `%s` is %v, not %s; see defaults in docs/check", p.path, keys[0], want, stated))
		}
	}
	return problems
}

func same(stated string, want any) bool {
	value, isNumber := number(stated)
	return isNumber && value == want || stated == want
}

// number reads a whole number or a duration.
func number(text string) (any, bool) {
	if n, err := strconv.Atoi(text); err == nil {
		return n, true
	}
	d, err := time.ParseDuration(text)
	return d, err == nil
}

func TestTheDefaultsOfTheReferenceAreThoseOfTheCode(t *testing.T) {
	t.Parallel()
	p := read(t, "docs/reference/configuration.md")
	require.NotEmpty(t, p.text)
	defaults := defaults(t)
	for key := range defaults {
		require.Contains(t, p.names(), key)
	}
	for _, problem := range wrongDefaults(p, defaults) {
		t.Error(problem)
	}
}

func TestAWrongDefaultIsNamed(t *testing.T) {
	t.Parallel()
	defaults := map[string]any{"workers": 16, "interval": 5 * time.Second, "table": "outbox_event"}
	for row, wrong := range map[string]bool{
		"| `workers` | x | `16`, or more | y |":    false,
		"| `workers` | x | `8` | y |":              true,
		"| `interval` | x | `5000ms` | y |":        false,
		"| `interval` | x | `5m` | y |":            true,
		"| `table` | x | `outbox_event` | y |":     false,
		"| `table` | x | `outbox_events` | y |":    true,
		"| `other` | x | `0s` | y |":               false,
		"| `other` | x | `false` | y |":            false,
		"| `other` | x | none | y |":               false,
		"| `other` | x | `7` | y |":                true,
		"| `field` | a table with two columns |\n": false,
	} {
		problems := wrongDefaults(page{"a.md", "| a | b | c | d |\n|---|---|---|---|\n" + row + "\n"}, defaults)
		require.Equal(t, wrong, len(problems) == 1, row)
	}
}
