package check_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheMapNamesEachPage(t *testing.T) {
	t.Parallel()
	content := read(t, "docs/README.md").text
	for _, p := range pages(t) {
		name, english := strings.CutPrefix(p.path, "docs/")
		if english && name != "README.md" && !strings.HasPrefix(name, "zh-CN/") {
			require.Contains(t, content, "]("+name+")", "docs/README.md has no row for the page")
		}
	}
}
