package monitoring_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// logLine is a line that the code may write: its level and message.
type logLine struct{ level, message string }

var levels = map[string]string{
	"Debug": "DEBUG", "Info": "INFO", "Warn": "WARN", "Error": "ERROR",
	"LevelDebug": "DEBUG", "LevelInfo": "INFO", "LevelWarn": "WARN", "LevelError": "ERROR",
}

// logging is what the sources of a package log.
type logging struct {
	lines     []logLine
	keys      map[string]bool // by the name of the constant, or quoted where it is none
	constants map[string]string
}

func readLogging(t *testing.T, folder string) *logging {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	l := &logging{keys: map[string]bool{}, constants: map[string]string{}}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			l.visit(n)
			return true
		})
	}
	return l
}

func (l *logging) visit(n ast.Node) {
	switch n := n.(type) {
	case *ast.CallExpr: // log.Warn("outbox: …", key, value, …)
		if f, ok := n.Fun.(*ast.SelectorExpr); ok && levels[f.Sel.Name] != "" && len(n.Args) > 0 {
			if message, ok := text(n.Args[0]); ok && strings.HasPrefix(message, "outbox: ") {
				l.lines = append(l.lines, logLine{levels[f.Sel.Name], message})
				if !n.Ellipsis.IsValid() {
					l.pairs(n.Args[1:])
				}
			}
		} else if name, plain := n.Fun.(*ast.Ident); plain && name.Name == "append" && len(n.Args) > 1 { // append(attrs, key, value, …)
			l.pairs(n.Args[1:])
		} else if ok && f.Sel.Name == "Add" && len(n.Args) > 1 { // of a burst: count, key, value, …
			switch n.Args[1].(type) {
			case *ast.Ident, *ast.BasicLit:
				l.pairs(n.Args[1:])
			}
		}
	case *ast.CompositeLit: // logburst.Burst{Log: …, Level: …, Message: …}, or logburst.ByCause
		if kind, ok := n.Type.(*ast.SelectorExpr); ok && (kind.Sel.Name == "Burst" || kind.Sel.Name == "ByCause") {
			var line logLine
			for _, element := range n.Elts {
				field := element.(*ast.KeyValueExpr)
				switch field.Key.(*ast.Ident).Name {
				case "Level":
					line.level = levels[field.Value.(*ast.SelectorExpr).Sel.Name]
				case "Message":
					line.message, _ = text(field.Value)
				case "Ended":
					message, _ := text(field.Value)
					l.lines = append(l.lines, logLine{"INFO", message})
				}
			}
			l.lines = append(l.lines, line)
		}
		if array, ok := n.Type.(*ast.ArrayType); ok { // []any{key, value, …}
			if element, ok := array.Elt.(*ast.Ident); ok && element.Name == "any" {
				l.pairs(n.Elts)
			}
		}
	case *ast.ValueSpec: // the constants
		for i, name := range n.Names {
			if strings.HasPrefix(name.Name, "logKey") && i < len(n.Values) {
				l.constants[name.Name], _ = text(n.Values[i])
			}
		}
	}
}

func (l *logging) pairs(args []ast.Expr) {
	for i := 0; i < len(args); i += 2 {
		switch key := args[i].(type) {
		case *ast.Ident:
			if strings.HasPrefix(key.Name, "logKey") {
				l.keys[key.Name] = true
			}
		case *ast.BasicLit:
			if key.Kind == token.STRING {
				l.keys[key.Value] = true
			}
		}
	}
}

func text(e ast.Expr) (string, bool) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(literal.Value)
	return s, err == nil
}

// below are the folders of the packages that package outbox logs with.
func below(t *testing.T) []string {
	t.Helper()
	folders, err := filepath.Glob("../../../outbox/internal/*")
	require.NoError(t, err)
	require.Greater(t, len(folders), 5)
	return append(folders, "../../../internal/txscope")
}

func TestTheTableOfLogLinesIsWhatIsLogged(t *testing.T) {
	t.Parallel()
	logged := readLogging(t, "../../../outbox").lines
	for _, folder := range below(t) {
		logged = append(logged, readLogging(t, folder).lines...)
	}
	var documented []logLine
	for _, row := range table(t, reference, "level", "message") {
		documented = append(documented, logLine{row[0], codes(row[1])[0]})
	}
	require.ElementsMatch(t, logged, documented)
}

func TestTheTableOfLogKeysIsWhatIsUsedAndKeysAreConstants(t *testing.T) {
	t.Parallel()
	engine := readLogging(t, "../../../outbox")
	keys := map[string]bool{}
	for key := range engine.keys {
		require.NotEmpty(t, engine.constants[key], "the key %s is not a constant of log.go", key)
		keys[engine.constants[key]] = true
	}
	others := []string{"outbox"} // of outboxfx
	for _, folder := range below(t) {
		for key := range readLogging(t, folder).keys {
			name, err := strconv.Unquote(key)
			require.NoError(t, err)
			keys[name] = true
			others = append(others, name)
		}
	}
	for _, key := range []string{"occurred_at", "available_at", "outbox"} { // of Envelope.LogValue, and of outboxfx
		keys[key] = true
	}
	var documented, used, constants []string
	for _, row := range table(t, reference, "key", "value") {
		documented = append(documented, codes(row[0])...)
	}
	for key := range keys {
		used = append(used, key)
	}
	for _, value := range engine.constants {
		constants = append(constants, value)
	}
	require.ElementsMatch(t, used, documented)
	require.Subset(t, append(constants, others...), documented)
	require.Subset(t, documented, constants)
}
