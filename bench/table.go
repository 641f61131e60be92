package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// heading is a column's name.
func (c column) heading() string {
	var parts []string
	for _, part := range []string{c.Variant, c.Name} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if c.Unit != "" && (c.Name != "" || len(parts) == 0) {
		parts = append(parts, c.Unit)
	}
	return strings.Join(parts, ", ")
}

// cells are the texts of a line: the median, the distance of the farthest round from the median,
// and the ratio, with the distance of the ratio.
func (l line) cells() []string {
	var texts []string
	for _, c := range l.Cells {
		text := "–"
		if !c.Median.missing() {
			text = format(float64(c.Median)) + plusMinus(c.spread())
			if !c.Ratio.missing() {
				text += fmt.Sprintf(" (%.2f%s)", float64(c.Ratio), plusMinus(c.RatioSpread))
			}
		}
		texts = append(texts, text)
	}
	return texts
}

func plusMinus(spread number64) string {
	if spread.missing() || spread == 0 {
		return ""
	}
	return fmt.Sprintf(" ±%.0f%%", 100*float64(spread))
}

// format writes three digits or all before the point, in groups.
func format(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case a < 10:
		return fmt.Sprintf("%.2f", v)
	case a < 100:
		return fmt.Sprintf("%.1f", v)
	}
	text := fmt.Sprintf("%.0f", v)
	if v >= 10_000 {
		text = fmt.Sprintf("%.0f", math.Round(v/100)*100)
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// text is the table for a terminal. A quick run has no figures worth a table.
func (r *workResult) text(quick bool) string {
	var b strings.Builder
	if quick {
		var names []string
		for _, l := range r.Lines {
			names = append(names, l.Contender)
		}
		return fmt.Sprintf("%s, %s: every event arrived (%s)\n", r.Database, r.Work, strings.Join(names, "; "))
	}
	fmt.Fprintf(&b, "\n%s, %s: %s\n", r.Database, r.Work, r.Title)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	head := []string{""}
	for _, c := range r.Columns {
		head = append(head, c.heading())
	}
	_, _ = fmt.Fprintln(w, strings.Join(head, "\t"))
	for _, l := range r.Lines {
		_, _ = fmt.Fprintln(w, strings.Join(append([]string{l.Contender}, l.cells()...), "\t"))
	}
	_ = w.Flush()
	b.WriteString(r.rounds() + "\n")
	return b.String()
}

// markdown is the table for the document.
func (r *workResult) markdown() string {
	var b strings.Builder
	row := func(first string, cells []string) {
		fmt.Fprintf(&b, "| %s | %s |\n", first, strings.Join(cells, " | "))
	}
	var head, rule []string
	for _, c := range r.Columns {
		head, rule = append(head, c.heading()), append(rule, "--:")
	}
	row("", head)
	row("---", rule)
	for _, l := range r.Lines {
		row(l.Contender, l.cells())
	}
	b.WriteString("\n" + r.rounds() + "\n")
	return b.String()
}

// rounds says how the rounds went.
func (r *workResult) rounds() string {
	text := fmt.Sprintf("%s on %s, steal at most %.1f %%.", plural(r.Rounds, "round"), r.Taken.Format(time.DateOnly), r.Steal)
	if r.Disturbed > 0 {
		text += fmt.Sprintf(" %s had more than %d %% in each of %d tries.", plural(r.Disturbed, "sample"), disturbed, tries)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Again)) {
		text += fmt.Sprintf(" %s delivered an event again %s.", name, plural(r.Again[name], "time"))
	}
	return text
}
