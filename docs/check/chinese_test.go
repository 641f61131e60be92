package check_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// translated are the pages that docs/zh-CN has, with their originals.
var translated = map[string]string{
	"docs/zh-CN/README.md":                     "README.md",
	"docs/zh-CN/CONCEPTS.md":                   "docs/CONCEPTS.md",
	"docs/zh-CN/TUTORIAL.md":                   "docs/TUTORIAL.md",
	"docs/zh-CN/OBJECTIVE.md":                  "docs/OBJECTIVE.md",
	"docs/zh-CN/SPEC.md":                       "docs/SPEC.md",
	"docs/zh-CN/how-to/adapters/bun.md":        "docs/how-to/adapters/bun.md",
	"docs/zh-CN/how-to/adapters/gorm.md":       "docs/how-to/adapters/gorm.md",
	"docs/zh-CN/how-to/change-data-capture.md": "docs/how-to/change-data-capture.md",
	"docs/zh-CN/how-to/dead-letters.md":        "docs/how-to/dead-letters.md",
	"docs/zh-CN/how-to/functions-and-cron.md":  "docs/how-to/functions-and-cron.md",
	"docs/zh-CN/how-to/metrics-and-alerts.md":  "docs/how-to/metrics-and-alerts.md",
	"docs/zh-CN/how-to/order-by-key.md":        "docs/how-to/order-by-key.md",
	"docs/zh-CN/how-to/payloads.md":            "docs/how-to/payloads.md",
	"docs/zh-CN/how-to/purge.md":               "docs/how-to/purge.md",
	"docs/zh-CN/how-to/several-databases.md":   "docs/how-to/several-databases.md",
	"docs/zh-CN/how-to/traces.md":              "docs/how-to/traces.md",
	"docs/zh-CN/how-to/transactions.md":        "docs/how-to/transactions.md",
	"docs/zh-CN/how-to/web/echo.md":            "docs/how-to/web/echo.md",
	"docs/zh-CN/shapes/api-and-worker.md":      "docs/shapes/api-and-worker.md",
	"docs/zh-CN/shapes/keep-debezium.md":       "docs/shapes/keep-debezium.md",
	"docs/zh-CN/shapes/many-tenants.md":        "docs/shapes/many-tenants.md",
	"docs/zh-CN/shapes/one-service.md":         "docs/shapes/one-service.md",
	"docs/zh-CN/shapes/only-a-relay.md":        "docs/shapes/only-a-relay.md",
	"docs/zh-CN/shapes/short-lived-writer.md":  "docs/shapes/short-lived-writer.md",
	"docs/zh-CN/shapes/two-databases.md":       "docs/shapes/two-databases.md",
	"docs/zh-CN/shapes/worker-fleet.md":        "docs/shapes/worker-fleet.md",
}

// section is a heading, and the text that follows the heading until the next heading.
type section struct {
	heading string
	line    int
	level   int
	blocks  []string
	rows    int // of tables
}

// sections are the sections of a page. The first section has no heading.
func (p page) sections() []section {
	list := []section{{}}
	blocks, prose := p.parts()
	for i, line := range prose {
		last := &list[len(list)-1]
		if len(blocks) > 0 && blocks[0].line == i+1 {
			last.blocks = append(last.blocks, "```"+blocks[0].kind+"\n"+blocks[0].text)
			blocks = blocks[1:]
		}
		if strings.HasPrefix(line, "|") {
			last.rows++
		}
		if m := pageHeading.FindStringSubmatch(line); m != nil {
			list = append(list, section{heading: line, line: i + 1, level: len(m[1])})
		}
	}
	return list
}

// alike reports whether two sections may be translations of each other.
func alike(a, b section) bool {
	return a.level == b.level && slices.Equal(a.blocks, b.blocks) && a.rows == b.rows
}

// differences lists the parts of two translations that the other translation lacks: the sections by
// their levels, and in the sections the blocks byte by byte and the number of rows of tables.
func differences(a, b page) (problems []string) {
	left, right := a.sections(), b.sections()
	level := func(s section) int { return s.level }
	if slices.Equal(mapped(left, level), mapped(right, level)) {
		for i := range left {
			if !slices.Equal(left[i].blocks, right[i].blocks) {
				problems = append(problems, fmt.Sprintf("%s:%d: the blocks below %q differ from those below %q of %s: they are the same in both languages, comments included", b.path, right[i].line, right[i].heading, left[i].heading, a.path))
			}
			if right[i].rows < left[i].rows {
				problems = append(problems, fmt.Sprintf("%s:%d: the tables below %q have %d lines, and those below %q of %s have %d", b.path, right[i].line, right[i].heading, right[i].rows, left[i].heading, a.path, left[i].rows))
			}
		}
		return problems
	}
	for _, pair := range align(left, right) {
		switch {
		case pair[0] < 0:
			problems = append(problems, fmt.Sprintf("%s lacks the section %q of %s:%d", a.path, right[pair[1]].heading, b.path, right[pair[1]].line))
		case pair[1] < 0:
			problems = append(problems, fmt.Sprintf("%s lacks the section %q of %s:%d", b.path, left[pair[0]].heading, a.path, left[pair[0]].line))
		}
	}
	return problems
}

