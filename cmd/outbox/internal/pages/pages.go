// Package pages reads and searches the documentation.
package pages

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// Section is a heading of a page with the text below it, up to the next heading. The first section
// of a page has the page's title.
type Section struct {
	Page    string // the path of the page, as in how-to/purge.md
	Anchor  string // the anchor of the heading; empty for the title
	Title   string // the title of the page
	Heading string
	Text    string // Markdown, with the heading
	level   int
	words   []weighed
}

// weighed are words of a section, as they are compared, with the weight of each.
type weighed struct {
	words  []string
	weight float64
}

// Address returns the page, and the anchor of the heading.
func (s *Section) Address() string {
	if s.Anchor == "" {
		return s.Page
	}
	return s.Page + "#" + s.Anchor
}

// Read returns the sections of all pages.
func Read(files fs.FS) (sections []Section, err error) {
	err = fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".md" {
			return err
		}
		text, err := fs.ReadFile(files, name)
		sections = append(sections, split(name, string(text))...)
		return err
	})
	return sections, err
}

var (
	heading  = regexp.MustCompile(`^(#{1,6}) +(.*\S)`)
	link     = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N}\p{M} _-]`)
	comment  = regexp.MustCompile(`(?s)<!--.*?-->\n?`)
)

// split cuts a page at its headings, outside of code.
func split(page, text string) (sections []Section) {
	used := map[string]bool{}
	code := false
	for line := range strings.Lines(comment.ReplaceAllString(text, "")) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		if m := heading.FindStringSubmatch(line); m != nil && !code {
			s := Section{Page: page, Heading: plain(m[2]), level: len(m[1])}
			if len(sections) > 0 {
				s.Title, s.Anchor = sections[0].Heading, anchorOf(m[2], used)
			} else {
				s.Title = s.Heading
				anchorOf(m[2], used)
			}
			sections = append(sections, s)
		}
		if n := len(sections); n > 0 {
			sections[n-1].Text += line
		}
	}
	for i := range sections {
		s := &sections[i]
		s.words = []weighed{{wordsOf(s.Text), 1}, {wordsOf(s.Heading), ofHeading}, {wordsOf(s.Title + " " + s.Page), ofTitle}}
	}
	return sections
}

// anchorOf returns the anchor that GitHub gives a heading.
func anchorOf(heading string, used map[string]bool) string {
	once := strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(link.ReplaceAllString(heading, "$1")), ""), " ", "-")
	anchor := once
	for n := 1; used[anchor]; n++ {
		anchor = fmt.Sprintf("%s-%d", once, n)
	}
	used[anchor] = true
	return anchor
}

// plain returns a line of Markdown without links and marks.
func plain(line string) string {
	line = strings.NewReplacer("`", "", "**", "").Replace(link.ReplaceAllString(line, "$1"))
	var cells []string
	for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), "|") {
		if cell = strings.Join(strings.Fields(cell), " "); strings.Trim(cell, "-") != "" {
			cells = append(cells, cell)
		}
	}
	return strings.Join(cells, " | ")
}

// ErrNoPage is the error of [Print] for an address that no section has.
var ErrNoPage = errors.New("no page has this address")

// Print returns a page, or the section at page#anchor with the sections below its heading.
func Print(sections []Section, address string) (string, error) {
	var text strings.Builder
	page, anchor, _ := strings.Cut(strings.TrimPrefix(address, "docs/"), "#")
	level := 0 // of the section that is printed
	for i := range sections {
		s := &sections[i]
		switch {
		case s.Page != page:
			continue
		case level == 0 && s.Anchor == anchor:
			level = s.level
		case level == 0:
			continue
		case s.level <= level:
			return text.String(), nil
		}
		text.WriteString(s.Text)
	}
	if level == 0 {
		return "", ErrNoPage
	}
	return text.String(), nil
}
