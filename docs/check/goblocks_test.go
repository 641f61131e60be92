package check_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// squeeze leaves out indentation and blank lines. Each line stands between line ends.
func squeeze(text string) string {
	var b strings.Builder
	b.WriteByte('\n')
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// compiled are the squeezed texts of the Go files that are built.
func compiled(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for path, text := range goFiles(t) {
		if !strings.Contains(text, "//go:build ignore") {
			texts[path] = squeeze(text)
		}
	}
	return texts
}

// notCompiled names the Go blocks of a page that no Go file has.
func notCompiled(p page, code map[string]string) (problems []string) {
	blocks, _ := p.parts()
	for _, b := range blocks {
		if isRun(p.path) && strings.Contains(b.before, "<!-- file: ") {
			continue
		}
		if b.kind != "go" || inAny(code, squeeze(b.text)) != "" {
			continue
		}
		lines := strings.Split(strings.Trim(squeeze(b.text), "\n"), "\n")
		hint := "no Go file has its first line"
		for n := len(lines) - 1; n > 0; n-- {
			if path := inAny(code, "\n"+strings.Join(lines[:n], "\n")+"\n"); path != "" {
				hint = fmt.Sprintf("%s has it up to the line %q, which differs there", path, lines[n])
				break
			}
		}
		problems = append(problems, fmt.Sprintf("%s:%d: the Go block that begins with %q is no excerpt of a Go file of the repository, so nothing compiles it (%s): copy it from an Example, a sample or a file in docs/code/<page>/, indentation and blank lines aside", p.path, b.line, lines[0], hint))
	}
	return problems
}

// inAny returns the path of a file with the lines.
func inAny(code map[string]string, lines string) string {
	for path, text := range code {
		if strings.Contains(text, lines) {
			return path
		}
	}
	return ""
}

func TestEachGoBlockIsCompiled(t *testing.T) {
	t.Parallel()
	code := compiled(t)
	check(t, func(p page) []string {
		if translated[p.path] != "" {
			return nil // the blocks are the blocks of the original
		}
		return notCompiled(p, code)
	})
}

func TestAGoBlockThatNothingCompilesIsNamed(t *testing.T) {
	t.Parallel()
	code := map[string]string{"a_test.go": squeeze("package a\n\nfunc b() {\n\tc()\n\n\td()\n}\n")}
	for name, tt := range map[string]struct{ block, want string }{
		"an excerpt, indented otherwise": {"c()\nd()\n", ""},
		"a part of a line":               {"c(\n", "no Go file has its first line"},
		"another order":                  {"d()\nc()\n", `a_test.go has it up to the line "c()"`},
		"a line that is left out":        {"func b() {\nd()\n}\n", `a.md:3: the Go block that begins with "func b() {"`},
	} {
		problems := notCompiled(page{"a.md", "# A\n\n```go\n" + tt.block + "```\n"}, code)
		if tt.want == "" {
			require.Empty(t, problems, name)
			continue
		}
		require.Len(t, problems, 1, name)
		require.Contains(t, problems[0], tt.want, name)
	}
	file := "<!-- file: main.go -->\n```go\nx()\n```\n"
	require.Empty(t, notCompiled(page{"docs/TUTORIAL.md", file}, code))
	require.Len(t, notCompiled(page{"a.md", file}, code), 1)
	require.Empty(t, notCompiled(page{"a.md", "```sql\nx\n```\n"}, code))
}