func mapped[T, R any](list []T, f func(T) R) (result []R) {
	for _, element := range list {
		result = append(result, f(element))
	}
	return result
}

// align pairs as many sections as possible, in order. A section without a counterpart is paired
// with -1.
func align(left, right []section) (pairs [][2]int) {
	most := make([][]int, len(left)+1) // pairs from i and j on
	for i := range most {
		most[i] = make([]int, len(right)+1)
	}
	for i := len(left) - 1; i >= 0; i-- {
		for j := len(right) - 1; j >= 0; j-- {
			most[i][j] = max(most[i+1][j], most[i][j+1])
			if alike(left[i], right[j]) {
				most[i][j] = max(most[i][j], 1+most[i+1][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(left) || j < len(right) {
		switch {
		case i < len(left) && j < len(right) && alike(left[i], right[j]) && most[i][j] == 1+most[i+1][j+1]:
			i, j = i+1, j+1
			pairs = append(pairs, [2]int{i - 1, j - 1})
		case j == len(right) || i < len(left) && most[i+1][j] >= most[i][j+1]:
			i++
			pairs = append(pairs, [2]int{i - 1, -1})
		default:
			j++
			pairs = append(pairs, [2]int{-1, j - 1})
		}
	}
	return pairs
}

func TestTheChinesePagesHaveTheSectionsAndTheCodeOfTheEnglishOnes(t *testing.T) {
	t.Parallel()
	for chinese, english := range translated {
		require.NotEmpty(t, read(t, chinese).text, chinese)
		for _, problem := range differences(read(t, english), read(t, chinese)) {
			t.Error(problem)
		}
	}
	for _, p := range pages(t) {
		if strings.HasPrefix(p.path, "docs/zh-CN/") && translated[p.path] == "" {
			t.Errorf("%s is not in translated", p.path)
		}
	}
}

func TestTheChineseReadmeListsEachChinesePage(t *testing.T) {
	t.Parallel()
	const readme = "docs/zh-CN/README.md"
	for chinese := range translated {
		if chinese != readme {
			require.Contains(t, read(t, readme).text, "| ["+path.Base(chinese)+"]("+strings.TrimPrefix(chinese, "docs/zh-CN/")+") |")
		}
	}
}

func TestASectionThatALanguageLacksIsNamed(t *testing.T) {
	t.Parallel()
	const english = "intro\n# A\n## One\n| a |\n|---|\n| x |\n## Two\n```go\na() // b\n```\n## Three\n### Four\n"
	for name, tt := range map[string]struct{ chinese, want string }{
		"all":              {"intro\n# 甲\n## 一\n| a |\n|---|\n| x |\n## 二\n```go\na() // b\n```\n## 三\n### 四\n", ""},
		"more rows":        {"# 甲\n## 一\n| a |\n|---|\n| x |\n| y |\n## 二\n```go\na() // b\n```\n## 三\n### 四\n", ""},
		"fewer rows":       {"# 甲\n## 一\n| a |\n|---|\n## 二\n```go\na() // b\n```\n## 三\n### 四\n", `zh.md:2: the tables below "## 一" have 2 lines, and those below "## One" of en.md have 3`},
		"one is left out":  {"# 甲\n## 二\n```go\na() // b\n```\n## 三\n### 四\n", `zh.md lacks the section "## One" of en.md:3`},
		"another level":    {"# 甲\n## 一\n| a |\n|---|\n| x |\n## 二\n```go\na() // b\n```\n## 三\n", `zh.md lacks the section "### Four" of en.md:12`},
		"one more":         {"# 甲\n## 一\n| a |\n|---|\n| x |\n## 二\n```go\na() // b\n```\n## 三\n### 四\n## 五\n", `en.md lacks the section "## 五" of zh.md:12`},
		"a comment":        {"# 甲\n## 一\n| a |\n|---|\n| x |\n## 二\n```go\na() // 乙\n```\n## 三\n### 四\n", `zh.md:6: the blocks below "## 二" differ`},
		"a block too much": {"# 甲\n```go\na() // b\n```\n## 一\n| a |\n|---|\n| x |\n## 二\n```go\na() // b\n```\n## 三\n### 四\n", `zh.md:1: the blocks below "# 甲" differ`},
	} {
		problems := differences(page{"en.md", english}, page{"zh.md", tt.chinese})
		if tt.want == "" {
			require.Empty(t, problems, name)
			continue
		}
		require.Len(t, problems, 1, name)
		require.Contains(t, problems[0], tt.want, name)
	}
}
