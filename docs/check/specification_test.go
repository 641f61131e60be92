package check_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// How many subsections each section of the specification has.
var subsections = [...]int{3, 9, 4, 2, 4, 5, 2, 3, 9, 6, 5, 4, 5, 3, 4, 0, 4, 4, 4, 5}

const scenarios = 14

var (
	heading  = regexp.MustCompile(`(?m)^#{2,3} ([0-9.]+) `)
	testLink = regexp.MustCompile("\\[`((?:Test|Fuzz)[^`]*)`\\]\\(([^)]+)\\)")
)

func readDocument(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", name))
	require.NoError(t, err)
	return string(text)
}

// numbers are the numbers of a page's headings, in order.
func numbers(page string) (found []string) {
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		found = append(found, strings.TrimSuffix(m[1], "."))
	}
	return found
}

func TestTheSpecificationHasEachSectionInOrder(t *testing.T) {
	t.Parallel()
	var want []string
	for i, n := range subsections {
		want = append(want, fmt.Sprint(i+1))
		for j := range n {
			want = append(want, fmt.Sprintf("%d.%d", i+1, j+1))
		}
	}
	require.Equal(t, want, numbers(readDocument(t, "SPEC.md")))
}

func TestEachAcceptanceScenarioHasATest(t *testing.T) {
	t.Parallel()
	page := readDocument(t, "OBJECTIVE.md")
	var want []string
	for i := range scenarios {
		want = append(want, fmt.Sprint(i+1))
	}
	require.Equal(t, want, numbers(page))
	for i, scenario := range heading.Split(page, -1)[1:] {
		require.Regexp(t, testLink, scenario, "scenario %d", i+1)
	}
}

// Every row of a table of rules has a test, and the rows are counted.
func TestEachRuleOfTheSpecificationHasATest(t *testing.T) {
	t.Parallel()
	rules, row := 0, 0
	for line := range strings.Lines(readDocument(t, "SPEC.md")) {
		switch {
		case strings.HasPrefix(line, "| # | rule | test |"):
			row = 1
		case row > 0 && strings.HasPrefix(line, "|---"):
		case row > 0 && strings.HasPrefix(line, "|"):
			require.True(t, strings.HasPrefix(line, fmt.Sprintf("| %d |", row)), "the number of %s", line)
			require.Regexp(t, testLink, line)
			row++
			rules++
		default:
			row = 0
		}
	}
	require.Greater(t, rules, 80)
}

// A name such as TestConformance/Claim/LockedRows may lead to the file that has only the last part
// of the name.
func TestTheTestsThatTheSpecificationNamesExist(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"SPEC.md", "OBJECTIVE.md", "zh-CN/SPEC.md", "zh-CN/OBJECTIVE.md"} {
		links := testLink.FindAllStringSubmatch(readDocument(t, name), -1)
		require.NotEmpty(t, links, name)
		for _, link := range links {
			path := filepath.Join(root, "docs", filepath.Dir(name), filepath.FromSlash(link[2]))
			code, err := os.ReadFile(path)
			require.NoError(t, err, "%s names %s", name, link[1])
			parts := strings.Split(link[1], "/")
			declared := "func " + parts[0] + "("
			if len(parts) > 1 {
				declared = fmt.Sprintf("%q", parts[len(parts)-1])
			}
			require.Contains(t, string(code), declared, "%s names %s in %s", name, link[1], link[2])
		}
	}
}

func TestTheTranslationsNameTheSameTests(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"SPEC.md", "OBJECTIVE.md"} {
		first := func(m []string) string { return m[1] }
		english := testLink.FindAllStringSubmatch(readDocument(t, name), -1)
		chinese := testLink.FindAllStringSubmatch(readDocument(t, "zh-CN/"+name), -1)
		require.Equal(t, mapped(english, first), mapped(chinese, first), name)
	}
}
