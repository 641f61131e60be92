package main_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDocsSearchesAndPrintsPages(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("../../docs/README.md")
	require.NoError(t, err)
	require.Equal(t, string(list), ok(t, "", "docs"), "the list of pages")

	found := ok(t, "", "docs", "dead", "letter")
	address, _, _ := strings.Cut(found, "\n")
	require.True(t, strings.HasPrefix(address, "how-to/dead-letters.md"), found)
	require.Contains(t, found, "\noutbox docs "+address+" prints the first.\n")
	section := ok(t, "", "docs", address)
	require.True(t, strings.HasPrefix(section, "#"), section)

	page, err := os.ReadFile("../../docs/how-to/dead-letters.md")
	require.NoError(t, err)
	require.Contains(t, string(page), section)
	require.Equal(t, ok(t, "", "docs", address), ok(t, "", "docs", "docs/"+address))

	require.Equal(t, "no page has these words; outbox docs lists the pages\n", ok(t, "", "docs", "qwertzuiop"))
}

func TestDocsAnswersInJSON(t *testing.T) {
	t.Parallel()
	var found struct {
		Hits []struct{ Address, Title, Heading, Sentence string }
	}
	require.NoError(t, json.Unmarshal([]byte(ok(t, "", "docs", "--json", "dead", "letter")), &found))
	require.Len(t, found.Hits, 8)
	require.True(t, strings.HasPrefix(found.Hits[0].Address, "how-to/dead-letters.md"), found.Hits[0])
	require.NotEmpty(t, found.Hits[0].Title)
	require.NotEmpty(t, found.Hits[0].Heading)
	require.NotEmpty(t, found.Hits[0].Sentence)

	require.NoError(t, json.Unmarshal([]byte(ok(t, "", "docs", "--json", "qwertzuiop")), &found))
	require.Empty(t, found.Hits)
	var page struct{ Address, Text string }
	require.NoError(t, json.Unmarshal([]byte(ok(t, "", "docs", "--json", "FAQ.md")), &page))
	require.Equal(t, "FAQ.md", page.Address)
	require.True(t, strings.HasPrefix(page.Text, "# "), page.Text[:20])
}

func TestDocsRefusesAPageThatDoesNotExist(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"how-to/none" + ".md", "FAQ.md#none", "../README.md"} {
		r := run(t, "", "docs", address)
		require.Equal(t, 2, r.code, address)
		require.Contains(t, r.err, "outbox docs lists the pages")
		require.NotContains(t, r.err, address)
	}
}
