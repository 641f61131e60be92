// Package check_test compares the pages of the repository with the code: the code on the pages is
// compiled, the names on the pages exist, and the reference has everything that exists.
package check_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var root = filepath.Join("..", "..")

// files returns a function that returns the texts of the repository's files with an ending, by
// their path with slashes. The function reads the files once.
func files(ending string) func() (map[string]string, error) {
	return sync.OnceValues(func() (map[string]string, error) {
		found := map[string]string{}
		return found, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name := entry.Name()
			if entry.IsDir() && path != root && (name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") && name != ".github") {
				return filepath.SkipDir
			}
			if entry.IsDir() || !strings.HasSuffix(name, ending) {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, path)
			found[filepath.ToSlash(rel)] = string(text)
			return err
		})
	})
}

var markdown, code = files(".md"), files(".go")

// page is a Markdown file.
type page struct {
	path, text string
}

// pages are all pages but the changelog, which speaks of versions that are gone.
func pages(t *testing.T) (list []page) {
	t.Helper()
	texts, err := markdown()
	require.NoError(t, err)
	require.Greater(t, len(texts), 30)
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		if path != "CHANGELOG.md" {
			list = append(list, page{path, texts[path]})
		}
	}
	return list
}

// read returns a page. A page that is not there is empty.
func read(t *testing.T, path string) page {
	t.Helper()
	texts, err := markdown()
	require.NoError(t, err)
	return page{path, texts[path]}
}

func goFiles(t *testing.T) map[string]string {
	t.Helper()
	texts, err := code()
	require.NoError(t, err)
	require.Greater(t, len(texts), 500)
	return texts
}

// check requires that a check finds nothing on any page.
func check(t *testing.T, problems func(page) []string) {
	t.Helper()
	for _, p := range pages(t) {
		for _, problem := range problems(p) {
			t.Error(problem)
		}
	}
}

// block is a fenced block of a page.
type block struct {
	line   int // the line of the fence
	kind   string
	text   string
	before string // the comments right before the fence
}

var fence = regexp.MustCompile("^\\s*(```+|~~~+)\\s*([^\\s`]*)")

// parts returns a page's fenced blocks, and the page's lines with the lines of the blocks emptied.
func (p page) parts() (blocks []block, prose []string) {
	var open string
	var last block
	before := ""
	n := 0
	for line := range strings.Lines(p.text) {
		n++
		line = strings.TrimSuffix(line, "\n")
		m := fence.FindStringSubmatch(line)
		switch {
		case open == "" && m != nil:
			open, last = m[1], block{line: n, kind: m[2], before: before}
		case open != "" && m != nil && m[2] == "" && strings.HasPrefix(m[1], open):
			open = ""
			blocks = append(blocks, last)
		case open != "":
			last.text += line + "\n"
		default:
			prose = append(prose, line)
			if !strings.HasPrefix(line, "<!--") {
				before = ""
			} else {
				before += line + "\n"
			}
			continue
		}
		prose = append(prose, "")
		before = ""
	}
	return blocks, prose
}

// span is a text between backticks.
type span struct {
	line int
	text string
}

var backticks = regexp.MustCompile("`([^`\n]+(?:\n[^`\n]+)*)`")

// spans are the texts between backticks outside of blocks. A span may continue on the next line.
func (p page) spans() (found []span) {
	_, lines := p.parts()
	prose := strings.Join(lines, "\n")
	for _, at := range backticks.FindAllStringSubmatchIndex(prose, -1) {
		text := strings.Join(strings.Fields(prose[at[2]:at[3]]), " ")
		found = append(found, span{1 + strings.Count(prose[:at[2]], "\n"), text})
	}
	return found
}

// rows are the cells of a page's tables, row by row, without heads.
func (p page) rows() (rows [][]string) {
	_, prose := p.parts()
	inside := false
	for _, line := range prose {
		line = strings.TrimSpace(line)
		switch {
		case !strings.HasPrefix(line, "|"):
			inside = false
		case strings.HasPrefix(line, "|--") || strings.HasPrefix(line, "|:-"):
			inside = true
		case inside:
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

// names are the texts between backticks in the first column of a page's tables.
func (p page) names() (names []string) {
	for _, row := range p.rows() {
		names = append(names, codes(row[0])...)
	}
	return names
}

// codes are the texts between backticks.
func codes(cell string) (texts []string) {
	for _, m := range backticks.FindAllStringSubmatch(cell, -1) {
		texts = append(texts, m[1])
	}
	return texts
}

func TestThePartsOfAPage(t *testing.T) {
	t.Parallel()
	p := page{"a.md", "# A\n\nsay `make\ntest` or\n`x`\n\n<!-- not run: why -->\n```console\nmake `x`\n```\n| a | b |\n|---|---|\n| `N`, `M` | 1 |\n\n````\n```go\n````\nend\n"}
	blocks, prose := p.parts()
	require.Equal(t, []block{
		{8, "console", "make `x`\n", "<!-- not run: why -->\n"},
		{15, "", "```go\n", ""},
	}, blocks)
	require.Len(t, prose, strings.Count(p.text, "\n"))
	require.Equal(t, []span{{3, "make test"}, {5, "x"}, {13, "N"}, {13, "M"}}, p.spans())
	require.Equal(t, []string{"N", "M"}, p.names())
	require.Equal(t, [][]string{{"`N`, `M`", "1"}}, p.rows())
}
