package check_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// Readers look for things that are there and do not find them if there is too much beside. A page that
// grows beyond the bound loses the parts that no reader looks for, or becomes two.
const (
	mostWords = 1_500  // of a page
	allWords  = 60_000 // of the English pages together
)

// lists are the pages that a reader looks up a row in, and does not read: their tables do not count.
var lists = []string{"docs/reference/", "docs/reliability/", "docs/SPEC.md", "docs/ARCHITECTURE.md", "docs/BENCHMARKS.md"}

// words counts the words of a page, without code, without the part that a program writes, and without the
// tables of a list.
func (p page) words() (n int) {
	_, lines := p.parts()
	list := slices.ContainsFunc(lists, func(prefix string) bool { return strings.HasPrefix(p.path, prefix) })
	written := false
	for _, line := range lines {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "<!-- Written by "):
			written = true
		case strings.HasPrefix(line, "<!-- The end of what "):
			written = false
		case written, list && strings.HasPrefix(line, "|"):
		default:
			for _, field := range strings.Fields(strings.ReplaceAll(line, "|", " ")) {
				if strings.ContainsFunc(field, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
					n++
				}
			}
		}
	}
	return n
}

// tooLong names the pages that are too long, and their sum if that is.
func tooLong(pages []page) (problems []string) {
	sum := 0
	for _, p := range pages {
		n := p.words()
		sum += n
		if n > mostWords && p.path != "docs/SPEC.md" {
			problems = append(problems, fmt.Sprintf("%s has %d words, at most %d: cut what no reader comes for, or make two pages", p.path, n, mostWords))
		}
	}
	if sum > allWords {
		problems = append(problems, fmt.Sprintf("the English pages have %d words, at most %d", sum, allWords))
	}
	return problems
}

func TestThePagesAreShort(t *testing.T) {
	t.Parallel()
	var english []page
	for _, p := range pages(t) {
		if p.path == "README.md" || strings.HasPrefix(p.path, "docs/") && !strings.HasPrefix(p.path, "docs/zh-CN/") {
			english = append(english, p)
		}
	}
	require.Greater(t, len(english), 100)
	for _, problem := range tooLong(english) {
		t.Error(problem)
	}
}

func TestAPageThatIsTooLongIsNamed(t *testing.T) {
	t.Parallel()
	const text = "# A title\n\nthree more words\n```go\nnot these ones\n```\n| a | b |\n|---|---|\n<!-- Written by make bench. -->\nnot this\n<!-- The end of what make bench writes. -->\nlast\n"
	require.Equal(t, 8, page{"docs/how-to/a.md", text}.words())
	require.Equal(t, 6, page{"docs/reference/a.md", text}.words())
	long := strings.Repeat("word ", mostWords+1)
	require.Empty(t, tooLong([]page{{"docs/a.md", strings.TrimPrefix(long, "word ")}, {"docs/SPEC.md", long}}))
	problems := tooLong([]page{{"docs/a.md", long}})
	require.Len(t, problems, 1)
	require.Contains(t, problems[0], "docs/a.md has 1501 words, at most 1500")
	require.Contains(t, tooLong([]page{{"docs/SPEC.md", strings.Repeat(long, 41)}})[0], "the English pages have")
}
