package check_test

import (
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	pageHeading = regexp.MustCompile(`^(#+) (.*)$`)
	pageLink    = regexp.MustCompile(`\]\(([^)]*)\)|\b(?:src|href|srcset)="([^"]*)"`)
	pageAnchor  = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	linkText    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	noAnchor    = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors are the anchors that GitHub gives the headings of a page, and the anchors that the page
// sets.
func (p page) anchors() map[string]bool {
	found := map[string]bool{}
	_, prose := p.parts()
	for _, line := range prose {
		for _, m := range pageAnchor.FindAllStringSubmatch(line, -1) {
			found[m[1]] = true
		}
		m := pageHeading.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		heading := linkText.ReplaceAllString(m[2], "$1")
		anchor := strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
		for n, once := 1, anchor; found[anchor]; n++ {
			anchor = fmt.Sprintf("%s-%d", once, n)
		}
		found[anchor] = true
	}
	return found
}

// deadLinks names the links and pictures of a page that lead nowhere. Addresses of other
// sites are only parsed.
func deadLinks(p page, exists func(path string) bool, anchors func(path string) map[string]bool) (problems []string) {
	_, prose := p.parts()
	text := backticks.ReplaceAllString(strings.Join(prose, "\n"), "code")
	for _, at := range pageLink.FindAllStringSubmatchIndex(text, -1) {
		from, to := max(at[2], at[4]), max(at[3], at[5])
		link, _, _ := strings.Cut(strings.Join(strings.Fields(text[from:to]), " "), ` "`)
		if problem := deadLink(p, link, exists, anchors); problem != "" {
			problems = append(problems, fmt.Sprintf("%s:%d: the link to %s: %s", p.path, 1+strings.Count(text[:from], "\n"), link, problem))
		}
	}
	return problems
}

func deadLink(p page, link string, exists func(path string) bool, anchors func(path string) map[string]bool) string {
	address, err := url.Parse(link)
	switch {
	case err != nil || link == "" || strings.Contains(link, " "):
		return "it is no address"
	case address.Scheme == "https" && address.Host != "" || address.Scheme == "http" && address.Host != "" || address.Scheme == "mailto":
		return ""
	case address.Scheme != "" || address.Host != "" || strings.HasPrefix(address.Path, "/"):
		return "it is neither a relative path nor an address that begins with https://"
	}
	target := p.path
	if address.Path != "" {
		target = path.Join(path.Dir(p.path), address.Path)
	}
	switch {
	case strings.HasPrefix(target, ".."):
		return "it leaves the repository"
	case !exists(target):
		return "there is no such file"
	case address.Fragment != "" && !anchors(target)[address.Fragment]:
		return "there is no such heading"
	}
	return ""
}

func TestLinksLeadToFilesAndHeadings(t *testing.T) {
	t.Parallel()
	anchors := map[string]map[string]bool{}
	for _, p := range pages(t) {
		anchors[p.path] = p.anchors()
	}
	anchors["CHANGELOG.md"] = read(t, "CHANGELOG.md").anchors()
	count := 0
	exists := func(path string) bool {
		count++
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(path)))
		return err == nil
	}
	check(t, func(p page) []string {
		return deadLinks(p, exists, func(path string) map[string]bool { return anchors[path] })
	})
	require.Greater(t, count, 200)
}

var pageName = regexp.MustCompile(`(?:^|[^\w/.-])((?:docs|how-to|reference|reliability|zh-CN)/[\w/-]+\.md)\b`)

// missingPages names the pages that a text names, with or without a link, and that are
// not there.
func missingPages(file, text string, exists func(path string) bool) (problems []string) {
	for i, line := range strings.Split(text, "\n") {
		for _, m := range pageName.FindAllStringSubmatch(line, -1) {
			if !exists(m[1]) && !exists(path.Join("docs", m[1])) && !exists(path.Join(path.Dir(file), m[1])) {
				problems = append(problems, fmt.Sprintf("%s:%d: there is no page %s", file, i+1, m[1]))
			}
		}
	}
	return problems
}

func TestThePagesThatTextsAndCommentsNameExist(t *testing.T) {
	t.Parallel()
	texts, err := markdown()
	require.NoError(t, err)
	exists := func(path string) bool { return texts[path] != "" }
	check(t, func(p page) []string { return missingPages(p.path, p.text, exists) })
	for file, text := range goFiles(t) {
		if strings.HasPrefix(file, "docs/check/") {
			continue
		}
		for _, problem := range missingPages(file, text, exists) {
			t.Error(problem)
		}
	}
}

func TestAPageThatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	exists := func(path string) bool { return path == "docs/how-to/a.md" }
	require.Empty(t, missingPages("docs/b.md", "see how-to/a.md, docs/how-to/a.md, https://example.com/docs/c.md and c.md", exists))
	require.Equal(t, []string{"x/b.go:2: there is no page docs/how-to/c.md"}, missingPages("x/b.go", "// A\n// (docs/how-to/c.md)", exists))
}

func TestALinkThatLeadsNowhereIsNamed(t *testing.T) {
	t.Parallel()
	pages := map[string]page{
		"docs/a.md": {"docs/a.md", "# The `A` page\n## One\n## One\n<a id=\"own\"></a>\n```\n# none\n```\n"},
		"b.svg":     {},
	}
	exists := func(path string) bool { _, ok := pages[path]; return ok }
	anchors := func(path string) map[string]bool { return pages[path].anchors() }
	for link, want := range map[string]string{
		"[x](a.md#the-a-page)":       "",
		"[x](#one-1)":                "",
		"[x](a.md#own)":              "",
		"![x](../b.svg)":             "",
		`<img src="../b.svg">`:       "",
		`[x](a.md "the title")`:      "",
		"[x](https://example.com/a)": "",
		"`[x](none.md)`":             "",
		"[x](a.md#none)":             "docs/a.md:2: the link to a.md#none: there is no such heading",
		"[x](a.md#two)":              "no such heading",
		"[x](none.md)":               "there is no such file",
		"![x](none.svg)":             "there is no such file",
		`<img src="none.svg">`:       "there is no such file",
		"[x](../../c.md)":            "it leaves the repository",
		"[x](/etc/passwd)":           "neither a relative path",
		"[x](file:///etc/passwd)":    "neither a relative path",
		"[x](https://)":              "neither a relative path",
		"[x](https://exa mple.com)":  "it is no address",
		"[x]()":                      "it is no address",
	} {
		p := page{"docs/a.md", "\n" + link + "\n" + pages["docs/a.md"].text}
		problems := deadLinks(p, exists, anchors)
		if want == "" {
			require.Empty(t, problems, link)
			continue
		}
		require.Len(t, problems, 1, link)
		require.Contains(t, problems[0], want, link)
	}
}
