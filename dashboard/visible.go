package dashboard

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// visible escapes, in the texts of a page, characters that a reader would not see, but that change
// the visible text: control characters, and characters that turn the direction of writing. Tags
// stay as they are, because a hidden field must come back unchanged; in tags, [tags] escapes
// < and >.
func visible(html []byte) []byte {
	shown := make([]byte, 0, len(html))
	for tag := false; len(html) > 0; {
		r, size := utf8.DecodeRune(html)
		if r == '<' || r == '>' {
			tag = r == '<'
		}
		if !tag && invisible(r) {
			shown = fmt.Appendf(shown, `\u%04X`, r)
		} else {
			shown = append(shown, html[:size]...)
		}
		html = html[size:]
	}
	return shown
}

func invisible(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
}
