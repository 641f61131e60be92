package doctor_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/doctor"
)

const root = "../../../.."

// sections are the sections of the page by their headings, in order.
func sections(t *testing.T) (names []string, texts map[string]string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(doctor.Page)))
	require.NoError(t, err)
	texts = map[string]string{}
	for i, part := range strings.Split(string(page), "\n## ") {
		name, text, _ := strings.Cut(part, "\n")
		if i == 0 {
			name = ""
		} else {
			names = append(names, name)
		}
		texts[name] = strings.ReplaceAll(text, "`", "")
	}
	return names, texts
}

func TestEachCheckHasASectionAndEachSectionACheck(t *testing.T) {
	t.Parallel()
	names, _ := sections(t)
	require.Equal(t, doctor.Checks(), names)
}

// literals are the string literals of the package's code, and those that are the first text of a call
// of report, at a level other than OK.
func literals(t *testing.T, folder string) (all string, reported []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	text := func(n ast.Node) string {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return ""
		}
		s, err := strconv.Unquote(lit.Value)
		require.NoError(t, err)
		return s
	}
	var b strings.Builder
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			b.WriteString(text(n) + "\n")
			call, ok := n.(*ast.CallExpr)
			if !ok || !isReport(call.Fun) {
				return true
			}
			if level, ok := call.Args[0].(*ast.Ident); ok && level.Name == "OK" {
				return true
			}
			ast.Inspect(call.Args[1], func(n ast.Node) bool {
				reported = append(reported, text(n))
				return true
			})
			return true
		})
	}
	return b.String(), reported
}

// isReport reports whether a function is the method report, or the function literal of that name.
func isReport(fun ast.Expr) bool {
	switch fun := fun.(type) {
	case *ast.SelectorExpr:
		return fun.Sel.Name == "report"
	case *ast.Ident:
		return fun.Name == "report"
	default:
		return false
	}
}

var verb = regexp.MustCompile(`%(\.\d+)?[a-z]`)

// Each finding of the code is on the page.
func TestThePageHasEachFinding(t *testing.T) {
	t.Parallel()
	_, texts := sections(t)
	page := ""
	for _, text := range texts {
		page += text
	}
	_, reported := literals(t, ".")
	require.Greater(t, len(reported), 80)
	for _, seen := range reported {
		parts := verb.Split(seen, -1)
		longest := slices.MaxFunc(parts, func(a, b string) int { return len(a) - len(b) })
		if len(longest) > 10 {
			longest, _, _ = strings.Cut(longest, "; that is right in WriterOnly")
			require.Truef(t, strings.Contains(page, strings.TrimSpace(longest)), "the page lacks %q", seen)
		}
	}
}

// Each finding of the page is in the code.
func TestEachFindingOfThePageExists(t *testing.T) {
	t.Parallel()
	code, _ := literals(t, ".")
	store, _ := literals(t, filepath.Join(root, "outbox", "sqlstore"))
	code = strings.ReplaceAll(code+store, ",", "")
	inWords := []string{"a table or a column is missing", "a read-only server or session", "permission denied", "TiDB", "for a right that is missing", "for another reason", "does not have a replica identity", "statement pooling mode"}
	names, texts := sections(t)
	levels := regexp.MustCompile(`^(failure|warning|note)\b`)
	for _, name := range append(names, "") {
		rows := 0
		for line := range strings.Lines(texts[name]) {
			cells := strings.Split(strings.TrimSpace(line), " | ")
			if len(cells) != 3 || !strings.HasPrefix(line, "| ") || !levels.MatchString(cells[1]) {
				continue
			}
			rows++
			for part := range strings.SplitSeq(strings.TrimPrefix(cells[0], "| "), "…") {
				part = strings.TrimSpace(strings.Trim(part, " :,"))
				if len(part) > 9 && !slices.ContainsFunc(inWords, func(words string) bool { return strings.Contains(part, words) }) {
					requireFragments(t, code, part)
				}
			}
		}
		require.NotZero(t, rows, "the section %q has a table", name)
	}
}

// requireFragments requires that the code has the words of a text. A name that the code inserts may
// stand in the text, so the words before and behind it are looked for.
func requireFragments(t *testing.T, code, text string) {
	t.Helper()
	words := strings.Fields(strings.ReplaceAll(text, ",", ""))
	for from := 0; from < len(words); {
		to := len(words)
		for to > from && !strings.Contains(code, strings.Join(words[from:to], " ")) {
			to--
		}
		require.Truef(t, to-from > 1 || to == len(words) || words[from] == "so", "%q is no text of the code, from %q on", text, strings.Join(words[from:], " "))
		from = max(to, from+1)
	}
}

// Each broken set-up of the tests stands with its level in the section of its check.
func TestThePageHasTheLevelsThatTheTestsFind(t *testing.T) {
	t.Parallel()
	_, texts := sections(t)
	for _, b := range brokenSetups {
		require.Contains(t, texts[b.check], "| "+b.level.String(), b.name)
	}
	for _, b := range brokenSessions {
		require.Contains(t, texts[b.check], "| "+b.level.String(), b.key)
	}
}
