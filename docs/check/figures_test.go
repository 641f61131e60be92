package check_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// measured are the pages and folders that say how their figures were measured.
var measured = []string{"docs/BENCHMARKS.md", "docs/reliability", "docs/how-to/brokers"}

// figure is a measured speed or cost, as in "4,000 events a second", "0.4 µs", "1.3 times
// as fast".
var figure = regexp.MustCompile(`\d ?(?:µs|ns)\b|(?:\d,\d{3}|\d{3}) (?:events|messages|orders|rows|transactions|requests)(?:/s| a second| per second)|\d(?:\.\d+)? times (?:as fast|as many|as long|faster|slower)`)

// figures names the measured figures in the text of a page that does not say how they
// were measured. Tables may have them.
func figures(p page) (problems []string) {
	if slices.ContainsFunc(measured, func(path string) bool { return p.path == path || strings.HasPrefix(p.path, path+"/") }) {
		return nil
	}
	_, prose := p.parts()
	for i, line := range prose {
		if found := figure.FindString(line); found != "" && !strings.HasPrefix(strings.TrimSpace(line), "|") {
			problems = append(problems, fmt.Sprintf("%s:%d: %q is a measured figure: put it into docs/BENCHMARKS.md or a table that says how it was measured, and link to it", p.path, i+1, found))
		}
	}
	return problems
}

func TestMeasuredFiguresAreOnThePagesThatSayHow(t *testing.T) {
	t.Parallel()
	check(t, figures)
}

func TestAMeasuredFigureIsNamed(t *testing.T) {
	t.Parallel()
	for text, is := range map[string]bool{
		"delivers 4,000 events a second":   true,
		"54,000 to 61,000 messages/s":      true,
		"costs about 0.4 µs":               true,
		"runs 1.1 times as fast":           true,
		"| drain | 4,000 events/s |":       false,
		"at most 10 events a second":       false,
		"`Rate: 10` is 10 a second":        false,
		"at most once in 20 ms, 3 times":   false,
		"ten events a second; 5 s; 1 ms":   false,
		"2 times the pool; 10,000 workers": false,
	} {
		require.Equal(t, is, len(figures(page{"docs/FAQ.md", "# A\n" + text + "\n"})) == 1, text)
		require.Empty(t, figures(page{"docs/BENCHMARKS.md", text}))
		require.Empty(t, figures(page{"docs/reliability/SOAK.md", text}))
	}
}
