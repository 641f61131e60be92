package outboxconf

import (
	"fmt"
	"regexp"
	"strings"
)

// unit is a unit that other libraries write into the key.
var unit = regexp.MustCompile(`(?i)[-_]?(ms|millis|seconds)$`)

// unknownKey says that a key is unknown, and which key is probably meant, if any.
func unknownKey(key, near string) string {
	if near == "" {
		return "is not a setting"
	}
	return fmt.Sprintf("is not a setting; did you mean %s%s?", near, map[bool]string{true: ", whose value has its unit, as in 5s"}[unit.MatchString(key)])
}

// nearest is the setting that differs from a key in few letters, or only in a missing
// section; empty if there is no such setting.
func nearest(key string) (best string) {
	word := fold(unit.ReplaceAllString(key, ""))
	least := 1 + max(2, len(word)/3)
	for _, k := range keys {
		if _, leaf, _ := strings.Cut(k, "."); leaf != "" && fold(leaf) == word {
			return k
		}
		if d := distance(word, fold(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// fold removes case and the separators of words.
func fold(s string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(s))
}

// distance is how many letters must be added, dropped or changed to turn a into b. No module
// that go.mod requires exports such a function, and a module for it would reach every user.
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
