package archtest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	pageCode    = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	pageBlock   = regexp.MustCompile("(?s)```.*?```")
	pageHeading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	pageLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	linkText    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	noAnchor    = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors are those that GitHub gives the headings of a page.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, m := range pageHeading.FindAllStringSubmatch(pageBlock.ReplaceAllString(page, ""), -1) {
		heading := linkText.ReplaceAllString(m[1], "$1")
		found[strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")] = true
	}
	return found
}

func TestLinksOfPagesLeadToFilesAndHeadings(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	pages := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".github" {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			pages[path] = string(text)
		}
		return nil
	}))
	require.Greater(t, len(pages), 30)
	headings := map[string]map[string]bool{}
	for path, page := range pages {
		headings[path] = anchors(page)
	}
	count := 0
	for path, page := range pages {
		for _, m := range pageLink.FindAllStringSubmatch(pageCode.ReplaceAllString(page, "code"), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			count++
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), filepath.FromSlash(file))
				_, err := os.Stat(target)
				require.NoError(t, err, "%s links to %s", path, m[1])
			}
			if anchor != "" {
				require.True(t, headings[target][anchor], "%s links to %s, which is no heading there", path, m[1])
			}
		}
	}
	require.Greater(t, count, 200)
}
