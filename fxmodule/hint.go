package outboxfx

import (
	"fmt"
	"strings"
)

// fold leaves of a word what people agree on: letters and digits.
func fold(s string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "", " ", "").Replace(s))
}

// nearest is the candidate that differs from s in few letters, if any does.
func nearest(s string, candidates []string) string {
	best, least := "", 1+max(2, len(fold(s))/5)
	for _, c := range candidates {
		if d := distance(fold(s), fold(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// nearestKey is the key that an unknown one is probably meant to be.
func nearestKey(path string) string {
	if len(path) > 200 {
		return ""
	}
	// Other outboxes write the unit into the key, and some leave the section out.
	for _, name := range []string{path, trimUnit(path)} {
		var paths []string
		for _, s := range settings {
			if fold(s.path) == fold(name) || s.section() != "" && fold(strings.TrimPrefix(s.path, s.section())) == fold(name) {
				return s.path
			}
			paths = append(paths, s.path)
		}
		if near := nearest(name, paths); near != "" {
			return near
		}
	}
	return ""
}

func trimUnit(path string) string {
	for _, unit := range []string{"-ms", "_ms", "_MS", "-millis", "-seconds", "_seconds", "_SECONDS"} {
		if rest, found := strings.CutSuffix(path, unit); found {
			return rest
		}
	}
	return path
}

// unknownKey says that there is no such key.
func unknownKey(path string, rename func(setting) string) string {
	near, found := settingAt(nearestKey(path))
	if !found {
		return "is no setting"
	}
	unit := ""
	if trimUnit(path) != path {
		unit = ", whose value has its unit, as in 5s"
	}
	return fmt.Sprintf("is no setting; did you mean %s%s?", rename(near), unit)
}

// distance is how many letters must be added, dropped or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
