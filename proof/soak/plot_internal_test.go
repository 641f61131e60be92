package soak

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// drawn are the texts of a plot, and the number of points of each curve.
func drawn(t *testing.T, plot string) (texts []string, points []int) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(plot))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return texts, points
		}
		require.NoError(t, err)
		start, ok := token.(xml.StartElement)
		switch {
		case ok && (start.Name.Local == "text" || start.Name.Local == "title"):
			var value string
			require.NoError(t, decoder.DecodeElement(&value, &start))
			texts = append(texts, value)
		case ok && start.Name.Local == "polyline":
			for _, attr := range start.Attr {
				if attr.Name.Local == "points" {
					points = append(points, len(strings.Fields(attr.Value)))
				}
			}
		}
	}
}

func TestAPlotShowsEachFigureOfTheRunOverTime(t *testing.T) {
	t.Parallel()
	r := Result{Delivered: 3000, Took: 10 * time.Minute}
	for i := range 5 {
		r.Samples = append(r.Samples, Sample{
			At: time.Duration(2*i+2) * time.Minute, Written: 900, Delivered: float64(1000 + 100*i),
			Hot: Spread{Median: 2 * time.Millisecond, P99: 20 * time.Millisecond}, DeadLetters: i,
		})
	}
	texts, points := drawn(t, r.Plot())
	require.Equal(t, []int{5, 5, 5, 5, 5}, points, "two rates, two times, and dead letters")
	for _, want := range []string{
		"3000 events delivered in 10m0s",
		"events a second", "written 900 to 900", "delivered 1,000 to 1,400", "1,500",
		"fresh events: write to delivery, ms", "median 2 to 2", "99 % 20 to 20",
		"dead letters", "DEAD 0 to 4", "minutes", "10",
	} {
		require.Contains(t, texts, want)
	}
	for _, missing := range []string{"pending events, thousands", "size, MiB", "seconds"} {
		require.NotContains(t, texts, missing)
	}
}

func TestAPlotOfNoSamplesIsEmpty(t *testing.T) {
	t.Parallel()
	texts, points := drawn(t, Result{}.Plot())
	require.Equal(t, []string{"0 events delivered in 0s"}, texts)
	require.Empty(t, points)
}

func TestPlacesAreProportional(t *testing.T) {
	t.Parallel()
	r := Result{Samples: []Sample{{At: time.Minute, Pending: 50_000}, {At: 2 * time.Minute, Pending: 100_000}}}
	require.Contains(t, r.Plot(), `points="425.0,75.0 780.0,30.0"`)
}

func TestAxesEndAtRoundedValues(t *testing.T) {
	t.Parallel()
	for value, want := range map[float64]float64{0.7: 0.8, 1: 1, 1.2: 1.5, 9: 10, 27_300: 30_000, 60: 60} {
		require.InDelta(t, want, rounded(value), 1e-9, "%v", value)
	}
	for value, want := range map[float64]string{0: "0", 0.25: "0.25", 12.34: "12.3", 999.4: "999", 1000: "1,000", 27_300.6: "27,301", 1_234_567: "1,234,567"} {
		require.Equal(t, want, amount(value))
	}
}
