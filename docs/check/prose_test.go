package check_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// weak are the words that stand in place of a noun. The last entry is every sentence that
// begins with What, Those, None, or with One as a pronoun.
var weak = []string{"what", "one", "its", "those", "none", "sentences"}

// goal is the most of each per 1,000 words; of sentences, the most in a group.
var goal = [6]float64{1, 4, 4, 0.5, 0.5, 0}

var (
	// notProse are code, quotes, links to names, the targets of links, and HTML.
	notProse  = regexp.MustCompile("`[^`]*`|\"[^\"]{1,200}\"|“[^”]*”|(?s:<!--.*?-->)|\\[[\\w.*]+\\]|\\]\\([^)]*\\)|(?m:^#+ .*$)")
	directive = regexp.MustCompile(`^//[a-z]+:\S`)
	word      = regexp.MustCompile(`[\w.'’-]*\w`)
	pronoun   = regexp.MustCompile(`^One\s+(?:that|which|who|whose|of|is|are|was|were|has|had|can|may|must|will|does|with|without|in|on|at|by|for|from|to)\b`)
)

// tally are the words of a group, and the places of the weak ones.
type tally struct {
	words  int
	places [6][]string // file:line
}

// add counts a text of a file that begins at a line.
func (c *tally) add(file string, line int, text string) {
	text = notProse.ReplaceAllStringFunc(text, func(s string) string { return " _ " + strings.Repeat("\n", strings.Count(s, "\n")) })
	for _, at := range word.FindAllStringIndex(text, -1) {
		w := text[at[0]:at[1]]
		if w != "_" {
			c.words++
		}
		place := fmt.Sprintf("%s:%d", file, line+strings.Count(text[:at[0]], "\n"))
		if i := slices.Index(weak[:5], strings.ToLower(w)); i >= 0 {
			c.places[i] = append(c.places[i], place)
		}
		if w == "What" || w == "Those" || w == "None" || pronoun.MatchString(text[at[0]:]) {
			c.places[5] = append(c.places[5], place)
		}
	}
}

// addGo counts the comments of a Go file, without the names that they document.
func (c *tally) addGo(t *testing.T, file, text string) {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	names := map[*ast.CommentGroup]string{}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			names[f.Doc] = f.Name.Name
		}
	}
	for _, group := range parsed.Comments {
		var lines []string
		for _, comment := range group.List {
			for line := range strings.Lines(comment.Text) {
				line = strings.TrimSuffix(line, "\n")
				if directive.MatchString(line) || strings.HasPrefix(line, "//\t") {
					line = ""
				}
				lines = append(lines, strings.TrimPrefix(line, "//"))
			}
		}
		documented := strings.TrimPrefix(strings.Join(lines, "\n"), " "+names[group]+" ")
		c.add(file, set.Position(group.Pos()).Line, documented)
	}
}

// addPage counts a page without its blocks and headings.
func (c *tally) addPage(p page) {
	_, lines := p.parts()
	c.add(p.path, 1, strings.Join(lines, "\n"))
}

// problems are the figures of a group that are above the goal.
func (c *tally) problems(group string) (problems []string) {
	for i, places := range c.places {
		figure, of := float64(len(places)), "sentences that begin with What, Those, None or the pronoun One"
		if i < 5 {
			figure, of = figure*1000/float64(c.words), "in 1,000 words: "+weak[i]
		}
		if figure > goal[i] {
			problems = append(problems, fmt.Sprintf("%s: %.3g %s, at most %g: name the noun in %s", group, figure, of, goal[i], strings.Join(places, " ")))
		}
	}
	return problems
}

// groupOf is the top folder of a file. The folders in outbox and in docs are groups too.
func groupOf(file string) string {
	folders := strings.Split(path.Dir(file), "/")
	if len(folders) > 1 && (folders[0] == "outbox" || folders[0] == "docs") {
		return strings.Join(folders[:2], "/")
	}
	return folders[0]
}

func TestCommentsAndPagesNameTheirNouns(t *testing.T) {
	t.Parallel()
	groups := map[string]*tally{}
	of := func(group string) *tally {
		if groups[group] == nil {
			groups[group] = &tally{}
		}
		return groups[group]
	}
	texts := goFiles(t)
	for _, file := range slices.Sorted(maps.Keys(texts)) {
		if !strings.HasSuffix(file, "_test.go") && !strings.HasPrefix(texts[file], "// Code generated ") {
			of("comments of "+groupOf(file)).addGo(t, file, texts[file])
		}
	}
	for _, p := range pages(t) {
		if p.path == "README.md" || strings.HasPrefix(p.path, "docs/") && !strings.HasPrefix(p.path, "docs/zh-CN/") {
			of("pages of " + groupOf(p.path)).addPage(p)
		}
	}
	require.Greater(t, len(groups), 20)
	for group, c := range groups {
		for _, problem := range c.problems(group) {
			t.Error(problem)
		}
	}
}

func TestTheWeakWordsAreCounted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][6]int{
		"what one its those none":             {1, 1, 1, 1, 1, 0},
		"What is read. Those go. None stays.": {1, 0, 0, 1, 1, 3},
		"One of many. One row. One that is.":  {0, 3, 0, 0, 0, 2},
		"Oneself, whatever, it's one-way":     {},
		"outbox.One, Mode.None, one_row":      {},
		"see [One] and `What is` it":          {},
		"it asks \"What is\nnone?\" and ends": {},
		"“What?” is a question":               {},
	} {
		comments, c := &tally{}, &tally{}
		comments.addGo(t, "a/a.go", "package a\n\n// "+strings.ReplaceAll(text, "\n", "\n// ")+"\nvar x int\n")
		c.addPage(page{"a/a.md", text + "\n"})
		for i := range weak {
			require.Len(t, c.places[i], want[i], "%s of %q in a page", weak[i], text)
			require.Len(t, comments.places[i], want[i], "%s of %q in a comment", weak[i], text)
		}
	}
	c := &tally{}
	c.addGo(t, "a/a.go", "package a\n\n// one takes one of\n// the rows:\n//\n//\tWhat(none)\n//\n//   - What it does\n//\n//go:generate none\nfunc one() {} // None\n")
	require.Equal(t, [6][]string{{"a/a.go:8"}, {"a/a.go:3"}, nil, nil, {"a/a.go:11"}, {"a/a.go:8", "a/a.go:11"}}, c.places)
	require.Equal(t, 9, c.words)
	c = &tally{}
	c.addPage(page{"a.md", "# What it is\n\n```go\nnone\n```\n- [What it](https://what.one/what) is\n"})
	require.Equal(t, [6][]string{{"a.md:6"}, nil, nil, nil, nil, {"a.md:6"}}, c.places)
	problems := c.problems("pages of x")
	require.Len(t, problems, 2)
	require.Equal(t, "pages of x: 1 sentences that begin with What, Those, None or the pronoun One, at most 0: name the noun in a.md:6", problems[1])
}
