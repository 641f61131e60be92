package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxkit/outbox-go/cmd/outbox/internal/pages"
	"github.com/outboxkit/outbox-go/docs"
)

// mostHits is the number of sections that a search prints.
const mostHits = 8

// docsHit is a section that a search found.
type docsHit struct {
	Address  string `json:"address"`
	Title    string `json:"title"`
	Heading  string `json:"heading"`
	Sentence string `json:"sentence"`
}

func (a *app) docs() *cobra.Command {
	return &cobra.Command{
		Use: "docs [WORD... | PAGE]", Short: "Searches the documentation of this version, and prints its pages", Args: takes(0, -1, "words or a page"),
		Long: `Searches the documentation of this version, and prints its pages. The pages are in the program:
no network and no database is needed. Without an argument, prints the list of all pages.
Words in Chinese search the Chinese pages.`,
		Example: "  outbox docs retry a dead letter\n  outbox docs how-to/dead-letters.md\n  outbox docs 死信",
		RunE: func(_ *cobra.Command, args []string) error {
			sections, err := pages.Read(docs.Pages)
			if err != nil {
				return err
			}
			question := strings.Join(args, " ")
			if len(args) == 0 {
				question = "README.md"
			}
			if page, _, _ := strings.Cut(question, "#"); strings.HasSuffix(page, ".md") {
				return a.printPage(sections, question)
			}
			return a.search(sections, question)
		},
	}
}

func (a *app) printPage(sections []pages.Section, address string) error {
	text, err := pages.Print(sections, address)
	if errors.Is(err, pages.ErrNoPage) {
		return &usageError{"PAGE", fmt.Sprintf("is a text of %d bytes that is no page, or no heading of a page; outbox docs lists the pages", len(address))}
	}
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]string{"address": address, "text": text}, true)
	}
	_, err = io.WriteString(a.out, text)
	return err
}

func (a *app) search(sections []pages.Section, question string) error {
	hits := []docsHit{}
	for _, hit := range pages.Find(sections, question, mostHits) {
		hits = append(hits, docsHit{hit.Address(), hit.Title, hit.Heading, hit.Sentence})
	}
	if a.json {
		return a.printJSON(map[string]any{"hits": hits}, true)
	}
	if len(hits) == 0 {
		_, err := fmt.Fprintln(a.out, "no page has these words; outbox docs lists the pages")
		return err
	}
	var text strings.Builder
	for _, hit := range hits {
		text.WriteString(hit.Address + "\n")
		text.WriteString("    " + cut(hit.Sentence, maxColumn) + "\n")
	}
	text.WriteString("\noutbox docs " + hits[0].Address + " prints the first.\n")
	_, err := io.WriteString(a.out, text.String())
	return err
}
