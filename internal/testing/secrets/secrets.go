// Package secrets holds marked texts to plant into events and addresses, and finds them in the
// output of a program. No log line, and no error of the library's own, may contain a marked text.
package secrets

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// The marked texts. They are short, so that a quotation that was cut still has a whole text, and
// they have no character that a format escapes.
const (
	Payload  = "qz7payload"
	Header   = "qz7header"
	Tenant   = "qz7tenant"
	Password = "qz7password"
)

// JSON is the text of a payload with the mark.
const JSON = `{"card":"` + Payload + `"}`

// Headers is a new map with the mark in a value.
func Headers() map[string]string { return map[string]string{"authorization": Header} }

// Find returns the marked texts that the text contains. Nil: the text contains no marked text.
func Find(text string) (found []string) { return FindOf(text, Payload, Header, Tenant, Password) }

// FindOf returns the words that the text contains. The words are in lower case, and are found as
// they are, in another case, as hexadecimal or decimal bytes, or in base 64.
func FindOf(text string, words ...string) (found []string) {
	lower := strings.ToLower(text)
	for _, word := range words {
		if strings.Contains(lower, word) || containsAny(lower, numbers(word)) || containsAny(text, base64Forms(word)) {
			found = append(found, word)
		}
	}
	return found
}

func containsAny(text string, forms []string) bool {
	for _, form := range forms {
		if strings.Contains(text, form) {
			return true
		}
	}
	return false
}

// numbers are the forms that show bytes: with %x, and with %v.
func numbers(secret string) []string {
	return []string{hex.EncodeToString([]byte(secret)), strings.Trim(fmt.Sprint([]byte(secret)), "[]")} //nolint:staticcheck // the numbers are meant
}

// base64Forms are the secret in base 64 at each place that it can have in a group of three bytes,
// without the characters that depend on the bytes around the secret.
func base64Forms(secret string) (forms []string) {
	for before := range 3 {
		padded := strings.Repeat("-", before) + secret
		encoded := base64.RawStdEncoding.EncodeToString([]byte(padded[:len(padded)/3*3]))
		forms = append(forms, encoded[(before*8+5)/6:])
	}
	return forms
}
