package sqlstore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/outboxkit/outbox-go/outbox"
)

// CheckEnvelope implements [outbox.EnvelopeChecker]: it rejects valid JSON texts
// that the database would reject, and event ids that the database would take for
// other ids.
func (s *Store) CheckEnvelope(env outbox.Envelope) error {
	if s.err != nil {
		return s.err
	}
	if s.d.padsSpaces && strings.HasSuffix(env.EventID, " ") {
		return &outbox.FieldError{Field: "Envelope.EventID", Problem: "ends with a space, which " + s.d.name + " leaves out of account when it compares"}
	}
	if s.d.maxDepth == 0 && s.d.maxExponent == 0 && !s.d.surrogates {
		return nil
	}
	if problem := s.d.checkJSON(env.Payload.String()); problem != "" {
		return &outbox.FieldError{Field: "Envelope.Payload", Problem: problem}
	}
	return nil
}

// checkJSON scans valid JSON text once and says what the database would reject; ""
// is nothing.
func (d *dialect) checkJSON(text string) string {
	depth, deepest := 0, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			end, ok := d.checkString(text, i+1)
			if !ok {
				return `holds half of a surrogate pair, such as \ud800, which ` + d.name + " does not store in JSON"
			}
			i = end
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		case c == '-' || c >= '0' && c <= '9':
			end := i + 1
			for end < len(text) && strings.IndexByte("0123456789+-.eE", text[end]) >= 0 {
				end++
			}
			if !d.checkNumber(text[i:end]) {
				return fmt.Sprintf("holds a number, of %d characters, that is out of %s's range", end-i, d.name)
			}
			i = end - 1
		}
	}
	if d.maxDepth > 0 && deepest > d.maxDepth {
		return fmt.Sprintf("is nested %d levels deep; the database allows %d", deepest, d.maxDepth)
	}
	return ""
}

// checkString returns where the string that begins at i ends.
func (d *dialect) checkString(text string, i int) (end int, ok bool) {
	if quote := strings.IndexByte(text[i:], '"'); quote >= 0 && strings.IndexByte(text[i:i+quote], '\\') < 0 {
		return i + quote, true // as most do: without an escape
	}
	for ; i < len(text); i++ {
		switch text[i] {
		case '"':
			return i, true
		case '\\':
			i++
			if i < len(text) && text[i] == 'u' && d.surrogates {
				switch unit := codeUnit(text, i+1); {
				case unit >= 0xDC00 && unit <= 0xDFFF:
					return i, false
				case unit >= 0xD800 && unit <= 0xDBFF:
					low := -1
					if strings.HasPrefix(text[min(i+5, len(text)):], `\u`) {
						low = codeUnit(text, i+7)
					}
					if low < 0xDC00 || low > 0xDFFF {
						return i, false
					}
					i += 6
				}
				i += 4
			}
		}
	}
	return i, true
}

func codeUnit(text string, i int) int {
	if i+4 > len(text) {
		return -1
	}
	n, err := strconv.ParseUint(text[i:i+4], 16, 16)
	if err != nil {
		return -1
	}
	return int(n)
}

// checkNumber accepts only numbers in range; those it rejects have no practical
// use.
func (d *dialect) checkNumber(number string) bool {
	if len(number) < d.maxExponent && !strings.ContainsAny(number, "eE") {
		return true
	}
	mantissa, exponent := number, 0
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		mantissa = number[:i]
		n, err := strconv.Atoi(number[i+1:])
		if err != nil {
			return false
		}
		exponent = n
	}
	if max(exponent, -exponent)+len(mantissa) <= d.maxExponent {
		return true
	}
	if !d.doubles || exponent < -400 {
		return false
	}
	_, err := strconv.ParseFloat(number, 64)
	return err == nil
}
