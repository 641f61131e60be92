package main

import (
	"fmt"
	"html"
	"strings"
)

// The plot's measures, in pixels.
const (
	plotWidth  = 760
	plotNames  = 210 // for the contenders' names
	plotBars   = 400
	plotBar    = 16
	plotHeader = 26
)

func (r *workResult) plotName() string { return fmt.Sprintf("%s-%s.svg", r.Database, r.Work) }

// svg is a plot: for each column a group of bars, with a whisker from the lowest to
// the highest round.
func (r *workResult) svg() string {
	var b strings.Builder
	y := 8
	for j, c := range r.Columns {
		y += plotHeader
		better := "less is better"
		if c.Higher {
			better = "more is better"
		}
		title := c.heading()
		if !strings.Contains(title, c.Unit) {
			title += ", " + c.Unit
		}
		fmt.Fprintf(&b, `<text x="0" y="%d" class="h">%s (%s)</text>`+"\n", y-8, html.EscapeString(title), better)
		y = r.bars(&b, j, y)
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">
<style>text{fill:#333}.h{font-weight:bold}.limit{fill:#b8b8b8}.ours{fill:#2f6fb3}.peer{fill:#d8923b}.w{stroke:#333;stroke-width:1}@media(prefers-color-scheme:dark){text{fill:#ddd}.w{stroke:#ddd}}</style>
%s</svg>
`, plotWidth, y+8, plotWidth, y+8, b.String())
}

// bars draws one column and returns where it ends.
func (r *workResult) bars(b *strings.Builder, j, y int) int {
	most := 0.0
	for _, l := range r.Lines {
		if c := l.Cells[j]; !c.Median.missing() {
			most = max(most, float64(c.High))
		}
	}
	for _, l := range r.Lines {
		c := l.Cells[j]
		if c.Median.missing() {
			continue
		}
		at := func(v number64) float64 {
			if most == 0 {
				return plotNames
			}
			return plotNames + plotBars*float64(v)/most
		}
		middle := y + plotBar/2
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, plotNames-6, middle+4, html.EscapeString(l.Contender))
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.1f" height="%d" class="%s"/>`, plotNames, y+2, at(c.Median)-plotNames, plotBar-4, l.class())
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" class="w"/>`, at(c.Low), at(c.High), middle, middle)
		fmt.Fprintf(b, `<text x="%.1f" y="%d">%s</text>`+"\n", at(c.High)+6, middle+4, format(float64(c.Median)))
		y += plotBar
	}
	return y
}

// class is the bar's colour.
func (l line) class() string {
	switch {
	case l.Limit || strings.HasPrefix(l.Contender, "bare") || strings.HasPrefix(l.Contender, "by hand"):
		return "limit"
	case strings.HasPrefix(l.Contender, "outbox"):
		return "ours"
	default:
		return "peer"
	}
}
