package check_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The picture of the flow is text: it must be well-formed, readable on a dark page, and
// in the words of the page that explains it.
func TestThePictureOfTheFlowUsesTheWordsOfThePage(t *testing.T) {
	t.Parallel()
	picture, page := readDocument(t, "flow.svg"), readDocument(t, "CONCEPTS.md")
	require.Contains(t, picture, "prefers-color-scheme: dark")
	require.Contains(t, page, "](flow.svg)")
	require.Contains(t, readDocument(t, "SPEC.md"), "](flow.svg)")
	var boxes []string
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != "text" {
			continue
		}
		for _, attr := range start.Attr {
			if attr.Name.Local == "font-weight" {
				var label string
				require.NoError(t, decoder.DecodeElement(&label, &start))
				boxes = append(boxes, label)
			}
		}
	}
	require.Len(t, boxes, 7)
	for _, box := range boxes {
		require.Contains(t, strings.ToLower(page), strings.TrimPrefix(box, "your "), "CONCEPTS.md does not say what the box %q is", box)
	}
}
